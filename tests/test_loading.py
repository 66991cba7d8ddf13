"""Models from disk: loaded once, checked, and refused with a cause and a cure."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import byte_level, tiny_model
from ropelime import InputError, ModelError, load_surrogate
from ropelime import prompt as prompts
from ropelime.rope import RopeSpace
from ropelime.surrogate import Removal
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
