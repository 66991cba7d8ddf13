"""The page of architectures, made by building and comparing all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
import transformers

from benchmarks import pages
from benchmarks.architectures.build import NotBuiltError, build, causal_types, class_name
from benchmarks.architectures.compare import Comparison, compare
from ropelime.errors import ModelError

Found = Comparison | ModelError | NotBuiltError


def examine(model_type: str, **options: Any) -> Found:
    """How a tiny model of one type is scored, or why it is not."""
    try:
        return compare(build(model_type, **options), model_type)
    except NotBuiltError as error:
        return error
    except ModelError as error:  # a forward pass that fails is a fault of the sizes
        return error if "not a causal" in str(error) else NotBuiltError(str(error))


def agrees(result: Found) -> bool:
    """Whether the scores are those of the naive loop, where there are any."""
    return not isinstance(result, Comparison) or result.agrees


def worded(result: Found) -> str:
    """A line about it."""
    if isinstance(result, Comparison):
        return str(result)
    kind = "not built" if isinstance(result, NotBuiltError) else "refused"
    return f"{kind}: {' '.join(str(result).split())[:160]}"


def write(docs: Path, found: Iterable[tuple[str, Found]]) -> Path:
    """Write the page."""
    rows: list[list[str]] = []
    refused, unknown = [], []
    for model_type, result in found:
        if isinstance(result, Comparison):
            rows.append(_row(model_type, result))
        elif isinstance(result, ModelError):
            refused.append(f"`{model_type}` ({class_name(model_type)})")
        else:
            unknown.append(f"`{model_type}`")
    torch_version = str(torch.__version__).split("+")[0]
    head = ["model type", "class", "masked prompts", "cached scoring", "`in-place`", "difference"]
    return pages.write(
        docs,
        "architectures",
        versions=f"transformers {transformers.__version__}, torch {torch_version}",
        count=str(len(rows)),
        types=str(len(causal_types())),
        table=pages.table(head, rows),
        refused=fill(", ".join(refused), 120),
        unknown=fill(", ".join(unknown), 120),
    )


def _row(model_type: str, result: Comparison) -> list[str]:
    cached = "yes" if result.cached else "no"
    if 0 < result.cached < math.inf:
        cached = "up to its window"
    error = max(result.exact_error, result.cached_error or 0.0)
    return [
        f"`{model_type}`",
        class_name(model_type),
        "packed" if result.packed else "one by one",
        cached,
        "yes" if result.moves else "as `delete`",
        f"{error:.0e}" if error else "0",
    ]
