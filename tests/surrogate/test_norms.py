"""Norms by torch's fused function: the same states, and only for norms known to agree with it."""

from __future__ import annotations

import threading
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from conftest import byte_level, tiny_model
from ropelime.surrogate import norms
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text import prompt as prompts
from scoring import prepare

PROMPT = prompts.from_text("Paris is the capital. It lies on the Seine. The Louvre is there. Who knew?")


def model_of(name: str) -> Any:
    """A tiny model whose norms weigh their dimensions; models begin with ones."""
    model = deepcopy(tiny_model(name).model)
    torch.manual_seed(1)
    with torch.no_grad():
        for part in all_norms(model):
            part.weight.normal_(1.0, 0.3)
    return model


def all_norms(model: Any) -> list[Any]:
    return [part for part in model.modules() if "RMSNorm" in type(part).__name__]


def scorer(model: Any) -> LocalScorer:
    return prepare(LocalSurrogate(model, byte_level("chatml")), PROMPT, "sentence", "Everybody.")


def scoring(reader: LocalScorer, **options: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    n = reader.tokenized.n_features
    masks = np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])
    return reader.score(masks, kl=False, **options).logprob


def use_fused_norms(reader: LocalScorer) -> None:
    """As on a GPU."""
    reader.surrogate.engine._norms = norms.plain_norms(reader.surrogate.model)


def record(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """The norms that a function of the module is called with."""
    own, calls = getattr(norms, name), []

    def call(norm: Any, *others: Any) -> Any:
        calls.append(norm)
        return own(norm, *others)

    monkeypatch.setattr(norms, name, call)
    return calls


def state(model: Any) -> list[tuple[type, list[str]]]:
    """The class and the attributes of every module."""
    return [(type(part), list(vars(part))) for part in model.modules()]


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_torch_gives_what_the_norm_gives(name: str, dtype: torch.dtype) -> None:
    model = model_of(name).to(dtype)
    found = norms.plain_norms(model)
    assert found == all_norms(model)
    for part in found:
        states = torch.randn(5, len(part.weight), dtype=dtype)
        expected = part(states)
        with torch.inference_mode(), norms.fused_norms([part]):
            made = part(states)
        far = 1e-5 if dtype == torch.float32 else 0.02
        torch.testing.assert_close(made, expected, atol=far, rtol=far)


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_norms_that_add_one_to_their_weights_are_left_alone(name: str) -> None:
    model = tiny_model(name).model
    assert all_norms(model)
    assert not norms.plain_norms(model)


def test_so_are_those_that_somebody_else_runs() -> None:
    model = model_of("llama")
    one, *others = all_norms(model)
    found = norms.plain_norms(model)
    own = one.forward = one.forward
    assert norms.plain_norms(model) == others
    with norms.fused_norms(found):  # found before somebody changed one
        assert one.forward is own
        assert all("forward" in vars(part) for part in others)
    assert one.forward is own


class Watcher:
    """Somebody whose hooks hold what cannot be copied."""

    def __init__(self) -> None:
        self.lock, self.seen = threading.Lock(), 0

    def look(self, *_: Any) -> None:
        self.seen += 1


def test_hooks_are_not_told_of_what_is_tried() -> None:
    model = model_of("llama")
    watcher = Watcher()
    for part in all_norms(model):
        part.register_forward_hook(watcher.look)
    reader = scorer(model)
    watcher.seen = 0  # the check at loading has run the model
    use_fused_norms(reader)
    assert norms.plain_norms(model) == all_norms(model)
    assert not watcher.seen
    scoring(reader)
    assert watcher.seen


def test_norms_with_hooks_run_as_they_are() -> None:
    model = model_of("llama")
    one, other, *_ = all_norms(model)
    handle = one.register_forward_hook(lambda *_: None)
    with norms.fused_norms([one, other]):
        assert "forward" not in vars(one)
        assert "forward" in vars(other)
    handle.remove()
    with norms.fused_norms([one]):
        assert "forward" in vars(one)


def test_a_kernel_that_squares_in_half_precision_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the first releases of torch that had one."""

    def coarse(states: torch.Tensor, shape: Any, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + eps) * weight

    monkeypatch.setattr(torch.nn.functional, "rms_norm", coarse)
    model = model_of("llama")
    assert norms.plain_norms(model)
    assert not norms.plain_norms(model.to(torch.float16))


@pytest.mark.parametrize("fault", ["another weight", "another argument"])
def test_norms_that_are_more_than_that_are_left_alone(fault: str) -> None:
    class OtherRMSNorm(type(all_norms(model_of("llama"))[0])):  # type: ignore[misc]
        def forward(self, states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = super().forward(states) * gate
            return made

    part = all_norms(model_of("llama"))[0]
    if fault == "another weight":
        part.bias = torch.nn.Parameter(torch.zeros(len(part.weight)))
    else:
        part.__class__ = OtherRMSNorm
    assert not norms.plain_norms(torch.nn.Sequential(part))


def test_other_types_than_the_weights_run_as_they_did() -> None:
    part = all_norms(model_of("llama"))[0]
    states = torch.randn(5, len(part.weight), dtype=torch.bfloat16)
    expected = part(states)
    with norms.fused_norms([part]):
        made = part(states)
    assert made.dtype == expected.dtype
    assert torch.equal(made, expected)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_scores_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = scorer(model_of(name))
    own = scoring(reader)
    calls = record(monkeypatch, "fused_norm")
    np.testing.assert_array_equal(scoring(reader), own)
    assert not calls, "on a CPU norms run as they are"
    use_fused_norms(reader)
    calls.clear()  # those of the trials
    np.testing.assert_allclose(scoring(reader), own, atol=1e-5)
    assert set(calls) == set(all_norms(reader.surrogate.model))


def test_nothing_is_tried_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "_agrees", lambda norm: pytest.fail("was tried"))
    scoring(scorer(model_of("llama")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="norms are fused on GPUs only")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_are_fused_on_a_gpu(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = scorer(model_of("llama").to("cuda", dtype))
    calls = record(monkeypatch, "fused_norm")
    made = scoring(reader)
    assert set(calls) == set(all_norms(reader.surrogate.model))
    reader.surrogate.engine._norms = []
    np.testing.assert_allclose(made, scoring(reader), atol=1e-4 if dtype == torch.float32 else 0.2)


def test_a_model_is_left_as_it_was() -> None:
    model = model_of("llama")
    reader = scorer(model)
    use_fused_norms(reader)
    before = state(model)
    seen: list[Any] = []

    def stop(done: int, total: int) -> None:
        seen.extend(state(model))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scoring(reader, progress=stop)
    assert seen != before
    assert [kind for kind, _ in seen] == [kind for kind, _ in before]
    assert state(model) == before
    scoring(reader)
    assert state(model) == before


def test_draws_of_the_user_stay_as_they_are() -> None:
    model = model_of("llama")
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    assert norms.plain_norms(model)
    assert torch.equal(torch.randn(3), expected)
