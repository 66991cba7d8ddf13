"""Layers that torch has compiled: the same readings, and the model's own layers when they are done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from conftest import byte_level, tiny_model
from ropelime import explain
from ropelime.batch import work
from ropelime.cli import main
from ropelime.errors import InputError, ModelError
from ropelime.surrogate import attention, load_surrogate, tiles
from ropelime.surrogate.local import LocalSurrogate

TEXT = "Paris is the capital. It lies on the Seine. The Louvre is there. Who knew?"

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def surrogate(model: Any, *, compiled: bool) -> LocalSurrogate:
    return LocalSurrogate(model, byte_level("chatml"), name="toy", compiled=compiled)


def stand_in(monkeypatch: pytest.MonkeyPatch, wrap: Wrap) -> None:
    """A compiler that takes no time."""
    monkeypatch.setattr(torch, "compile", lambda forward, **_: wrap(forward))


def normalized_weights(reader: LocalSurrogate) -> Any:
    return explain(
        TEXT, "Everybody.", surrogate=reader, preset="faithful", progress=False
    ).normalized_weights


def test_compiled_layers_are_taken_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def counted(forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            used.append(1)
            return forward(*arguments, **options)

        return call

    stand_in(monkeypatch, counted)
    model = deepcopy(tiny_model("llama").model)
    layers = model.model.layers
    own = layers[0].forward = partial(layers[0].forward)  # as accelerate's, which brings tensors to it
    plain = normalized_weights(surrogate(model, compiled=False))
    assert not used
    compiled = surrogate(model, compiled=True)
    used.clear()
    np.testing.assert_array_equal(normalized_weights(compiled), plain)
    assert used
    assert layers[0].forward is own
    assert not any("forward" in vars(layer) for layer in layers[1:])
    used.clear()
    normalized_weights(surrogate(model, compiled=False))
    assert not used


def test_the_last_layer_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given other rows to leave out in every chunk."""
    seen: list[Any] = []
    stand_in(monkeypatch, lambda forward: seen.append(forward) or forward)  # type: ignore[func-returns-value]
    model = tiny_model("llama").model
    surrogate(model, compiled=True)
    *layers, tried = seen
    assert [forward.__self__ for forward in layers] == list(model.model.layers[:-1])
    assert tried(torch.ones(1)) == 2


def test_an_explanation_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, lambda forward: forward)
    model = tiny_model("llama").model
    assert surrogate(model, compiled=True).describe()["compiled"] is True
    assert "compiled" not in surrogate(model, compiled=False).describe()


def broken(forward: Callable[..., Any]) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise TorchDynamoException("No working C++ compiler found\nand much more")

    return fail


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missed at once, and not in every line of a batch."""
    stand_in(monkeypatch, broken)
    with pytest.raises(ModelError, match=r"not be compiled: No working C\+\+ compiler found\. torch"):
        surrogate(tiny_model("llama").model, compiled=True)


def test_a_layer_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    model = deepcopy(tiny_model("llama").model)
    stand_in(monkeypatch, lambda forward: broken(forward) if hasattr(forward, "__self__") else forward)
    reader = surrogate(model, compiled=True)
    with pytest.raises(ModelError, match=r"not be compiled: No working C\+\+ compiler found\. torch"):
        normalized_weights(reader)
    assert not any("forward" in vars(layer) for layer in model.model.layers)


@pytest.mark.parametrize("count", [1, 7])
def test_layers_that_are_not_found(count: int) -> None:
    model = deepcopy(tiny_model("llama").model)
    model.config.num_hidden_layers = count
    with pytest.raises(ModelError, match="layers of toy were not found"):
        surrogate(model, compiled=True)


def test_a_model_that_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama").model
    monkeypatch.setattr(type(model), "_supports_attention_backend", False)
    with pytest.raises(ModelError, match="toy runs one masked prompt at a time"):
        surrogate(model, compiled=True)


def test_a_model_in_two_surrogates_runs_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, lambda forward: forward)
    one, other = (deepcopy(tiny_model("llama").model) for _ in range(2))
    assert surrogate(one, compiled=True).lock is surrogate(one, compiled=False).lock
    assert surrogate(one, compiled=False).lock is not surrogate(other, compiled=False).lock


def test_what_is_left_alone_is_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what was compiled for one surrogate would be compiled anew for the next."""
    stand_in(monkeypatch, lambda forward: forward)
    model = tiny_model("llama").model
    seen: list[Any] = []
    for _ in range(2):
        surrogate(model, compiled=True)
        seen.append([tiles.gate, tiles.multiply_by, ALL_ATTENTION_FUNCTIONS[attention.NAME]])
    assert seen[0] == seen[1]


def test_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    question: list[dict[str, Any]] = []
    monkeypatch.setattr(work, "load_surrogate", lambda name, **options: question.append(options))
    work.Settings(compiled=True).load()
    assert question[0]["compiled"] is True


def test_a_server_compiles_for_itself() -> None:
    with pytest.raises(InputError, match="leave out device, dtype and compiled"):
        load_surrogate("http://127.0.0.1:1/v1#m", compiled=True)


def test_on_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    question: list[bool] = []

    def load(name: str, **options: Any) -> LocalSurrogate:
        question.append(options["compiled"])
        return surrogate(tiny_model("llama").model, compiled=False)

    monkeypatch.setattr("ropelime.surrogate.load_surrogate", load)
    (tmp_path / "prompt").write_text(TEXT)
    told = ["explain", "--prompt", str(tmp_path / "prompt"), "--output", "Everybody.", "--quiet"]
    for more in ([], ["--compile"]):
        assert main([*told, *more]) == 0
    assert question == [False, True]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch gives up
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_true_compiler_gives_the_same() -> None:
    model = tiny_model("llama").model
    plain, compiled = (normalized_weights(surrogate(model, compiled=c)) for c in (False, True))
    np.testing.assert_allclose(compiled, plain, atol=1e-4)
