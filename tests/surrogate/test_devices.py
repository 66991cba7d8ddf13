"""Models whose layers lie on several devices: two GPUs where there are two, and pretended ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import dispatch_model
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from conftest import byte_level, tiny_model
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.surrogate import ScoreRequest, rotary
from ropelime.surrogate.architecture import layers_of
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text import prompt as prompts
from scoring import prepare

PROMPT = prompts.from_text(
    "The Louvre is in Paris. It has a picture. Leonardo was the painter. He died."
)
MASKS = np.array([[1, 1, 1, 1], [0, 1, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0]], dtype=bool)
SPACES = [
    RopeSpace(layer=layer, space=space, phase=phase)
    for layer in (1, 2)
    for space in ("key", "hidden")
    for phase in ("raw", "relative")
]
MOVES = ("copy_", "to", "_to_copy")  # between devices
TAKES = ("index", "index_put_")  # places given on the CPU


class On(torch.Tensor):
    """A tensor of the CPU that says it is somewhere else, and meets none from another place."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor, device: torch.device) -> On:
        made: On = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=device,
        )
        made.held = real
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class Pretending(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors where they are asked for, as if there were such a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    name = func._overloadpacket.__name__
    leaves = tree_leaves((args, kwargs))
    question = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if name in TAKES:
        tensors = [t for t in tensors if t.device.type != "cpu" or t.is_floating_point()]
    met = {tensor.device for tensor in tensors if tensor.ndim}
    if len(met) > 1 and name not in MOVES:
        raise RuntimeError(f"{name} was given tensors of {', '.join(sorted(map(str, met)))}.")
    where = [*question, *(t.device for t in tensors if t.ndim), *(t.device for t in tensors)]
    made = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
    if func._schema.is_mutable:  # in place
        return args[0]
    if not where or where[0].type == "cpu":
        return made
    return tree_map(lambda x: On(x, where[0]) if isinstance(x, torch.Tensor) else x, made)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.held if isinstance(value, On) else value


class Placed(AlignDevicesHook):  # type: ignore[misc]
    """accelerate's hook on a module that lies where it should already."""

    def init_hook(self, module: Any) -> Any:
        return module


def places(model: Any, here: Any, there: Any) -> dict[str, Any]:
    """A device for every part of a model: all but the first layer and the head lie there."""
    layers = layers_of(model)
    stack = next(n for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList))
    inside = stack.rpartition(".")[0]
    parts = [n for n, m in model.named_modules() if n.rpartition(".")[0] in (inside, stack, "")]
    found = {n: here for n in parts if n not in ("", inside, stack)}
    for name in found:
        module = model.get_submodule(name)
        if module is model.get_output_embeddings() or module in layers[1:]:
            found[name] = there
    return found


