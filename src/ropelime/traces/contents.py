"""The contents of a file as data: JSON, JSON lines, either of them compressed, or a zip of Inspect."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropelime.errors import InputError
from ropelime.traces.values import Problems

LARGEST = 512 << 20  # bytes, also of what is compressed: more is not one run
_MARKS = 20_000_000  # brackets and commas, each of which may take a hundred bytes of memory
_LINES = 2_000_000  # of JSON lines, each of which is parsed by itself
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UNPACKING = (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError, OSError)


@dataclass(frozen=True)
class Lines:
    """The records of JSON lines, each with its line."""

    lines: tuple[tuple[int, Any], ...]


def load(path: Path, problems: Problems) -> Any:
    """The data of a file; lines that cannot be read are noted as problems."""
    try:
        with path.open("rb") as file:
            raw = _all(file, path.name)
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Name a file.") from None
    except (OSError, ValueError) as error:  # or a NUL character
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{str(path)!r} cannot be read: {why}.") from None
    if raw.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = _all(packed, path.name)
        except _UNPACKING as error:
            raise InputError(f"{path.name} cannot be decompressed: {error}.") from None
    if raw.startswith(b"PK\x03\x04"):
        return _inspect_zip(raw, path.name, problems)
    return parsed(_decoded(raw, path.name), path.name, problems)


def _all(file: io.BufferedIOBase, name: str) -> bytes:
    raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise InputError(
            f"{name} has more than {LARGEST >> 20:,} MiB. Export one run, or fewer of them, at a time."
        )
    return raw


def _decoded(raw: bytes, name: str) -> str:
    encoding = next((codec for bom, codec in _BOMS if raw.startswith(bom)), "utf-8")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        what = f"({error.reason} at byte {error.start})"
        raise InputError(f"{name} is neither JSON nor JSON lines: it is not text {what}.") from None


def parsed(given: str, name: str, problems: Problems) -> Any:
    """The data of a text: one JSON value, or one on each line."""
    if not given.strip():
        raise InputError(f"{name} is empty.")
    if sum(map(given.count, "[{,")) > _MARKS:
        raise InputError(f"{name} has more than {_MARKS:,} values. Export fewer runs at a time.")
    try:
        return json.loads(given)
    except RecursionError:
        raise InputError(f"{name} is nested too deeply to be a trace.") from None
    except ValueError as error:
        whole = error
    if given.count("\n") > _LINES:
        raise InputError(f"{name} has more than {_LINES:,} lines. Export fewer runs at a time.")
    lines: list[tuple[int, Any]] = []
    failed: list[tuple[int, Exception]] = []
    for number, line in enumerate(given.splitlines(), start=1):
        if line.strip():
            try:
                lines.append((number, json.loads(line)))
            except (ValueError, RecursionError) as error:
                failed.append((number, error))
    records = tuple((number, line) for number, line in lines if line and isinstance(line, (dict, list)))
    if not records or len(failed) > 10 * len(records):  # JSON over several lines, of which one is wrong
        raise InputError(f"{name} is not JSON ({whole}). A trace is JSON or JSON lines.") from None
    for number, why in failed:
        problems.add(f"line {number}", f"not JSON ({why})")
    return Lines(records)


def _inspect_zip(raw: bytes, name: str, problems: Problems) -> Any:
    """A log of Inspect that is stored as a zip, as its JSON form has it."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as packed:
            files = [info for info in packed.infolist() if info.filename.endswith(".json")]
            if sum(info.file_size for info in files) > LARGEST:
                raise InputError(f"{name} unpacks to more than {LARGEST >> 20:,} MiB.")
            names = {info.filename for info in files}
            head = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
            if head is None:
                raise InputError(f"{name} is a zip, but not a log of Inspect: it has no header.json.")
            log = _member(packed, head, problems)
            samples = [
                _member(packed, info.filename, problems)
                for info in files
                if info.filename.startswith("samples/")
            ]
    except _UNPACKING as error:
        cure = "If Inspect can read it, convert it: inspect log convert --to json."
        raise InputError(f"{name} cannot be unpacked: {error}. {cure}") from None
    if not isinstance(log, dict):
        raise InputError(f"{name} is a zip, but not a log of Inspect: its header is not an object.")
    return {
        "eval": log.get("eval", {}),
        "plan": log.get("plan"),
        "samples": [sample for sample in samples if sample is not None],
    }


def _member(packed: zipfile.ZipFile, name: str, problems: Problems) -> Any:
    try:
        with packed.open(name) as file:
            raw = file.read(LARGEST)
            if sum(map(raw.count, (b"[", b"{", b","))) > _MARKS:
                raise ValueError(f"it has more than {_MARKS:,} values")
            return json.loads(raw)
    except (ValueError, RecursionError, *_UNPACKING) as error:
        problems.add(name, f"cannot be read: {error}")
        return None
