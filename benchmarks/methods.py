"""The methods that are compared: each is a set of options. To add one, add a line here."""

from __future__ import annotations

from typing import Any

from benchmarks.contextcite import LogitPerToken, StandardisedLasso
from benchmarks.method import Method, method, preset
from benchmarks.names import (
    CONTEXTCITE,
    EVIDENCE,
    FAITHFUL,
    INSTANT,
    LEAVE_ONE_OUT,
    LEAVE_ONE_OUT_CACHED,
    LEAVE_ONE_OUT_EXACT,
    PAPER,
    ROPE_LIME,
    SPARSE_K,
    SPARSE_K_EQUAL,
    cached,
    exact,
)
from ropelime.method.samplers import SPARSE_K_SETTINGS


def contextcite(masks: int = 64) -> Method:
    """ContextCite's estimator: masks with p = 1/2, log-odds, Lasso with alpha 0.01."""
    name = CONTEXTCITE if masks == 64 else f"{CONTEXTCITE}, {masks}"
    return method(name, f"bernoulli:{masks}", LogitPerToken(), "uniform", StandardisedLasso())


def budget(context: str) -> list[Method]:
    """The presets and the peers at several budgets; in long contexts only what is affordable."""
    loo = ("uniform", "wls")
    nll = ("nll", "uniform", "bayes-ridge")

    def hadamard(name: str, masks: int, **options: Any) -> Method:
        return method(name, f"hadamard:{masks}", *nll, **options)

    found = [
        preset(EVIDENCE),
        preset(INSTANT),
        method(LEAVE_ONE_OUT_CACHED, "leave-one-out", "evidence", *loo, scoring="cached"),
        _answer_only(),
        _cached_kl(),
        preset(FAITHFUL),
        contextcite(),
        hadamard(exact(64), 64),
        hadamard(cached(128), 128, scoring="cached"),
    ]
    if context.isdecimal():
        return found
    found += [
        method(LEAVE_ONE_OUT_EXACT, "leave-one-out", "evidence", *loo),
        method(LEAVE_ONE_OUT, "leave-one-out", "kl", "rope-rwmd", "wls"),
    ]
    if context == "gold":
        found += [preset(PAPER)]
    found += [contextcite(masks) for masks in (8, 16, 32)]
    found += [hadamard(exact(k), k) for k in (16, 32, 76, 96)]
    found += [hadamard(cached(k), k, scoring="cached") for k in (32, 64, 256)]
    found += [hadamard(cached(128, k), 128, scoring="cached", exact=k) for k in (8, 16, 32, 64)]
    return found


def _answer_only() -> Method:
    name = f"{LEAVE_ONE_OUT_CACHED}, answer only"
    return method(name, "leave-one-out", "shift", "uniform", "wls", scoring="cached")


def _cached_kl() -> Method:
    name = f"{LEAVE_ONE_OUT_CACHED}, kl"
    return method(name, "leave-one-out", "kl", "uniform", "wls", scoring="cached")


def hotpotqa(context: str) -> list[Method]:
    """The comparison of the paper, and the estimators of the peers."""
    paper = ("kl", "rope-rwmd", "wls")
    methods = [
        method(SPARSE_K, "sparse-k-best", *paper),
        method(SPARSE_K_EQUAL, "sparse-k-best", *paper, LEAVE_ONE_OUT),
        method(LEAVE_ONE_OUT, "leave-one-out", *paper),
        method("leave-one-out, nll", "leave-one-out", "nll", "uniform", "wls"),
        contextcite(),
        method("shapley", "shapley:64", "nll", "uniform", "ridge"),
        method("one-at-a-time", "one-at-a-time", "nll", "uniform", "ridge"),
        preset(EVIDENCE),
        preset(INSTANT),
        _answer_only(),
        _cached_kl(),
    ]
    if context == "all":
        sparse, mixed = "sparse-k:sqrt:M:kept:80", "mixed:one-at-a-time+sparse-k/sqrt/M/kept/64"
        name = "one-at-a-time + sparse-k √M"
        methods += [
            method("bernoulli, lasso-cv", "bernoulli:64", "nll", "uniform", "lasso-cv"),
            method("sparse-k √M, 80", sparse, "nll", "uniform", "ridge"),
            method("sparse-k √M, 80, kernel", sparse, "nll", "rope-rwmd", "ridge"),
            method(name, mixed, "nll", "uniform", "ridge"),
            method(f"{name}, weak ridge", mixed, "nll", "uniform", "ridge:0.2"),
            method(f"{name}, strong ridge", mixed, "nll", "uniform", "ridge:5"),
            method(f"{name}, lasso-cv", mixed, "nll", "uniform", "lasso-cv"),
            method(f"{name}, kernel", mixed, "nll", "rope-rwmd", "ridge"),
        ]
    return methods


def ablation() -> list[Method]:
    """Every choice of the method against its alternatives."""
    samplers = {
        "sparse-k-best": "sparse-k-best",
        "√M kept": "sparse-k:sqrt:M:kept:64",
        "√M removed": "sparse-k:sqrt:M:removed:64",
        "leave-one-out": "leave-one-out",
        "one-at-a-time": "one-at-a-time",
        "p = ½": "bernoulli:64",
        "one-at-a-time + leave-one-out": "mixed:one-at-a-time+leave-one-out",
        "one-at-a-time + √M kept": "mixed:one-at-a-time+sparse-k/sqrt/M/kept/48",
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
    """Word attributions from sixty perturbations, for the comparison with gSMILE."""
    return [
        method(ROPE_LIME, "bernoulli:60", "kl", "rope-rwmd", "wls"),
        method(f"{ROPE_LIME}, sqrt-kl", "bernoulli:60", "sqrt-kl", "rope-rwmd", "ridge"),
        method(f"{ROPE_LIME}, nll", "bernoulli:60", "nll", "rope-rwmd", "ridge"),
        method(LEAVE_ONE_OUT, "leave-one-out", "kl", "rope-rwmd", "wls"),
        preset(EVIDENCE),
        preset(INSTANT),
    ]
