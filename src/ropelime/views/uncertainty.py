"""How sure an explanation is of its figures: the one place that reads it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from ropelime.results.explanation import ExplanationData


@dataclass(frozen=True)
class Uncertainty:
    """Intervals and trust; None where the explanation has none.

    Attributes:
        weights: (n, 2) ends of the 90% interval of each weight.
        scores: (n, 2) ends of the 90% interval of each share.
        trust: ``{"value": 0 to 1, "text": what it means}``.
    """

    weights: Any
    normalized_weights: Any
    trust: Any


def uncertainty(e: ExplanationData) -> Uncertainty:
    """What the explanation knows about its own figures."""
    trust = None if e.trust is None else asdict(e.trust)
    return Uncertainty(e.intervals, e.normalized_intervals, trust)


def places(e: ExplanationData) -> list[str]:
    """The place of each feature in the ranking, as "2", or as "2=" where others share it."""
    ranks = e.ranks.tolist()
    held = Counter(ranks)
    return [f"{rank}=" if held[rank] > 1 else f"{rank}" for rank in ranks]
