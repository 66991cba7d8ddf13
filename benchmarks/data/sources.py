"""Where data come from: a file of the official format, or the copy on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropelime.errors import InputError


def read(path: Path) -> str:
    """The text of a data file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Pass the data with --data FILE.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def from_hub(source: str, name: str, split: str) -> Sequence[dict[str, Any]]:
    """The rows of a data set on the hub."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            "Pass --data FILE, or install the hub's loader: pip install 'ropelime[benchmarks]'"
        ) from None
    try:
        rows: Sequence[dict[str, Any]] = load_dataset(source, name, split=split)
    except Exception as error:
        first = str(error).split("\n")[0][:200]
        raise InputError(
            f"The data set {source} could not be fetched ({first}). Connect, or pass --data FILE."
        ) from None
    return rows


def unexpected(path: Path | None, expected: str) -> InputError:
    """The error for data of another format."""
    return InputError(
        f"{path or 'The data'} is not what this benchmark reads: expected {expected}. It takes "
        "HotpotQA's dev distractor file (hotpotqa.github.io) and MMLU's test/miscellaneous_test.csv "
        "(github.com/hendrycks/test)."
    )
