"""The methods that are compared: each a sampler and a recipe. To add one, add a line here."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ropelime.budget import Budget
from ropelime.method.attribution import Recipe
from ropelime.method.regression import Fit
from ropelime.method.rounds import PRESETS, Order, make_plan
from ropelime.method.samplers import SPARSE_K_SETTINGS, Sampler, resolve_sampler
from ropelime.method.scores import Floats, Ints, Masks, Scores
from ropelime.method.targets import Logit


@dataclass(frozen=True)
class Method:
    """One way to attribute an answer.

    Attributes:
        name: What the tables call it.
        sampler: Its masks.
        recipe: Its target, kernel and regressor.
        tokens_of: Another method: masks are drawn only until they cost as many tokens as that one's.
        scoring: ``"exact"`` or ``"cheap"``.
        preset: A preset, whose plan decides what is read and when it is enough.
        exact: So many exact readings on top of the cheap ones.
    """

    name: str
    sampler: Sampler
    recipe: Recipe
    tokens_of: str | None = None
    scoring: str = "exact"
    preset: str | None = None
    exact: int = 0

    def orders(self, n: int, seed: tuple[int, ...]) -> Generator[Order, Scores, Any]:
        """Yields what to read next and is sent all that was read, as a plan does."""
        cached = self.scoring == "cached"
        if self.preset is not None:
            chosen = make_plan(
                self.preset, self.recipe, sampler=None, budget=Budget(), cached=cached, seed=seed
            )
            return (yield from chosen.orders(n, _uncounted))
        masks = self.sampler.sample(n, budget=None, rng=np.random.default_rng(seed)).masks
        yield Order(masks, cached)
        if self.exact:
            rng = np.random.default_rng(seed)
            yield Order(self.sampler.sample(n, budget=self.exact, rng=rng).masks, cached=False)
        return None


def _uncounted(masks: Masks, *, cached: bool) -> Ints:
    """Presets ask for no prices while their budget is automatic."""
    raise NotImplementedError


@dataclass(frozen=True)
class LogitPerToken:
    """ContextCite's target as it fits it: the log-odds divided by the number of output tokens."""

    name: ClassVar[str] = "logit-per-token"
    needs_kl: ClassVar[bool] = False
    reads_question: ClassVar[bool] = False
    support: ClassVar[int] = 1
    unit: ClassVar[str] = "nats of log-odds per output token"
    per_token: ClassVar[bool] = True

    def values(self, scores: Scores) -> Floats:
        """Log-odds of the output over its length."""
        return np.asarray(Logit().values(scores) / scores.logprob.shape[1])

    def token_values(self, scores: Scores) -> Floats:
        """Log-odds of each token."""
        return Logit().token_values(scores)


@dataclass(frozen=True)
class StandardisedLasso:
    """ContextCite's fit: Lasso on masks that are scaled to unit variance, targets as they are."""

    alpha: float = 0.01
    name: ClassVar[str] = "standardised-lasso"

    def fit(self, masks: Masks, targets: Floats, weights: Floats) -> Fit:
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
        return Fit(coef, np.asarray(solver.intercept_) - x.mean(0) @ coef)


def method(
    name: str,
    sampler: object,
    target: object,
    kernel: object,
    regressor: object,
    tokens_of: str | None = None,
    *,
    scoring: str = "exact",
    exact: int = 0,
) -> Method:
    """A method from names or objects."""
    recipe = Recipe.of(target, kernel, regressor)
    return Method(name, resolve_sampler(sampler), recipe, tokens_of, scoring, None, exact)


def preset(name: str) -> Method:
    """One of the presets of :func:`ropelime.explain`, as it stops by itself."""
    chosen = PRESETS[name]
    recipe = Recipe.of(chosen.target, chosen.kernel, chosen.regressor)
    sampler = resolve_sampler(chosen.sampler)
    return Method(name, sampler, recipe, scoring=chosen.scoring, preset=name)


def contextcite(masks: int = 64) -> Method:
    """ContextCite's estimator: masks with p = 1/2, log-odds, Lasso with alpha 0.01."""
    name = "contextcite" if masks == 64 else f"contextcite, {masks}"
    return method(name, f"bernoulli:{masks}", LogitPerToken(), "uniform", StandardisedLasso())


def budget(context: str) -> list[Method]:
    """The presets and everybody else at several budgets; in long contexts only what is affordable."""
    nll = ("nll", "uniform", "bayes-ridge")
    found = [
        preset("evidence"),
        method("singles", "leave-one-out", "evidence", "uniform", "wls", scoring="cached"),
        method("singles, answer only", "leave-one-out", "shift", "uniform", "wls", scoring="cached"),
        method("singles, kl", "leave-one-out", "kl", "uniform", "wls", scoring="cached"),
        preset("faithful"),
        contextcite(),
        method("exact, 64", "hadamard:64", *nll),
        method("cheap, 128", "hadamard:128", *nll, scoring="cached"),
    ]
    if context.isdecimal():
        return found
    found += [
        method("leave-one-out, exact", "leave-one-out", "evidence", "uniform", "wls"),
        method("leave-one-out", "leave-one-out", "kl", "rope-rwmd", "wls"),
    ]
    if context == "gold":
        found += [preset("paper")]
    found += [contextcite(masks) for masks in (8, 16, 32)]
    found += [method(f"exact, {k}", f"hadamard:{k}", *nll) for k in (16, 32, 76, 96)]
    found += [method(f"cheap, {k}", f"hadamard:{k}", *nll, scoring="cached") for k in (32, 64, 256)]
    found += [
        method(f"cheap, 128 + {k} exact", "hadamard:128", *nll, scoring="cached", exact=k)
        for k in (8, 16, 32, 64)
    ]
    return found


