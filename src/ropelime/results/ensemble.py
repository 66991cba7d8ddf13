"""An ensemble of surrogates: their explanations averaged, and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from ropelime.errors import InputError
from ropelime.method.attribution import normalized
from ropelime.method.uncertainty import LEVEL, rank_correlation
from ropelime.results.explanation import Cost, ExplanationData, slice_output
from ropelime.results.verdicts import judge_together, leaves_open
from ropelime.text.prompt import Span
from ropelime.typing import Floats

_AGREE, _DIFFER = 0.7, 0.3  # rank correlations above and below which the verdict says so
_DIGITS = 9  # of weights whose sizes sum to one; what is behind them is rounding


def combine(members: Sequence[ExplanationData]) -> ExplanationData:
    """One explanation out of several of the same prompt and answer, each by another surrogate.

    Every member's weights are normalised, so that a more confident one does not count for more, and
    averaged. The scores, the output tokens, the notes and the figures are the first member's, the
    warnings those of all.
    """
    first = members[0]
    for other in members[1:]:
        if [f.text for f in other.features] != [f.text for f in first.features]:
            raise InputError(
                f"{_name(first)} and {_name(other)} split the prompt into different features; choose "
                "features that do not depend on a tokenizer, such as 'sentence'."
            )
    # A member whose weights are all zero contributes nothing.
    totals = [float(np.abs(m.weights).sum()) or np.inf for m in members]
    each = np.stack([m.weights / total for m, total in zip(members, totals, strict=True)])
    weights = each.mean(0).round(_DIGITS)
    pairs = combinations(np.abs(each).round(_DIGITS), 2)  # or noise around zero would be ranked
    # Mean pairwise rank correlation; 0 where one has no ranking.
    agreement = float(np.mean([np.nan_to_num(rank_correlation(a, b)) for a, b in pairs]))
    intervals = _intervals(members, each, totals)
    first_of_all = int(np.argmax(np.abs(weights)))  # of equal ones the first
    shares = [
        (float(m.normalized_weights.max()), float(m.normalized_weights[first_of_all])) for m in members
    ]
    return replace(
        first,
        normalized_weights=normalized(weights),
        weights=weights,
        token_weights=_by_token(members, totals),
        intervals=intervals,
        trust=judge_together(
            [m.trust for m in members if m.trust is not None],
            shares,
            agreement,
            _alike(members, agreement),
            nothing_known=intervals is not None and leaves_open(weights, np.ptp(intervals, axis=1) / 2),
        ),
        cost=sum((m.cost for m in members), Cost(0, 0, 0.0)),
        diagnostics=replace(first.diagnostics, warnings=_warnings(members)),
        config={
            **first.config,
            "unit": "normalised weight",
            "surrogates": [m.config["surrogate"] for m in members],
            "agreement": round(agreement, 6),
        },
        members=tuple(members),
        signals={
            name: np.mean([m.signals[name] for m in members], axis=0)
            for name in first.signals
            if all(name in m.signals for m in members)
        },
    )


def _warnings(members: Sequence[ExplanationData]) -> tuple[str, ...]:
    """Those of all members, each with the names of those that it is about."""
    about: dict[str, list[str]] = {}
    for member in members:
        for warning in member.diagnostics.warnings:
            about.setdefault(warning, []).append(_name(member))
    return tuple(f"{' and '.join(names)}: {warning}" for warning, names in about.items())


def _name(member: ExplanationData) -> str:
    return str(member.config["surrogate"].get("name", "a surrogate"))


def _intervals(
    members: Sequence[ExplanationData], each: Floats, totals: Sequence[float]
) -> Floats | None:
    """90 % intervals of the mean weight: the members' own uncertainty, and the spread between them."""
    if any(m.intervals is None for m in members):
        return None
    from scipy.special import stdtrit

    half_widths = [
        np.where(np.isfinite(total), np.ptp(np.asarray(m.intervals), axis=1) / 2 / total, 1.0)
        for m, total in zip(members, totals, strict=True)
    ]
    count = len(members)
    own = np.sqrt(np.mean(np.square(half_widths), axis=0) / count)
    quantile = min(float(stdtrit(count - 1, (1 + LEVEL) / 2)), 3.0)
    half = np.hypot(own, quantile * each.std(0, ddof=1) / np.sqrt(count))
    return np.stack([each.mean(0) - half, each.mean(0) + half], 1)


def _by_token(members: Sequence[ExplanationData], totals: Sequence[float]) -> Floats:
    """(n, T) weights for the first member's tokens; another's are spread over what they overlap."""
    spans = members[0].output_spans
    summed = members[0].token_weights / totals[0]
    for member, total in zip(members[1:], totals[1:], strict=True):
        into = np.array([_overlap(start, end, spans) for start, end in member.output_spans])
        summed = summed + member.token_weights / total @ into
    return np.asarray(summed / len(members))


def _overlap(start: int, end: int, over: Sequence[Span]) -> Floats:
    """How a token is spread over those of another tokenizer, several of which may be one character."""
    shared = np.array([max(0, min(b, end) - max(a, start)) for a, b in over], dtype=float)
    if not shared.any():  # it covers no character: it goes to the nearest token
        shared[int(np.argmin([abs(a - start) for a, _ in over]))] = 1.0
    return np.asarray(shared / shared.sum())


def _alike(members: Sequence[ExplanationData], agreement: float) -> str:
    """How far the members agree, as a sentence."""
    names = [_name(member) for member in members]
    who = " and ".join([", ".join(names[:-1]), names[-1]])
    if agreement < _DIFFER:
        return f"{who} disagree about the ranking."
    return f"{who} {'rank the parts alike' if agreement >= _AGREE else 'agree in part'}."


def for_output(e: ExplanationData, start: int, end: int) -> ExplanationData:
    """The explanation of one span of the output, from the scores that are there."""
    parts = [for_output(member, start, end) for member in e.members]
    part = combine(parts) if parts else slice_output(e, start, end)
    return replace(part, also=None if e.also is None else for_output(e.also, start, end))
