"""Weights laid out for matrix tiles: the same products, only while a run needs them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from conftest import byte_level, tiny_model
from ropelime.surrogate import attention, tiles
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text import prompt as prompts
from scoring import prepare

PROMPT = prompts.from_text("Paris is the capital. It lies on the Seine. The Louvre is there. Who knew?")

pytestmark = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="needs a processor that knows bfloat16"
)


@pytest.fixture(autouse=True)
def processor_with_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All that is done for tiles, on a processor that may have none: slower, and as right."""
    for module in (attention, tiles):
        monkeypatch.setattr(module, "has_tiles", lambda: True)
    monkeypatch.setattr(tiles, "_PAYS_FROM", 1)
    tiles.can_lay_out.cache_clear()
    yield
    monkeypatch.undo()
    tiles.can_lay_out.cache_clear()


def scorer(name: str, dtype: torch.dtype) -> LocalScorer:
    model = deepcopy(tiny_model(name).model).to(dtype)
    return prepare(LocalSurrogate(model, byte_level("chatml")), PROMPT, "sentence", "Everybody.")


def scoring(reader: LocalScorer, **options: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    n = reader.tokenized.n_features
    masks = np.concatenate([np.ones((1, n), bool), ~np.eye(n, dtype=bool)])
    return reader.score(masks, kl=False, **options).logprob


def linears(reader: LocalScorer) -> list[Any]:
    model = reader.surrogate.model
    return [part for part in model.modules() if type(part) is torch.nn.Linear]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_a_linear_layer_laid_out_is_the_same(bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    part = torch.nn.Linear(48, 80, bias=bias, dtype=torch.bfloat16)
    states = torch.randn(1, rows, 48, dtype=torch.bfloat16)
    assert tiles.can_lay_out()
    with torch.inference_mode():
        made = tiles.multiply(states, tiles.lay_out(part.weight), part.bias)
        torch.testing.assert_close(made, part(states), atol=0.02, rtol=0.02)


def test_draws_of_the_user_stay_as_they_are() -> None:
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    assert tiles.can_lay_out()
    assert torch.equal(torch.randn(3), expected)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("cached", [False, True])
def test_readings_are_the_same_but_for_rounding(
    name: str, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = scoring(scorer(name, torch.float32), cached=cached)
    tiled = scoring(scorer(name, torch.bfloat16), cached=cached)
    for module in (attention, tiles):
        monkeypatch.setattr(module, "has_tiles", lambda: False)
    tiles.can_lay_out.cache_clear()
    plain = scoring(scorer(name, torch.bfloat16), cached=cached)
    assert abs(tiled - exact).max() <= 2 * abs(plain - exact).max() + 1e-3


@pytest.mark.parametrize(
    ("name", "runs_gated"), [("llama", True), ("qwen2", True), ("gemma2", False), ("phi", False)]
)
def test_gated_parts_are_those_that_give_the_same(name: str, runs_gated: bool) -> None:
    """Not where the gate is another function, and not where there is none."""
    model = deepcopy(tiny_model(name).model).to(torch.bfloat16)
    exact = dict(deepcopy(model).float().named_modules())
    own = [type(part) for part in model.modules()]
    tiled = tiles.Tiled(model)
    for _ in range(2):  # found out, then known
        with torch.inference_mode(), tiled(1):
            gated = {name: part for name, part in model.named_modules() if tiled._gated.get(part)}
            assert len(gated) == (model.config.num_hidden_layers if runs_gated else 0)
            for place, part in gated.items():
                states = torch.randn(1, 6, part.gate_proj.in_features, dtype=torch.bfloat16)
                expected = exact[place](states.float())
                torch.testing.assert_close(part(states).float(), expected, atol=0.1, rtol=0.05)
        assert [type(part) for part in model.modules()] == own


def test_a_gated_part_that_is_watched_runs_as_it_does() -> None:
    reader = scorer("llama", torch.bfloat16)
    first = scoring(reader)
    seen: list[int] = []
    part = reader.surrogate.model.model.layers[0].mlp.up_proj
    handle = part.register_forward_hook(lambda *_: seen.append(1))
    np.testing.assert_allclose(scoring(reader), first, atol=0.1)
    assert seen
    handle.remove()
    seen.clear()
    np.testing.assert_array_equal(scoring(reader), first)
    assert not seen


@pytest.mark.parametrize("name", ["gate_proj", "up_proj", "down_proj", "act_fn"])
def test_whoever_watched_at_first_is_forgotten_when_they_leave(name: str) -> None:
    """And is told of what is run, not of what is tried."""
    reader, fresh = (scorer("llama", torch.bfloat16) for _ in range(2))
    sizes: list[int] = []
    part = getattr(reader.surrogate.model.model.layers[0].mlp, name)
    handle = part.register_forward_hook(lambda _, states, made: sizes.append(made.shape[1]))
    scoring(reader)
    assert sizes
    assert min(sizes) > 8
    handle.remove()
    np.testing.assert_array_equal(scoring(reader), scoring(fresh))


@pytest.mark.parametrize("other", ["limit", "gelu"])
def test_gates_that_are_nearly_the_same_are_not(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = deepcopy(tiny_model("llama").model).to(torch.bfloat16)
    kind = type(model.model.layers[0].mlp)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate_proj.weight.mul_(0.02)  # gates so small that all of them look alike
            if other == "gelu":
                layer.mlp.act_fn = torch.nn.GELU()

    def limited(part: Any, states: torch.Tensor) -> torch.Tensor:
        opened = part.act_fn(part.gate_proj(states).clamp(max=7)) * part.up_proj(states)
        made: torch.Tensor = part.down_proj(opened)
        return made

    if other == "limit":
        monkeypatch.setattr(kind, "forward", limited)
    tiled = tiles.Tiled(model)
    with torch.inference_mode(), tiled(1):
        assert list(tiled._gated.values()) == [False] * model.config.num_hidden_layers


def test_a_model_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = scorer("llama", torch.bfloat16)
    used: list[Any] = []
    lay_out = tiles.lay_out

    def counted(weight: torch.Tensor) -> torch.Tensor:
        used.append(weight)
        return lay_out(weight)

    monkeypatch.setattr(tiles, "lay_out", counted)
    own = linears(reader)
    first = scoring(reader)
    assert used
    assert linears(reader) == own
    used.clear()
    np.testing.assert_array_equal(scoring(reader), first)
    assert not used  # laid out once

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scoring(reader, progress=stop)
    assert linears(reader) == own
    assert not any("laid_out" in vars(part) for part in own)


@pytest.mark.parametrize("hidden", [False, True])
def test_changed_weights_are_noticed(hidden: bool) -> None:
    """Behind the back of torch's own count of changes too."""
    reader = scorer("llama", torch.bfloat16)
    before = scoring(reader)
    with torch.no_grad():
        for part in linears(reader):
            (part.weight.data if hidden else part.weight).mul_(1.5)
    after = scoring(reader)
    assert abs(after - before).max() > 0.01
    fresh = scorer("llama", torch.bfloat16)
    with torch.no_grad():
        for part in linears(fresh):
            part.weight.mul_(1.5)
    np.testing.assert_array_equal(after, scoring(fresh))


@pytest.mark.parametrize("why", ["float32", "short run", "too many weights", "hooked"])
def test_what_is_not_laid_out(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = scorer("llama", torch.float32 if why == "float32" else torch.bfloat16)
    if why == "short run":
        monkeypatch.setattr(tiles, "_PAYS_FROM", 10_000)
    if why == "too many weights":
        monkeypatch.setattr(tiles, "_MOST_BYTES", 1_000)
    if why == "hooked":
        for part in linears(reader):
            part.forward = part.forward
    monkeypatch.setattr(tiles, "lay_out", lambda weight: pytest.fail("was laid out"))
    monkeypatch.setattr(tiles, "can_lay_out", lambda: True)
    scoring(reader)
    assert all(("forward" in vars(part)) == (why == "hooked") for part in linears(reader))
