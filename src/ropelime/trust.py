"""One number for how far to trust an explanation, and a sentence that says what it means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ropelime.attribution import Attribution
from ropelime.passes import Passes

# Fitted on HotpotQA with the embedded model: whether the first part is one that a person cited, against
# the logarithm of its share and how much less likely the answer is without it (docs/reading.md).
_FIRST, _SHARE, _DROP = 2.92, 1.30, 1.15
# Fitted there too: the rank correlation with unseen readings, against that with left-out ones.
_BASE, _LOG_SHARE, _FORETOLD = 0.48, 0.09, 0.53


@dataclass(frozen=True)
class Trust:
    """How far to trust an explanation.

    Attributes:
        value: 0 to 1. Where every feature was removed once, the chance that the first one is evidence;
            where many masks were fitted, how well the weights foretell what other masks do.
        text: The same in words.
    """

    value: float
    text: str


def judge(passes: Passes, fitted: Attribution) -> Trust:
    """Judge an explanation by what is known without labels.

    Args:
        passes: The readings that were fitted, the unmasked prompt first.
        fitted: What was made of them.
    """
    top = int(np.argmax(fitted.scores))
    share = max(float(fitted.scores[top]), 1e-9)
    if (passes.masks.sum(1) >= passes.masks.shape[1] - 1).all():
        without = ~passes.masks[:, top]
        drop = 0.0
        if without.any():
            lost = passes.logprob[0].sum() - passes.logprob[without].sum(1)
            drop = float(np.tanh(lost.mean()))
        value = 1 / (1 + math.exp(-(_FIRST + _SHARE * math.log(share) + _DROP * drop)))
        return Trust(value, _words(value, "the first part is evidence for the answer"))
    # What could not be tried on left-out readings is not claimed.
    foretold = 0.0 if math.isnan(fitted.foretold) else fitted.foretold
    value = float(np.clip(_BASE + _LOG_SHARE * math.log(share) + _FORETOLD * foretold, 0, 1))
    return Trust(value, _words(value, "the weights foretell what removing parts does"))


def _words(value: float, claim: str) -> str:
    if value >= 0.85:
        return f"Very likely {claim}."
    if value >= 0.65:
        return f"Probably {claim}."
    if value >= 0.45:
        return f"It is about even whether {claim}. Look at more than the first part."
    return f"It is doubtful whether {claim}. Treat the ranking as a hint only."
