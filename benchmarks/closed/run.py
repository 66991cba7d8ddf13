"""The arena: one row for each case, with what the answering model did and how every ranking fares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.closed import rankings
from benchmarks.closed.answering import Conversation
from benchmarks.closed.cases import Case
from benchmarks.evaluation import agreement, held_out, spearman
from benchmarks.store import Row, Store
from ropelime.surrogate import Surrogate
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.similarity import token_f1
from ropelime.typing import Floats, Masks

NECESSITY, SUFFICIENCY = (1, 3), (2, 4)
CASE = "case"  # rows hold all rankings of a case
_CLIP = (-0.5, 1.5)


def run(
    cases: Sequence[Case],
    answering: LocalSurrogate | None,
    surrogates: Mapping[str, Surrogate],
    store: Store,
    *,
    seed: int,
    most: int,
    exact: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run every case that the store does not hold yet.

    Args:
        cases: The cases.
        answering: The model that answers; None where the cases come with answers, which are then
            compared with labels only.
        surrogates: The models that explain, by name.
        store: Where the rows go.
        seed: Seed of all masks; case i draws from (seed, i).
        most: The most tokens of an answer.
        exact: Whether to run the methods that score exactly, too.
        progress: Called with the cases done and in all.
    """
    for number, case in enumerate(cases):
        if progress:
            progress(number, len(cases))
        if case.id not in store.done:
            store.add(case.id, [_case(case, answering, surrogates, (seed, number), most, exact)])
    if progress:
        progress(len(cases), len(cases))


def _case(
    case: Case,
    answering: LocalSurrogate | None,
    surrogates: Mapping[str, Surrogate],
    seed: tuple[int, int],
    most: int,
    exact: bool,
) -> Row:
    n = len(case.spans)
    full = np.ones((1, n), dtype=bool)
    talk = None if answering is None else Conversation(answering, case.prompt, case.spans, most=most)
    output = case.output or (talk.answers(full)[0] if talk else "")
    known: Row = {"example": case.id, "method": CASE, "features": n}
    known["gold"] = np.flatnonzero(case.gold).tolist()
    if not output:
        return {**known, "skipped": "no answer"}
    weights: dict[str, Floats] = {rankings.RANDOM: np.random.default_rng([*seed, 2]).random(n)}
    weights |= rankings.lexicals(case, output)
    tokens: dict[str, int] = {}
    for name, surrogate in surrogates.items():
        found, took = rankings.by_surrogate(case, output, surrogate, seed, exact=exact)
        weights |= {f"{name}: {method}": each for method, each in found.items()}
        tokens |= {f"{name}: {method}": each for method, each in took.items()}
    rng = np.random.default_rng([*seed, 3])
    if talk is None:
        orders = {name: rankings.ranked(each, rng) for name, each in weights.items()}
        figures = {name: _labels(each, orders[name], case) for name, each in weights.items()}
        return {**known, "rankings": _with(figures, weights, tokens)}
    talk.explain(output)
    removed = rankings.leave_one_out(n)
    logprob = talk.logprob(np.concatenate([full, ~full, removed]))
    unseen = held_out(n, np.random.default_rng([*seed, 1]))
    true = talk.logprob(unseen)
    weights[rankings.ORACLE] = logprob[0] - logprob[2:]
    orders = {name: rankings.ranked(each, rng) for name, each in weights.items()}
    needed = np.concatenate([removed, *(_masks(order, n) for order in orders.values())])
    talk.logprob(needed)  # all of them in few batches
    answers = talk.answers(np.concatenate([~full, needed]))
    figures = {}
    for name, each in weights.items():
        figures[name] = _labels(each, orders[name], case)
        figures[name] |= _against(talk, output, orders[name], logprob)
        figures[name]["lds"] = _rounded(spearman(unseen @ each, true))
    return {
        **known,
        "output": output,
        "full": _rounded(logprob[0]),
        "none": _rounded(logprob[1]),
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


def _against(talk: Conversation, output: str, order: Sequence[int], logprob: Floats) -> Row:
    """Necessity and sufficiency of a ranking for the answering model."""
    masks = _masks(order, len(order))
    scores, answers = talk.logprob(masks), talk.answers(masks)
    same = [token_f1(answer, output) for answer in answers]
    effect = logprob[0] - logprob[1]
    row: Row = {}
    for i, k in enumerate(NECESSITY):
        drop = (logprob[0] - scores[i]) / effect if abs(effect) > 1e-6 else 0.0
        row[f"necessity{k}"] = _rounded(float(np.clip(drop, *_CLIP)))
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
