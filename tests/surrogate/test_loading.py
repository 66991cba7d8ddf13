"""Models from disk: loaded once, checked, and refused with a cause and a cure."""

from __future__ import annotations

import copy
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch
import transformers

from benchmarks.generation import LocalGenerator
from benchmarks.hardware import Size
from benchmarks.loop import Loop
from conftest import byte_level, tiny_model
from ropelime import InputError, ModelError, load_surrogate
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.surrogate import Ablation, Surrogate, checkpoints, loading
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text import prompt as prompts
from scoring import prepare

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
        prepare(s, PROMPT, "sentence", "Leonardo", ablation=Ablation()).score(
            masks, kl=True, spaces=[RopeSpace()]
        )
        for s in (here, there)
    )
    np.testing.assert_allclose(a.logprob, b.logprob, atol=1e-6)
    np.testing.assert_allclose(a.distances[RopeSpace()], b.distances[RopeSpace()], atol=1e-5)


def test_loading_in_two_threads_leaves_the_terminal_as_it_was() -> None:
    """What is printed is put aside for the process: the second must not take that for the terminal."""
    out, inside = sys.stdout, threading.Event()

    def load(wait: float) -> None:
        with checkpoints.quietly():
            inside.set()
            time.sleep(wait)

    first = threading.Thread(target=load, args=[0.05])
    first.start()
    inside.wait()
    load(0.1)
    first.join()
    assert sys.stdout is out


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


def test_bfloat16_scores_nearly_the_same(saved: Path) -> None:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0]], dtype=bool)
    exact, rounded = (
        prepare(
            load_surrogate(str(saved), dtype=dtype, device="cpu"),
            PROMPT,
            "sentence",
            "Leonardo",
            ablation=Ablation(),
        ).score(masks, kl=True, spaces=[RopeSpace()])
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
    """transformers fills them with random numbers and continues; an explanation must not."""
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
    called: list[Any] = []

    def connect(_: socket.socket, address: Any) -> None:
        called.append(address)
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(ModelError) as error:
        load_surrogate("somebody/not-on-this-machine")
    assert not called, "nothing is waited for"
    for word in ("somebody/not-on-this-machine", "local directory", ".gguf", "smollm2"):
        assert word in str(error.value)


def read(surrogate: Surrogate) -> Scores:
    masks = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 0]], dtype=bool)
    scorer = prepare(surrogate, PROMPT, "sentence", "Leonardo", ablation=Ablation())
    return scorer.score(masks, kl=True, spaces=[RopeSpace(), RopeSpace(space="hidden")])


