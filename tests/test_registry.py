"""The resolver: a name, a name with parameters, a dictionary or an object gives the same strategy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ropelime.errors import InputError
from ropelime.method.kernels import KERNELS, Cosine, RopeRWMD, resolve_kernel
from ropelime.method.regression import (
    REGRESSORS,
    LinearFit,
    Regressor,
    Ridge,
    resolve_regressor,
)
from ropelime.method.samplers import SAMPLERS, Bernoulli, SparseK, resolve_sampler
from ropelime.method.targets import NLL, TARGETS, resolve_target
from ropelime.registry import describe
from ropelime.typing import Floats, Masks

Resolver = Callable[[object], object]
KINDS: list[tuple[Resolver, Mapping[str, Any]]] = [
    (resolve_sampler, SAMPLERS),
    (resolve_target, TARGETS),
    (resolve_kernel, KERNELS),
    (resolve_regressor, REGRESSORS),
]
EVERY = [(resolver, name) for resolver, registry in KINDS for name in registry]


@pytest.mark.parametrize(("resolver", "name"), EVERY)
def test_every_strategy_is_built_again_from_its_description(resolver: Resolver, name: str) -> None:
    strategy = resolver(name)
    entry = describe(strategy)
    assert entry["name"] == name
    assert resolver(entry) == strategy
    assert resolver(strategy) is strategy


@pytest.mark.parametrize(
    ("resolver", "spec", "expected"),
    [
        (resolve_sampler, "sparse-k:2sqrt:16k", SparseK("2sqrt", "16k")),
        (resolve_sampler, "sparse-k:7:M/2:removed", SparseK(7, "M/2", "removed")),
        (resolve_sampler, "bernoulli:32:0.3", Bernoulli(32, 0.3)),
        (resolve_sampler, {"name": "bernoulli", "p": 0.3}, Bernoulli(p=0.3)),
        (resolve_kernel, "cosine:0.5", Cosine(0.5)),
        (resolve_kernel, "rope-rwmd:-2:key:raw", RopeRWMD(-2, phase="raw")),
        (resolve_kernel, "rope-rwmd:9:key:raw:2:tokens", RopeRWMD(9, "key", "raw", 2, "tokens")),
        (resolve_kernel, {"name": "rope-rwmd", "tight": True}, RopeRWMD(tight=True)),
        (resolve_regressor, "ridge:1e-3", Ridge(0.001)),
        (resolve_target, NLL(), NLL()),
    ],
)  # fmt: skip
def test_parameters_follow_in_order(resolver: Resolver, spec: object, expected: object) -> None:
    assert resolver(spec) == expected


@pytest.mark.parametrize("resolver", [resolver for resolver, _ in KINDS])
@pytest.mark.parametrize("spec", [3, None, object(), Ridge], ids=["int", "None", "object", "class"])
def test_what_is_no_strategy_is_refused_with_the_known_names(resolver: Resolver, spec: object) -> None:
    with pytest.raises(InputError, match=r"must be a name or an object.*Known names: \w+"):
        resolver(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "rigde",
            "Unknown regressor 'rigde'. Did you mean 'ridge'. "
            "Known: bayes-ridge, lasso, lasso-cv, ridge, wls",
        ),
        ("rigde:2", "Did you mean 'ridge'"),
        ("", "Unknown regressor ''"),
        ({"alpha": 1}, "Unknown regressor None"),
        ("ridge:1:2", "Cannot parse regressor 'ridge:1:2'.*It takes alpha"),
        ("ridge:abc", "alpha of ridge must be above 0, not 'abc'"),
        ({"name": "ridge", "beta": 1}, "unexpected keyword argument 'beta'. It takes alpha"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_cure(spec: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_regressor(spec)


def test_an_object_of_the_callers_own_is_taken_and_described_by_its_class() -> None:
    class Mine(Regressor):
        def fit(self, masks: Masks, targets: Floats, weights: Floats) -> LinearFit:
            raise NotImplementedError

    mine = Mine()
    assert resolve_regressor(mine) is mine
    assert (mine.least_scores, mine.uses_control_variates) == (1, False), "declared with defaults"
    assert describe(mine) == {"name": "Mine"}
