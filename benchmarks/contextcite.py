"""ContextCite's estimator as its code computes it: its target and its regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ropelime.method.regression import LinearFit, Regressor
from ropelime.method.scores import Scores
from ropelime.method.targets import Logit, Target
from ropelime.typing import Floats, Masks


@dataclass(frozen=True)
class LogitPerToken(Target):
    """ContextCite's target: the log-odds divided by the number of output tokens."""

    name: ClassVar[str] = "logit-per-token"
    needs_kl: ClassVar[bool] = False
    support: ClassVar[int] = 1
    unit: ClassVar[str] = "nats of log-odds per output token"

    def values(self, scores: Scores) -> Floats:
        """Log-odds of the output over its length."""
        return np.asarray(Logit().values(scores) / scores.logprob.shape[1])

    def token_values(self, scores: Scores) -> Floats:
        """Log-odds of each token."""
        return Logit().token_values(scores)


@dataclass(frozen=True)
class StandardisedLasso(Regressor):
    """ContextCite's regression: Lasso on masks that are scaled to unit variance; unscaled targets."""

    alpha: float = 0.01
    name: ClassVar[str] = "standardised-lasso"

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
        """Fit and undo the scaling."""
        from sklearn.linear_model import Lasso

        x = masks.astype(float)
        spread = x.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        solver = Lasso(alpha=self.alpha, max_iter=20_000)
        solver.fit((x - x.mean(0)) / spread, targets, sample_weight=weights)
        coef = np.asarray(solver.coef_, dtype=float).T / (
            spread if targets.ndim == 1 else spread[:, None]
        )
        return LinearFit(coef, np.asarray(solver.intercept_) - x.mean(0) @ coef)