@contextmanager
def pretended(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put a model on two devices that are not there."""
    # The only kind of device that torch passes tensors of around without a driver of it.
    here, there = torch.device("meta", 0), torch.device("meta", 1)
    with torch.inference_mode():  # as what will meet them
        for name, place in places(model, here, there).items():
            for module in model.get_submodule(name).modules():
                for key, weight in module._parameters.items():
                    if weight is not None:
                        module._parameters[key] = torch.nn.Parameter(On(weight.data, place), False)
                for key, buffer in module._buffers.items():
                    module._buffers[key] = None if buffer is None else On(buffer, place)
            add_hook_to_module(model.get_submodule(name), Placed(place))
    add_hook_to_module(model, Placed(here, io_same_device=True))

    def maker(make: Any) -> Any:
        def made(data: Any, *, device: Any = None, **options: Any) -> Any:
            found = make(data, **options)
            return found if device is None else found.to(device)

        return made

    with monkeypatch.context() as patch, Pretending():  # type: ignore[no-untyped-call]
        for name in ("as_tensor", "tensor"):  # the only ones that no mode is asked about
            patch.setattr(torch, name, maker(getattr(torch, name)))
        patch.setattr(torch, "autocast", lambda **_: nullcontext())  # which is off, but knows devices
        yield


def read(model: Any, rotary: bool) -> list[Scores]:
    """Two prompts exactly and one with its cache, packed together, in small chunks."""
    surrogate = LocalSurrogate(model, byte_level("chatml"))
    one, two = (prepare(surrogate, PROMPT, "sentence", said) for said in ("Leonardo", "Nobody"))
    spaces = tuple(SPACES) if rotary else ()
    requests = [ScoreRequest(one, MASKS, True, spaces), ScoreRequest(two, MASKS, True, spaces)]
    if surrogate.engine.supports_cached(512):
        requests.append(ScoreRequest(one, MASKS, True, spaces, True))
    return surrogate.score_all(requests, batch_tokens=64)


def assert_same(found: list[Scores], known: list[Scores], atol: float) -> None:
    for a, b in zip(found, known, strict=True):
        np.testing.assert_allclose(a.logprob, b.logprob, atol=atol)
        assert a.kl is not None
        assert b.kl is not None
        np.testing.assert_allclose(a.kl, b.kl, atol=atol)
        for space in b.distances:
            np.testing.assert_allclose(a.distances[space], b.distances[space], atol=atol, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "phi", "gpt-j", "gpt-neox", "bloom"])
def test_layers_on_devices_that_are_pretended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that meet are brought to one device first: layers, caches, scores and distances."""
    tiny = tiny_model(name)
    known = read(tiny.model, bool(tiny.width))
    spread = copy.deepcopy(tiny.model)
    with pretended(spread, monkeypatch):
        assert {str(w.device) for w in spread.parameters()} == {"meta:0", "meta:1"}
        found = read(spread, bool(tiny.width))
    assert_same(found, known, 1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-j", "bloom"])
def test_layers_on_the_disk(name: str, tmp_path: Path) -> None:
    """All but the first are fetched when they run, with all that is theirs."""
    tiny = tiny_model(name)
    spread = copy.deepcopy(tiny.model)
    parts = places(spread, "cpu", "disk")
    dispatch_model(spread, parts, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
    assert {w.device.type for w in spread.parameters()} == {"cpu", "meta"}
    found, known = (read(model, bool(tiny.width)) for model in (spread, tiny.model))
    assert_same(found, known, 1e-4)


def test_pretended_devices_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended(copy.deepcopy(tiny_model("llama").model), monkeypatch):
        a, b = (torch.arange(3.0, device=f"meta:{i}") for i in range(2))
        with pytest.raises(RuntimeError, match="add was given tensors of meta:0, meta:1"):
            a + b
        with pytest.raises(RuntimeError, match="given tensors of cpu, meta:1"):
            b * torch.arange(3.0)
        assert (a.to("meta:1") + b).cpu().tolist() == [0, 2, 4]


def test_frequencies_that_layers_keep_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models keep a copy in every layer: equal ones are one candidate, wherever they lie."""
    model = copy.deepcopy(tiny_model("llama").model)
    for layer in layers_of(model):
        layer.register_buffer("inv_freq", model.model.rotary_emb.inv_freq.clone())
    with pretended(model, monkeypatch):
        (found,) = rotary.candidates(model)
    assert found.device.type == "cpu"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gemma2", "phi", "gpt-j", "bloom"])
def test_layers_on_two_gpus(name: str, dtype: torch.dtype) -> None:
    """The same arithmetic on either GPU, so the same scores as on one."""
    tiny = tiny_model(name)
    whole = copy.deepcopy(tiny.model).to("cuda:0", dtype)
    spread = copy.deepcopy(tiny.model).to(dtype)
    dispatch_model(spread, places(spread, 0, 1))
    assert {w.device.index for w in spread.parameters()} == {0, 1}
    found, known = (read(model, bool(tiny.width)) for model in (spread, whole))
    assert_same(found, known, 1e-4 if dtype == torch.float32 else 0.1)