def hotpotqa(context: str) -> list[Method]:
    """The comparison of the paper, and the estimators of the peers beside it."""
    methods = [
        method("sparse-k", "sparse-k-best", "kl", "rope-rwmd", "wls"),
        method("sparse-k, LOO's tokens", "sparse-k-best", "kl", "rope-rwmd", "wls", "leave-one-out"),
        method("leave-one-out", "leave-one-out", "kl", "rope-rwmd", "wls"),
        method("leave-one-out, nll", "leave-one-out", "nll", "uniform", "wls"),
        contextcite(),
        method("shapley", "shapley:64", "nll", "uniform", "ridge"),
        method("one-at-a-time", "one-at-a-time", "nll", "uniform", "ridge"),
        preset("evidence"),
        method("answer only, cheap", "leave-one-out", "shift", "uniform", "wls", scoring="cached"),
        method("leave-one-out, cheap", "leave-one-out", "kl", "uniform", "wls", scoring="cached"),
        preset("faithful"),
    ]
    if context == "all":
        singles = "mixed:one-at-a-time+sparse-k/sqrt/M/kept/64"
        methods += [
            method("bernoulli, lasso-cv", "bernoulli:64", "nll", "uniform", "lasso-cv"),
            method("sparse-k √M, 80", "sparse-k:sqrt:M:kept:80", "nll", "uniform", "ridge"),
            method("sparse-k √M, 80, kernel", "sparse-k:sqrt:M:kept:80", "nll", "rope-rwmd", "ridge"),
            method("singles + sparse-k √M", singles, "nll", "uniform", "ridge"),
            method("singles + sparse-k √M, weak ridge", singles, "nll", "uniform", "ridge:0.2"),
            method("singles + sparse-k √M, strong ridge", singles, "nll", "uniform", "ridge:5"),
            method("singles + sparse-k √M, lasso-cv", singles, "nll", "uniform", "lasso-cv"),
            method("singles + sparse-k √M, kernel", singles, "nll", "rope-rwmd", "ridge"),
        ]
    return methods


def ablation() -> list[Method]:
    """Every choice of the method against its alternatives, on masks that are read once."""
    samplers = {
        "sparse-k-best": "sparse-k-best",
        "√M kept": "sparse-k:sqrt:M:kept:64",
        "√M removed": "sparse-k:sqrt:M:removed:64",
        "leave-one-out": "leave-one-out",
        "one-at-a-time": "one-at-a-time",
        "p = ½": "bernoulli:64",
        "singles + leave-one-out": "mixed:one-at-a-time+leave-one-out",
        "singles + √M kept": "mixed:one-at-a-time+sparse-k/sqrt/M/kept/48",
    }
    kernels = ["uniform", "rope-rwmd"]
    found = [
        method(" | ".join((name, target, kernel, regressor)), sampler, target, kernel, regressor)
        for name, sampler in samplers.items()
        for target in ("kl", "sqrt-kl", "nll")
        for kernel in kernels
        for regressor in ("wls", "ridge", "lasso")
    ]
    spaces = {
        "layer 0": "rope-rwmd:0",
        "layer ¼": "rope-rwmd:0.25",
        "layer ¾": "rope-rwmd:0.75",
        "last layer": "rope-rwmd:-1",
        "hidden states": "rope-rwmd:0.5:hidden",
        "raw phases": "rope-rwmd:0.5:key:raw",
        "mass by tokens": "rope-rwmd:0.5:key:relative:1.0:tokens",
        "tight": "rope-rwmd:0.5:key:relative:1.0:uniform:true",
    }
    found += [
        method(
            " | ".join((name, "kl", f"rope-rwmd, {space}", "wls")), samplers[name], "kl", kernel, "wls"
        )
        for space, kernel in spaces.items()
        for name in ("sparse-k-best", "√M removed", "p = ½")
    ]
    return found


def sweep() -> list[Method]:
    """The eighteen settings of Sparse-K, otherwise as in the paper."""
    return [method(spec, spec, "kl", "rope-rwmd", "wls") for spec in SPARSE_K_SETTINGS]


def mmlu() -> list[Method]:
    """Word attributions from sixty perturbations; gSMILE runs beside them."""
    return [
        method("rope-lime", "bernoulli:60", "kl", "rope-rwmd", "wls"),
        method("rope-lime, sqrt-kl", "bernoulli:60", "sqrt-kl", "rope-rwmd", "ridge"),
        method("rope-lime, nll", "bernoulli:60", "nll", "rope-rwmd", "ridge"),
        method("leave-one-out", "leave-one-out", "kl", "rope-rwmd", "wls"),
    ]