def assert_same(a: Scores, b: Scores, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(a.logprob, b.logprob, atol=atol)
    for space in a.distances:
        np.testing.assert_allclose(a.distances[space], b.distances[space], atol=atol)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-j", "bloom"])
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
    cached = [False, True] if a.engine.supports_cached(512) else [False]
    for how in cached:
        one, two = (
            prepare(s, PROMPT, "sentence", "Leonardo").score(masks, kl=True, spaces=kinds, cached=how)
            for s in (a, b)
        )
        assert_same(one, two)
    words, same = (LocalGenerator(s).embed("Paris is") for s in (a, b))
    np.testing.assert_array_equal(words, same)


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
        described_as(saved, {"quant_method": "bitsandbytes", "load_in_4bit": True})
    question: dict[str, object] = {}

    def from_pretrained(folder: str, **given: object) -> tuple[Unmovable, dict[str, list[str]]]:
        question.update(given)
        return Unmovable(), {"missing_keys": []}

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    model, _ = checkpoints.load_files(str(saved), None, dtype="bfloat16", device=device)
    assert isinstance(model, Unmovable)
    always = {"output_loading_info": True, "trust_remote_code": False, "use_safetensors": True}
    assert question == {**options, **always}


def quantise(method: str, saved: Path, into: Path) -> None:
    """Save a model quantised; skips where the library of the method is missing."""
    if method in ("gptq", "awq"):
        pytest.importorskip("gptqmodel", exc_type=ImportError)
        if method == "gptq":
            pytest.importorskip("optimum")
        elif checkpoints.transformers_release() == "4":
            pytest.skip("transformers 4 reads AWQ with autoawq, which runs on GPUs")
        packed_by_hand(method, saved, into)
        return
    if method == "torchao":
        if checkpoints.transformers_release() == "4":
            pytest.skip("transformers 4 saves such weights as pickles only")
        library = pytest.importorskip("torchao.quantization", exc_type=ImportError)
        how = transformers.TorchAoConfig(library.Int8WeightOnlyConfig())
    else:
        pytest.importorskip("bitsandbytes", exc_type=ImportError)
        how = transformers.BitsAndBytesConfig(**{f"load_in_{method.partition(' ')[2]}": True})
    small = transformers.AutoModelForCausalLM.from_pretrained(
        saved, quantization_config=how, dtype=torch.float32, device_map="cpu"
    )
    small.save_pretrained(into)
    byte_level("chatml").save_pretrained(into)


def packed_by_hand(method: str, saved: Path, into: Path, *, group: int = 32) -> None:
    """Write a checkpoint of GPTQ or AWQ, and round the saved model to what it stands for."""
    from safetensors.torch import load_file, save_file

    order = [0, 2, 4, 6, 1, 3, 5, 7] if method == "awq" else [*range(8)]

    def pack(values: torch.Tensor, axis: int) -> torch.Tensor:
        """Eight numbers of four bits in every word."""
        last = values.long().movedim(axis, -1)
        eight = last.reshape(*last.shape[:-1], -1, 8)[..., order]
        words: torch.Tensor = (eight << (4 * torch.arange(8))).sum(-1)
        return words.to(torch.int32).movedim(-1, axis).contiguous()

    shutil.copytree(saved, into)
    rounded = load_file(saved / "model.safetensors")
    weights = dict(rounded)
    for name in [name for name in weights if "_proj" in name]:
        weight = weights.pop(name)
        whole = weight.T.reshape(-1, group, len(weight))  # (groups, group, out)
        low, high = whole.amin(1, keepdim=True), whole.amax(1, keepdim=True)
        scale = (high - low) / 15
        zero = (-low / scale).round()
        steps = (whole / scale + zero).round().clamp(0, 15)
        rounded[name] = ((steps - zero) * scale).flatten(0, 1).T.contiguous()
        small = steps.flatten(0, 1)
        at = name.removesuffix("weight")
        weights[at + "scales"] = scale[:, 0].half()
        if method == "gptq":  # whose files hold zeros less one
            weights[at + "qzeros"] = pack(zero[:, 0] - 1, 1)
            weights[at + "g_idx"] = (torch.arange(len(small)) // group).int()
        else:
            weights[at + "qzeros"] = pack(zero[:, 0], 1)
        weights[at + "qweight"] = pack(small, 0 if method == "gptq" else 1)
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    save_file(rounded, saved / "model.safetensors", metadata={"format": "pt"})
    # A kernel that is not compiled first.
    kinds: dict[str, dict[str, object]] = {
        "gptq": {"desc_act": False, "sym": False, "backend": "gptq_torch"},
        "awq": {"zero_point": True, "version": "gemm", "backend": "torch_awq"},
    }
    described_as(into, {"quant_method": method, "bits": 4, "group_size": group, **kinds[method]})


def described_as(folder: Path, quantised: dict[str, object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantised}))


@pytest.mark.filterwarnings("ignore")  # the libraries warn about themselves
@pytest.mark.parametrize(
    ("method", "apart", "packing"),
    [
        ("torchao", 2.0, 1e-4),
        ("bitsandbytes 4bit", 6.0, 1e-4),
        ("bitsandbytes 8bit", 2.0, 0.2),  # its outliers are those of all tokens that are run at once
        ("gptq", 0.1, 1e-4),
        ("awq", 0.1, 1e-4),
    ],
)
def test_a_quantised_checkpoint(
    tmp_path: Path, method: str, apart: float, packing: float, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model("llama", hidden_size=64).model.save_pretrained(tmp_path / "whole")
    byte_level("chatml").save_pretrained(tmp_path / "whole")
    quantise(method, tmp_path / "whole", tmp_path / "small")
    capsys.readouterr()
    loaded = load_surrogate(str(tmp_path / "small"), device="cpu")
    assert isinstance(loaded, LocalSurrogate)
    assert capsys.readouterr().out == "", "results go there"
    assert loaded.describe()["quantization"] == method.partition(" ")[0]
    assert loaded.describe()["dtype"] == "float32", "the checkpoint's own, not the chip's best"
    whole = load_surrogate(str(tmp_path / "whole"), device="cpu", dtype="float32")
    assert isinstance(whole, LocalSurrogate)
    assert Size.of(loaded.model) == Size.of(whole.model), "however the weights are packed"
    a, b = read(loaded), read(whole)
    assert np.abs(a.logprob - b.logprob).max() > 1e-4, "it is another model"
    np.testing.assert_allclose(a.logprob.sum(1), b.logprob.sum(1), atol=apart)
    scorer = prepare(loaded, PROMPT, "sentence", "Leonardo", ablation=Ablation())
    singly = Loop(loaded.model, scorer, everywhere=True).score(a.masks)
    np.testing.assert_allclose(a.logprob, singly, atol=packing)


@pytest.mark.parametrize(
    ("method", "install"),
    [
        ("gptq", "pip install gptqmodel optimum"),
        ("awq", "pip install (gptqmodel|autoawq)"),
        ("bitsandbytes", "pip install bitsandbytes"),
        ("torchao", "pip install torchao"),
    ],
)
def test_a_quantised_checkpoint_without_the_library_that_reads_it(
    saved: Path, method: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    described_as(saved, {"quant_method": method})

    error: Exception = ImportError("Some name is not there.")

    def from_pretrained(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(checkpoints, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=rf"is quantised by {method}, .*: {install}\. Or .*\.gguf"):
        load_surrogate(str(saved))
    monkeypatch.setattr(checkpoints, "find_spec", lambda module: module)
    with pytest.raises(
        ModelError, match=r"fit together \(Some name .*\): pip install -U transformers "
    ):
        load_surrogate(str(saved))
    error = ValueError("Some size is wrong.")
    with pytest.raises(ModelError, match=r"could not be loaded: Some size is wrong"):
        load_surrogate(str(saved))


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_left_while_a_model_is_loaded_and_then_as_before(collects: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with loading._without_garbage_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200000 100000\n", 2), ("150000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 8)],
)
def test_no_more_threads_than_the_container_has(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    assert loading.limit_threads(8, quota=quota) == expected
    assert loading.limit_threads(1, quota=quota) == 1
    assert loading.limit_threads(8, quota=tmp_path / "none") == 8


def test_a_number_of_threads_that_the_user_has_set_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000")
    assert loading.limit_threads(8, quota=quota) == 8


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_idle_threads_yield_unless_the_user_has_decided(given: dict[str, str], expected: str) -> None:
    code = (
        "import os; from ropelime.surrogate.loading import yield_cores; yield_cores(); "
        "print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    unset = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=unset | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


# Nothing that an author wrote is run.

_SPY = "from pathlib import Path\nPath({marker!r}).touch()\n"
_CODE = {
    "config": _SPY
    + "from transformers import LlamaConfig\nclass C(LlamaConfig):\n    model_type = 'own'\n",
    "model": _SPY + "from transformers import LlamaForCausalLM as M\n",
    "tokenizer": _SPY + "from transformers import PreTrainedTokenizerFast as T\n",
}


def _with_code(folder: Path, marker: Path, part: str) -> None:
    """Let a saved model bring code for one of its parts."""
    (folder / "code.py").write_text(_CODE[part].format(marker=str(marker)))
    name = "tokenizer_config.json" if part == "tokenizer" else "config.json"
    settings = json.loads((folder / name).read_text())
    if part == "config":
        settings |= {"model_type": "own", "auto_map": {"AutoConfig": "code.C"}}
    elif part == "model":
        settings |= {"auto_map": {"AutoModelForCausalLM": "code.M"}}
    else:
        settings |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "code.T"]}}
    (folder / name).write_text(json.dumps(settings))


@pytest.mark.parametrize("part", ["config", "model", "tokenizer"])
def test_code_of_an_author_is_never_run_and_nobody_is_asked(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    asked: list[str] = []

    def agree(text: str = "") -> str:
        asked.append(text)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    marker = tmp_path / "ran"
    _with_code(saved, marker, part)
    if part == "model":
        load_surrogate(str(saved), device="cpu")  # by the class that transformers has
    else:
        with pytest.raises(ModelError, match="needs code that does not come with transformers"):
            load_surrogate(str(saved), device="cpu")
    assert not marker.exists()
    assert not asked


def test_attention_from_the_hub_is_refused(saved: Path) -> None:
    settings = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**settings, "_attn_implementation": "some/kernel"}))
    with pytest.raises(ModelError, match="its config asks for some/kernel"):
        load_surrogate(str(saved), device="cpu")


