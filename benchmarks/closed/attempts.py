"""Other ways to make weights out of the signals, which were tried: each is a row of the arena.

Rankings are compared, not costs: all of them take the signals of ``preset="evidence"`` and
``preset="instant"``, and one scores a second answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from benchmarks.closed.cases import Case
from benchmarks.store import Row
from ropelime.explain import explain_many
from ropelime.method.attribution import POWER, normalized, sharpened
from ropelime.method.learnt import EVIDENCE
from ropelime.options import Options
from ropelime.results.explanation import ExplanationData
from ropelime.steps import Task
from ropelime.surrogate import Surrogate
from ropelime.text.features import split
from ropelime.text.lexical import bm25, coverage, paragraphs, stems
from ropelime.typing import Floats

NAME = "tried: "  # begins the names of these rankings
MOST = 19  # of them
_NULL_ANSWER = "I do not know."
_FIRST = 4  # parts that are told apart by what they add

Signals = Mapping[str, Floats]  # (n,) the shares that each signal gives


def tried(
    case: Case, output: str, surrogate: Surrogate, evidence: Signals, instant: Signals
) -> dict[str, Floats]:
    """(n,) weights by each way that was tried.

    Args:
        case: The prompt.
        output: The answer that is explained.
        surrogate: The model that scores it.
        evidence: The signals of ``preset="evidence"``.
        instant: Those of ``preset="instant"``.
    """
    default = mixed(evidence)
    found = {f"{name} alone": normalized(share) for name, share in evidence.items()}
    if "attention" in instant:
        found["attention alone"] = instant["attention"]
        found["attention as a fourth signal"] = 0.75 * default + 0.25 * instant["attention"]
    for power in (1.0, 2.0, 3.0):
        found[f"all powers {power:g}"] = mixed(
            {name: sharpened(share, power / POWER[name]) for name, share in evidence.items()}
        )
    found["equal weights"] = mixed(evidence, dict.fromkeys(evidence, 1.0))
    found["shift counts most"] = mixed(evidence, {"shift": 0.608, "words": 0.239, "question": 0.153})
    found["product of the signals"] = product(evidence)
    found["largest of the signals"] = normalized(np.stack(list(evidence.values())).max(0))
    found["mean of the ranks"] = mean_rank(evidence)
    for name, words in other_words(case, output).items():
        found[name] = mixed({**evidence, "words": sharpened(words, POWER["words"])})
    found["shift above that of a null answer"] = mixed(
        {**evidence, "shift": _above_null(case, surrogate, evidence["shift"])}
    )
    found["parts of strong paragraphs first"] = by_paragraph(case, default)
    found["first parts that differ"] = differing(case.parts, default)
    return {NAME + name: weights for name, weights in found.items()}


def shares(row: Row, surrogate: str, names: Iterable[str]) -> dict[str, Floats]:
    """(n,) the shares that signals gave, out of a row of the arena with all that was tried."""
    return {
        name: np.array(row["rankings"][f"{surrogate}: {NAME}{name} alone"]["weights"]) for name in names
    }


def mixed(signals: Signals, counts: Mapping[str, float] = EVIDENCE) -> Floats:
    """The weighted mean of the signals that say something."""
    heard = {name: share for name, share in signals.items() if share.any()}
    total = sum(counts[name] * share for name, share in heard.items())
    return normalized(np.asarray(total) if heard else np.zeros(len(next(iter(signals.values())))))


def product(signals: Signals) -> Floats:
    """The weighted geometric mean; a part that a signal gives nothing keeps a little."""
    n = len(next(iter(signals.values())))
    logs = [EVIDENCE[name] * np.log(share + 0.1 / n) for name, share in signals.items() if share.any()]
    return normalized(np.exp(np.sum(logs, axis=0))) if logs else np.full(n, 1 / n)


def mean_rank(signals: Signals) -> Floats:
    """The weighted mean of one over the rank of a part by each signal."""
    ranks = {
        name: 1.0 / (1 + (share[None, :] > share[:, None]).sum(1)) for name, share in signals.items()
    }
    return mixed(ranks)


def other_words(case: Case, output: str) -> dict[str, Floats]:
    """What parts share with the question and twice the answer, counted in simpler ways."""
    query = f"{case.question} {output} {output}"
    return {
        "words without their paragraph": bm25(query, case.parts, terms=stems),
        "words without stems": bm25(query, case.parts),
        "the part of the words that is covered": coverage(query, case.parts),
    }


def by_paragraph(case: Case, weights: Floats) -> Floats:
    """Weights times the square root of what their paragraph has."""
    numbers = np.array(paragraphs(case.prompt, split(case.prompt, case.spans)))
    sums = np.bincount(numbers, weights)
    return normalized(weights * np.sqrt(sums[numbers]))


def differing(parts: Sequence[str], weights: Floats) -> Floats:
    """The same weights, dealt out so that each of the first parts has words that those before lack."""
    held = [set(stems(part)) for part in parts]
    order: list[int] = []
    seen: set[str] = set()
    left = list(np.argsort(-weights, kind="stable"))
    for _ in range(min(_FIRST, len(left))):
        new = [len(held[i] - seen) / max(len(held[i]), 1) for i in left]
        order.append(left.pop(int(np.argmax(weights[left] * np.array(new)))))
        seen |= held[order[-1]]
    dealt = np.empty(len(parts))
    dealt[[*order, *left]] = np.sort(weights)[::-1]
    return dealt


def _above_null(case: Case, surrogate: Surrogate, shift: Floats) -> Floats:
    """The shift's shares, less those of an answer that says nothing."""
    target = {"name": "evidence", "words": 0, "question": 0}
    options = Options(features=case.spans, target=target)
    (null,) = explain_many([Task(case.prompt, _NULL_ANSWER, options)], [surrogate])
    assert isinstance(null, ExplanationData)
    of_null = null.signals.get("shift", np.zeros(len(shift)))
    return sharpened(np.maximum(shift - of_null, 0.0), 1)
