"""Agreement with labels: the prediction is the top |gold| features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropelime.errors import InputError
from ropelime.typing import Floats

Labels = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Agreement:
    """How well scores find the labelled features.

    Attributes:
        iou: Intersection over union of the top |gold| features and the gold ones.
        f1: Harmonic mean of precision and recall; both are equal here.
        auroc: Probability that a gold feature scores above another; None where all are gold.
    """

    iou: float
    f1: float
    auroc: float | None


def agreement(scores: Floats, gold: Labels) -> Agreement:
    """Compare scores with labels; ties are broken by the order of the text."""
    count = int(gold.sum())
    if count == 0:
        raise InputError("No feature is labelled: agreement is undefined.")
    if not np.isfinite(scores).all():
        raise InputError("Scores are NaN or infinite: agreement is undefined.")
    top = np.argsort(-scores, kind="stable")[:count]
    hits = int(gold[top].sum())
    return Agreement(hits / (2 * count - hits), hits / count, auroc(scores, gold))


def auroc(scores: Floats, gold: Labels) -> float | None:
    """Area under the ROC curve, ties counted half; None if all labels are equal."""
    if gold.all() or not gold.any():
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(gold, scores))


def chance(features: int, gold: int) -> Agreement:
    """The expected agreement of a random ranking: its hits are hypergeometric."""
    hits = np.arange(max(0, 2 * gold - features), gold + 1)
    ways = [math.comb(gold, int(h)) * math.comb(features - gold, gold - int(h)) for h in hits]
    share = np.array(ways, dtype=float) / math.comb(features, gold)
    iou = float((share * hits / (2 * gold - hits)).sum())
    return Agreement(iou, float((share * hits / gold).sum()), None if gold == features else 0.5)
