"""The arena: one row for each case, with what the answering model did and how every ranking fares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from benchmarks.closed import rankings
from benchmarks.closed.answering import Conversation, Converse
from benchmarks.closed.cases import Case
from benchmarks.closed.heads import Heads
from benchmarks.closed.measures import ORACLE, lost, ranked
from benchmarks.evaluation import agreement, held_out, spearman
from benchmarks.evaluation.faithfulness import HELD_OUT
from benchmarks.store import Row, Store
from ropelime.surrogate import Surrogate
from ropelime.text.similarity import token_f1
from ropelime.typing import Floats, Masks

NECESSITY, SUFFICIENCY = (1, 3), (2, 4)
CASE = "case"  # rows hold all rankings of a case
Ask = Literal["answers", "labels", "rankings"]


def run(
    cases: Sequence[Case],
    converse: Converse | None,
    surrogates: Mapping[str, Surrogate],
    store: Store,
    *,
    seed: int,
    first: int = 0,
    exact: bool = True,
    only: Collection[str] = (),
    attempts: bool = False,
    ask: Ask = "rankings",
    heads: Mapping[str, Mapping[str, Heads]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run every case that the store does not hold yet.

    Args:
        cases: The cases.
        converse: Begins a conversation about a prompt with the model that answers; None where the
            cases come with answers, which are then compared with labels only.
        surrogates: The models that explain, by name.
        store: Where the rows go.
        seed: Seed of all masks; case i draws from (seed, first + i).
        first: The number of the first case.
        exact: Whether to run the methods that score exactly, too.
        only: The names of the methods that are run; all of them and the peers if empty.
        attempts: Whether to add other ways to mix the signals, which were tried.
        ask: What to ask the answering model for: answers with all parts and with none; what is lost
            without each part, too; or all that comparing rankings takes.
        heads: Learnt weights of heads, by surrogate and then by name.
        progress: Called with the cases done and in all.
    """
    for number, case in store.left(cases, progress):
        drawn = (seed, first + number)
        row = _case(case, converse, surrogates, drawn, exact, only, attempts, ask, heads or {})
        store.add(case.id, [row])


def most_calls(case: Case, ranked: int) -> int:
    """How many answers a case takes at most.

    With the whole prompt and with none of its parts, without each of them, under the held-out masks,
    and for each ranking under all masks but the one without its first part, which is known by then.

    Args:
        case: The case.
        ranked: How many rankings are compared.
    """
    n = len(case.spans)
    return 2 + n + min(HELD_OUT, 1 << n) + ranked * (len(NECESSITY) + len(SUFFICIENCY) - 1)


