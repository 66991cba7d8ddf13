"""How sure an explanation is of its figures, where it says so: the one place that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ropelime.explanation import Explanation


@dataclass(frozen=True)
class Uncertainty:
    """Intervals and trust; None where the explanation has none.

    Attributes:
        weights: (n, 2) ends of the 90% interval of each weight.
        scores: (n, 2) ends of the 90% interval of each share.
        trust: ``{"value": 0 to 1, "text": what it means}``.
    """

    weights: Any
    scores: Any
    trust: Any


def uncertainty(e: Explanation) -> Uncertainty:
    """What the explanation knows about its own figures."""
    return Uncertainty(*(getattr(e, name, None) for name in ("intervals", "score_intervals", "trust")))
