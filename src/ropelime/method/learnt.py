"""What was learnt from answering models whose prompts lost parts: ``python -m benchmarks learn``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LEARNT: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("learnt.json").read_text(encoding="utf-8")
)
EVIDENCE: Mapping[str, float] = _LEARNT["evidence"]  # how much each signal counts
INSTANT: Mapping[str, float] = _LEARNT["instant"]


def learnt_heads(shape: str) -> list[tuple[int, int, float]] | None:
    """Layer, number and weight of the heads that were learnt for models of a shape, if any were."""
    found = _LEARNT["heads"].get(shape)
    return None if found is None else [(int(a), int(b), float(w)) for a, b, w in found]


def chance(of: str, inputs: Mapping[str, float]) -> float:
    """A chance that was learnt: the logistic function of a weighted sum.

    Args:
        of: Of what, by its name among the chances.
        inputs: What it is estimated from; each that was learnt must be there.
    """
    return _logistic(_LEARNT["chances"][of], inputs)


def action_chance(measures: Mapping[str, float]) -> float:
    """The chance that a tool's output caused an action: ``python -m benchmarks calibrate-actions``.

    Args:
        measures: As :func:`ropelime.results.measures.measures` gives them.
    """
    return _logistic(_LEARNT["chances_actions"], measures)


def _logistic(weights: Mapping[str, float], inputs: Mapping[str, float]) -> float:
    total = sum(w * (1.0 if name == "bias" else inputs[name]) for name, w in weights.items())
    return 1 / (1 + math.exp(-max(min(total, 30.0), -30.0)))
