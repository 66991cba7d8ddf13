"""Measures of an attribution: against labels, and against the surrogate itself. No dataset needed."""

from ropelime.evaluation.faithfulness import Plan, follow, held_out, plan, spearman
from ropelime.evaluation.labels import Agreement, agreement, auroc, chance

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