def _case(
    case: Case,
    converse: Converse | None,
    surrogates: Mapping[str, Surrogate],
    seed: tuple[int, int],
    exact: bool,
    only: Collection[str],
    attempts: bool,
    ask: Ask,
    heads: Mapping[str, Mapping[str, Heads]],
) -> Row:
    n = len(case.spans)
    full = np.ones((1, n), dtype=bool)
    talk = None if converse is None else converse(case.prompt, case.spans)
    output = case.output or (talk.answers(full)[0] if talk else "")
    known: Row = {"example": case.id, "method": CASE, "number": seed[1], "features": n}
    known["gold"] = np.flatnonzero(case.gold).tolist()
    if not output:
        return {**known, "skipped": "no answer"}
    if talk is not None and ask == "answers":
        return {**known, "output": output, "from_memory": talk.answers(~full)[0]}
    weights: dict[str, Floats] = {rankings.RANDOM: np.random.default_rng([*seed, 2]).random(n)}
    weights |= rankings.lexicals(case, output)
    tokens: dict[str, int] = {}
    for name, surrogate in surrogates.items():
        found, took = rankings.by_surrogate(
            case,
            output,
            surrogate,
            seed,
            exact=exact,
            only=only,
            attempts=attempts,
            heads=heads.get(name),
        )
        weights |= {f"{name}: {method}": each for method, each in found.items()}
        tokens |= {f"{name}: {method}": each for method, each in took.items()}
    rng = np.random.default_rng([*seed, 3])
    if talk is None:
        orders = {name: ranked(each, rng) for name, each in weights.items()}
        figures = {name: _labels(each, orders[name], case) for name, each in weights.items()}
        return {**known, "rankings": _with(figures, weights, tokens)}
    talk.explain(output)
    removed = rankings.leave_one_out(n)
    score = talk.score(np.concatenate([full, ~full, removed]))
    unseen = held_out(n, np.random.default_rng([*seed, 1]))
    true = talk.score(unseen)
    weights[ORACLE] = score[0] - score[2:]
    orders = {name: ranked(each, rng) for name, each in weights.items()}
    needed = removed
    if ask == "rankings":
        needed = np.concatenate([removed, *(_masks(order, n) for order in orders.values())])
        talk.score(needed)  # all of them in few batches
    answers = talk.answers(np.concatenate([~full, needed]))
    figures = {ORACLE: {}}
    for name, each in weights.items() if ask == "rankings" else ():
        figures[name] = _labels(each, orders[name], case)
        figures[name] |= _against(talk, output, orders[name], score)
        figures[name]["lds"] = _rounded(spearman(unseen @ each, true))
    return {
        **known,
        "output": output,
        "from_memory": answers[0],
        "measured": talk.measured,
        "full": _rounded(score[0]),
        "none": _rounded(score[1]),
        "kept": [round(token_f1(answer, output), 5) for answer in answers[: n + 1]],
        "held_out": _rounded(true),
        "rankings": _with(figures, weights, tokens),
    }


def _with(
    figures: Mapping[str, Row], weights: Mapping[str, Floats], tokens: Mapping[str, int]
) -> dict[str, Row]:
    return {
        name: {**row, "tokens": tokens.get(name), "weights": _rounded(weights[name])}
        for name, row in figures.items()
    }


def _masks(order: Sequence[int], n: int) -> Masks:
    """Without the first k parts for each k of necessity, then the first k alone for sufficiency."""
    masks = np.ones((len(NECESSITY) + len(SUFFICIENCY), n), dtype=bool)
    for row, k in enumerate(NECESSITY):
        masks[row, list(order[:k])] = False
    for row, k in enumerate(SUFFICIENCY, len(NECESSITY)):
        masks[row] = False
        masks[row, list(order[:k])] = True
    return masks


def _against(talk: Conversation, output: str, order: Sequence[int], score: Floats) -> Row:
    """Necessity and sufficiency of a ranking for the answering model.

    A fall of the log-probability is divided by that without any part; one of token F1 is not.
    """
    masks = _masks(order, len(order))
    scores, answers = talk.score(masks), talk.answers(masks)
    same = [token_f1(answer, output) for answer in answers]
    effect = 1.0 if talk.measured == "answers" else score[0] - score[1]
    row: Row = {}
    for i, k in enumerate(NECESSITY):
        row[f"necessity{k}"] = _rounded(lost(score[0] - scores[i], effect))
        row[f"kept{k}"] = _rounded(same[i])
    for i, k in enumerate(SUFFICIENCY, len(NECESSITY)):
        row[f"sufficiency{k}"] = _rounded(same[i])
    return row


def _labels(weights: Floats, order: Sequence[int], case: Case) -> Row:
    """Agreement with labels, and whether the first part is labelled."""
    if not case.gold.any():
        return {}
    found = agreement(weights, case.gold)
    first = float(case.gold[order[0]])
    return {"first": first, "f1": _rounded(found.f1), "auroc": _rounded(found.auroc)}


def _rounded(value: Any) -> Any:
    if value is None:
        return None
    return [round(float(v), 5) for v in value] if np.ndim(value) else round(float(value), 5)
