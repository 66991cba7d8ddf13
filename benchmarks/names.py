"""What results files call the methods that are compared."""

from __future__ import annotations

from typing import Final

CHANCE = "chance"
SPARSE_K, SPARSE_K_EQUAL = "sparse-k", "sparse-k, LOO's tokens"
LEAVE_ONE_OUT = "leave-one-out"
LEAVE_ONE_OUT_EXACT, LEAVE_ONE_OUT_CACHED = "leave-one-out, exact", "leave-one-out, cached"
CONTEXTCITE = "contextcite"
EVIDENCE: Final = "evidence"
FAITHFUL: Final = "faithful"
PAPER: Final = "paper"
ROPE_LIME, GSMILE = "rope-lime", "gsmile"
BM25, LONGEST_COMMON = "BM25(question + answer)", "longest common substring"
LEXICAL = (BM25, LONGEST_COMMON)  # rankings by words, which take no model


def exact(masks: int) -> str:
    """So many random-half masks, scored exactly."""
    return f"exact, {masks}"


def cached(masks: int, exact: int = 0) -> str:
    """So many random-half masks with cached scoring, and perhaps some exact scores on top."""
    return f"cached, {masks} + {exact} exact" if exact else f"cached, {masks}"
