"""Mixtures of the signals that are fitted to what people cite, for each surrogate by itself.

They were tried: `evidence` has the same weights for all surrogates. Stored rows hold the shares that
each signal gives, so that the table needs no model. Weights are fitted to every second prompt and
judged on the others, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import minimize

from benchmarks import pages
from benchmarks.closed import place
from benchmarks.closed.attempts import shares
from benchmarks.closed.learn import Effects, mixture
from benchmarks.evaluation import Agreement, agreement
from benchmarks.pages import NONE, number
from benchmarks.store import Row
from benchmarks.summary import spread
from ropelime.typing import Floats

_SIGNALS = ("shift", "words", "question", "attention")
_LITTLE = 0.1  # divided by the number of parts: what a part keeps that a signal gives nothing
Mix = Callable[[Floats, Floats], Floats]  # (K,) weights and (K, n) shares to (n,) weights of parts
Fit = Callable[[Sequence[Effects]], Floats]  # (K,) weights


def table(files: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """A line for each surrogate and way to mix.

    Args:
        files: Header and rows of runs with the reference answers and all that was tried.
    """
    lines = []
    for header, rows in files:
        for surrogate in header["surrogates"]:
            found = list(_effects(rows, surrogate))
            default = [place.weights(row, surrogate) for row in rows]
            lines.append([surrogate, "`evidence`", NONE, *_judged(default, found), NONE])
            for name, (fit, mix) in _WAYS.items():
                made, fitted = _crossed(found, fit, mix)
                shown = " and ".join("/".join(f"{w:.2f}" for w in each) for each in fitted)
                apart = _difference(made, default, found)
                lines.append([surrogate, name, shown, *_judged(made, found), apart])
    head = ["surrogate", "mixture", f"weights of {'/'.join(_SIGNALS)}", "F1", "AUROC"]
    return pages.table([*head, "F1, less that of `evidence`"], lines) if lines else NONE


def _effects(rows: Sequence[Row], surrogate: str) -> Iterator[Effects]:
    """The shares that the signals give to the parts of each prompt, and which parts are cited."""
    for row in rows:
        cited = np.zeros(row["features"])
        cited[row["gold"]] = 1.0
        yield np.array(list(shares(row, surrogate, _SIGNALS).values())), cited


def _crossed(found: Sequence[Effects], fit: Fit, mix: Mix) -> tuple[list[Floats], list[Floats]]:
    """Weights of parts, each by what was fitted to the other half; and what was fitted to each half."""
    weights = [fit([each for i, each in enumerate(found) if i % 2 == half]) for half in (0, 1)]
    made = [mix(weights[1 - i % 2], shares) for i, (shares, _) in enumerate(found)]
    return made, weights


def geometric(weights: Floats, shares: Floats) -> Floats:
    """(n,) the product of the shares, each to the power of its weight; sums to 1."""
    logs = weights @ np.log(shares + _LITTLE / shares.shape[1])
    raised = np.exp(logs - logs.max())
    return np.asarray(raised / raised.sum())


def fit_geometric(found: Sequence[Effects]) -> Floats:
    """(K,) powers, at least 0, under which the cited parts are most likely; a prompt counts once."""
    known = [
        (np.log(shares + _LITTLE / shares.shape[1]), cited / cited.sum())
        for shares, cited in found
        if cited.any()
    ]

    def loss(powers: Floats) -> tuple[float, Floats]:
        value, slope = 0.0, np.zeros(len(powers))
        for logs, cited in known:
            said = powers @ logs
            said = said - said.max()
            said = said - np.log(np.exp(said).sum())
            value -= float(cited @ said)
            slope -= logs @ (cited - np.exp(said))
        return value / len(known), slope / len(known)

    start = np.full(len(found[0][0]), 0.5)
    done = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start))
    return np.asarray(done.x)


_WAYS: Mapping[str, tuple[Fit, Mix]] = {
    "mean": (mixture, lambda weights, shares: np.asarray(weights @ shares)),
    "geometric mean": (fit_geometric, geometric),
}


def _difference(made: Sequence[Floats], default: Sequence[Floats], found: Sequence[Effects]) -> str:
    """The mean difference in F1 and its 95 % interval by bootstrap over prompts."""
    pairs = zip(_agreements(made, found), _agreements(default, found), strict=True)
    apart = spread(np.array([a.f1 - b.f1 for a, b in pairs]), coverage=0.95)
    return NONE if apart is None else f"{apart.mean:+.3f} [{apart.low:+.3f}, {apart.high:+.3f}]"


def _agreements(made: Sequence[Floats], found: Sequence[Effects]) -> list[Agreement]:
    return [agreement(weights, cited > 0) for weights, (_, cited) in zip(made, found, strict=True)]


def _judged(made: Sequence[Floats], found: Sequence[Effects]) -> list[str]:
    known = _agreements(made, found)
    return [
        number(float(np.mean([each.f1 for each in known])), ".3f"),
        number(float(np.mean([each.auroc for each in known if each.auroc is not None])), ".3f"),
    ]
