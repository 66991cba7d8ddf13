"""Models from disk: loaded once, checked, and refused with a cause and a cure."""

from __future__ import annotations

import copy
import gc
import json
import time
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
import transformers

from conftest import byte_level, tiny_model
from ropelime import InputError, ModelError, load_surrogate
from ropelime import prompt as prompts
from ropelime import surrogate as surrogates
from ropelime.passes import Passes
from ropelime.rope import RopeSpace
from ropelime.surrogate import Removal, Surrogate, models
from ropelime.surrogate.local import LocalSurrogate

PROMPT = prompts.from_text("The Louvre is in Paris. It has a picture. Leonardo was the painter.")


def save(folder: Path, name: str = "llama") -> Path:
    tiny_model(name).model.save_pretrained(folder)
    byte_level("chatml").save_pretrained(folder)
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save(tmp_path / "model")


@pytest.mark.parametrize("name", ["llama", "gemma3", "phi", "gpt-j"])
def test_a_saved_model_reads_as_the_one_in_memory(tmp_path: Path, name: str) -> None:
    there = load_surrogate(str(save(tmp_path, name)), dtype="float32", device="cpu")
    here = LocalSurrogate(tiny_model(name).model, byte_level("chatml"))
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]], dtype=bool)
    a, b = (
        s.prepare(PROMPT, "sentence", "Leonardo", removal=Removal()).score(
            masks, kl=True, spaces=[RopeSpace()]
        )
        for s in (here, there)
    )
    np.testing.assert_allclose(a.logprob, b.logprob, atol=1e-6)
    np.testing.assert_allclose(a.distances[RopeSpace()], b.distances[RopeSpace()], atol=1e-5)


def test_the_same_arguments_give_the_same_object(saved: Path) -> None:
    first = load_surrogate(str(saved), dtype="float32")
    assert load_surrogate(str(saved), dtype="float32") is first
    assert load_surrogate(str(saved), dtype="bfloat16") is not first


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype_and_device_are_taken_as_given(saved: Path, dtype: str) -> None:
    described = load_surrogate(str(saved), dtype=dtype, device="cpu").describe()
    assert (described["dtype"], described["device"]) == (dtype, "cpu")


def test_dtype_and_device_are_chosen(saved: Path) -> None:
    described = load_surrogate(str(saved)).describe()
    assert described["dtype"] in ("float32", "bfloat16", "float16")
    assert described["name"] == str(saved)


def test_bfloat16_reads_nearly_the_same(saved: Path) -> None:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0]], dtype=bool)
    exact, rounded = (
        load_surrogate(str(saved), dtype=dtype, device="cpu")
        .prepare(PROMPT, "sentence", "Leonardo", removal=Removal())
        .score(masks, kl=True, spaces=[RopeSpace()])
        for dtype in ("float32", "bfloat16")
    )
    np.testing.assert_allclose(rounded.logprob, exact.logprob, atol=0.3)


@pytest.mark.parametrize("device", ["meat", "cuda:99"])
def test_a_device_that_is_not_there(saved: Path, device: str) -> None:
    with pytest.raises(InputError, match=rf"Device '{device}' cannot be used.*cpu, cuda, mps"):
        load_surrogate(str(saved), device=device)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.9])
def test_truncated_weights(saved: Path, part: float) -> None:
    weights = saved / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: int(part * len(content))])
    with pytest.raises(ModelError, match=f"{saved.name} could not be loaded.*fetch it again"):
        load_surrogate(str(saved))


def test_weights_that_are_not_there(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="could not be loaded"):
        load_surrogate(str(saved))


def test_a_file_that_lacks_some_weights(saved: Path) -> None:
    """transformers fills them with random numbers and goes on; an explanation must not."""
    from safetensors.torch import load_file, save_file

    weights = load_file(saved / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of .* 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load_surrogate(str(saved))


def test_a_config_for_other_weights(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    config["hidden_size"] *= 2
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        load_surrogate(str(saved))


def test_no_tokenizer(saved: Path) -> None:
    for file in saved.glob("*token*"):
        file.unlink()
    with pytest.raises(ModelError, match="could not be loaded"):
        load_surrogate(str(saved))


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64], ids=len
)
def test_a_corrupt_gguf_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"bad\.gguf"):
        load_surrogate(str(tmp_path / "bad.gguf"))


def test_a_hub_id_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # it is read on import
    start = time.perf_counter()
    with pytest.raises(ModelError) as error:
        load_surrogate("somebody/not-on-this-machine")
    assert time.perf_counter() - start < 5
    for word in ("somebody/not-on-this-machine", "local directory", ".gguf", "smollm2"):
        assert word in str(error.value)


def read(surrogate: Surrogate) -> Passes:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]], dtype=bool)
    scorer = surrogate.prepare(PROMPT, "sentence", "Leonardo", removal=Removal())
    return scorer.score(masks, kl=True, spaces=[RopeSpace(), RopeSpace(space="hidden")])


