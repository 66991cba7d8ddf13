"""Toys that several tests share: a surrogate with known coefficients, and scores by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ropelime import Explanation, explain
from ropelime.method.scores import Scores
from ropelime.typing import Floats, Masks

PROMPT = "red green blue black white"  # five words
OUTPUT = "yes it is"  # nine characters, three tokens of three
# How much each word adds to the log-probability of each output token, in nats.
COEF = np.array([[1.0, 0.5, 0.0], [-0.4, 0.0, 0.1], [0.0, 0.0, 0.0], [0.2, 0.3, 0.7], [0.1, -0.6, 0.0]])


def additive(coef: npt.ArrayLike = COEF, base: float = -3.0) -> Callable[[Masks], Floats]:
    """A surrogate that is ``base`` plus the coefficients of the features that are kept."""
    known = np.asarray(coef, dtype=float)
    return lambda masks: np.asarray(base + masks @ known)


def toy(prompt: str | None = PROMPT, output: str = OUTPUT, **options: Any) -> Explanation:
    """Explain the toy prompt by the toy surrogate."""
    chosen: dict[str, Any] = {
        "features": "word",
        "surrogate": additive(),
        "sampler": "leave-one-out",
        "target": "nll",
        "kernel": "uniform",
        "regressor": "wls",
        "scoring": "exact",
        "progress": False,
    }
    e: Explanation = explain(prompt, output, **{**chosen, **options})
    return e


def signalled() -> Explanation:
    """The toy explanation as if its weights were the mean of two signals."""
    signals = {"shift": np.array([0.5, 0.0, 0.1, 0.4, 0.0]), "words": np.array([0.9, 0.0, 0.1, 0, 0])}
    weights = (signals["shift"] + signals["words"]) / 2
    return replace(
        toy(),
        weights=weights,
        normalized_weights=weights,
        intervals=np.column_stack([weights - 0.1, weights + 0.1]),
        token_weights=np.outer(weights, np.full(3, 1 / 3)),
        signals=signals,
    )


def invented() -> Explanation:
    """Three sentences, a token each: the first is in the prompt, which does nothing for the others."""
    return toy(
        "Green lamps glow all night. Ships sail past it. Fish swim.",
        "Green lamps glow all night. Paris hosted queens twice. Cats vote often in London.",
        features="sentence",
        surrogate=additive([[2.9, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    )


def scoring(
    masks: npt.ArrayLike,
    logprob: npt.ArrayLike | None = None,
    kl: npt.ArrayLike | None = None,
    **fields: Any,
) -> Scores:
    """Scores with the given arrays; zeros where nothing is said."""
    kept = np.asarray(masks, dtype=bool)
    read = np.zeros((len(kept), 1)) if logprob is None else np.asarray(logprob, dtype=float)
    return Scores(
        masks=kept,
        logprob=read,
        kl=None if kl is None else np.asarray(kl, dtype=float),
        distances=fields.get("distances", {}),
        tokens=kept.sum(1),
        tokens_run=int(kept.sum()),
        seconds=0.0,
    )
