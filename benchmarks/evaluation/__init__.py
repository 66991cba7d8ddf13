"""Metrics of an attribution: agreement with labels, and faithfulness to the surrogate."""

from benchmarks.evaluation.faithfulness import Plan, follow, held_out, plan, spearman
from benchmarks.evaluation.labels import Agreement, agreement, auroc, chance

__all__ = [
    "Agreement",
    "Plan",
    "agreement",
    "auroc",
    "chance",
    "follow",
    "held_out",
    "plan",
    "spearman",
]