def assert_same(a: Passes, b: Passes, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(a.logprob, b.logprob, atol=atol)
    for space in a.distances:
        np.testing.assert_allclose(a.distances[space], b.distances[space], atol=atol)


@pytest.mark.parametrize("name", ["llama", "gemma2", "bloom"])
@pytest.mark.parametrize("away", ["nothing", "a layer and the head", "all but a layer"])
def test_a_model_that_accelerate_has_spread_out(tmp_path: Path, name: str, away: str) -> None:
    here = copy.deepcopy(tiny_model(name).model)
    there = copy.deepcopy(here)
    parts = [p for p, module in there.named_modules() if p and not list(module.children())]
    some = {part for part in parts if ".1." in part or part == "lm_head"}
    layer = {part for part in parts if ".1." in part}
    gone = {"nothing": set(), "a layer and the head": some, "all but a layer": {*parts} - layer}[away]
    places = {part: "disk" if part in gone else "cpu" for part in parts}
    accelerate.dispatch_model(there, places, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
    lost = [p for p, weight in there.named_parameters() if weight.device.type == "meta"]
    assert bool(lost) == (away != "nothing")
    a, b = (LocalSurrogate(model, byte_level("chatml")) for model in (here, there))
    assert b.device.type == "cpu"
    kinds = [RopeSpace(), RopeSpace(space="hidden")] if tiny_model(name).width else []
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]], dtype=bool)
    one, two = (
        s.prepare(PROMPT, "sentence", "Leonardo").score(masks, kl=True, spaces=kinds) for s in (a, b)
    )
    assert_same(one, two)


def test_a_model_over_all_that_is_there(saved: Path) -> None:
    spread = load_surrogate(str(saved), device="auto", dtype="float32")
    assert isinstance(spread, LocalSurrogate)
    assert_same(read(spread), read(load_surrogate(str(saved), device="cpu", dtype="float32")))


class Unmovable:
    """Stands for a model whose quantised weights cannot be moved or cast."""

    def to(self, *_: object) -> None:
        raise ValueError("`.to` is not supported for 4-bit models.")


@pytest.mark.parametrize(
    ("quantised", "device", "options"),
    [
        (True, "cpu", {"dtype": "auto", "device_map": "cpu"}),
        (True, "auto", {"dtype": "auto", "device_map": "auto"}),
        (False, "auto", {"dtype": torch.bfloat16, "device_map": "auto"}),
    ],
)
def test_what_transformers_is_asked_for(
    saved: Path,
    quantised: bool,
    device: str,
    options: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if quantised:
        config = json.loads((saved / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
        (saved / "config.json").write_text(json.dumps(config))
    asked: dict[str, object] = {}

    def from_pretrained(folder: str, **given: object) -> tuple[Unmovable, dict[str, list[str]]]:
        asked.update(given)
        return Unmovable(), {"missing_keys": []}

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    model, _ = models.load_files(str(saved), None, dtype="bfloat16", device=device)
    assert isinstance(model, Unmovable)
    assert {k: v for k, v in asked.items() if k != "output_loading_info"} == options


def quantisation(method: str) -> Any:
    """What transformers wants to be told of a way to quantise; skips where its library is missing."""
    if method == "torchao":
        library = pytest.importorskip("torchao.quantization", exc_type=ImportError)
        return transformers.TorchAoConfig(library.Int8WeightOnlyConfig())
    pytest.importorskip("bitsandbytes", exc_type=ImportError)
    pytest.importorskip("accelerate")
    return transformers.BitsAndBytesConfig(load_in_8bit=True)


@pytest.mark.filterwarnings("ignore")  # the libraries warn about themselves
@pytest.mark.parametrize(
    ("method", "named"), [("torchao", "torchao"), ("bitsandbytes", "bits_and_bytes")]
)
def test_a_quantised_checkpoint(saved: Path, tmp_path: Path, method: str, named: str) -> None:
    small = transformers.AutoModelForCausalLM.from_pretrained(
        saved, quantization_config=quantisation(method), dtype=torch.float32, device_map="cpu"
    )
    small.save_pretrained(tmp_path / "small")
    byte_level("chatml").save_pretrained(tmp_path / "small")
    loaded = load_surrogate(str(tmp_path / "small"), device="cpu")
    assert loaded.describe()["quantization"] == named
    assert loaded.describe()["dtype"] == "float32", "the checkpoint's own, not the chip's best"
    whole = load_surrogate(str(saved), device="cpu", dtype="float32")
    a, b = read(loaded), read(whole)
    assert np.abs(a.logprob - b.logprob).max() > 1e-4, "it is another model"
    np.testing.assert_allclose(a.logprob.sum(1), b.logprob.sum(1), atol=2.0)


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_left_while_a_model_is_loaded_and_then_as_before(collects: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with surrogates._garbage_left():
            assert not gc.isenabled()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