def test_pickled_weights_are_read_only_if_the_user_says_so(saved: Path) -> None:
    weights = saved / "pytorch_model.bin"
    torch.save(tiny_model("llama").model.state_dict(), weights)
    (saved / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*allow_pickle=True.*--allow-pickle"):
        load_surrogate(str(saved), device="cpu", dtype="float32")
    there = load_surrogate(str(saved), device="cpu", dtype="float32", allow_pickle=True)
    here = LocalSurrogate(tiny_model("llama").model, byte_level("chatml"))
    masks = np.array([[1, 1, 1], [0, 1, 1]], dtype=bool)
    a, b = (prepare(s, PROMPT, "sentence", "Leonardo").score(masks, kl=False) for s in (here, there))
    np.testing.assert_allclose(a.logprob, b.logprob, atol=1e-6)


def test_pickled_weights_are_not_even_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[list[str]] = []

    def snapshot_download(_: str, *, allow_patterns: list[str]) -> str:
        wanted.append(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match=r"some/model has no \.safetensors file"):
        checkpoints.fetch_from_hub("some/model")
    checkpoints.fetch_from_hub("some/model", allow_pickle=True)
    assert [any(pattern == "*.bin" for pattern in each) for each in wanted] == [False, False, True]
    (tmp_path / "model.safetensors").touch()
    checkpoints.fetch_from_hub("some/model", allow_pickle=True)
    assert "*.bin" not in wanted[-1]


def test_a_check_is_kept_beside_the_models(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "cache_folder", lambda: tmp_path / "cache")
    load_surrogate(str(saved), device="cpu", dtype="float32")
    assert len(list((tmp_path / "cache" / "checks").iterdir())) == 1
