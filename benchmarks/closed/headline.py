"""The table of the README, out of the results files that ``docs/results/truth.md`` is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.store import read
from ropelime.errors import InputError

# Where each column comes from: a results file and a measure of its rankings.
_ARENA = "closed-hotpotqa-qwen2.5-coder-1.5b-smollm2"
_LABELS = "closed-reference-smollm2-760"
COLUMNS = {
    "necessity": (_ARENA, "necessity1"),
    "LDS": (_ARENA, "lds"),
    "F1": (_LABELS, "f1"),
    "tokens": (_ARENA, "tokens"),
}
ROWS = {
    "random": "random",
    "BM25(question)": "BM25(question)",
    "BM25(answer)": "BM25(answer)",
    "BM25(question + 2 × answer)": "BM25(question + 2 × answer)",
    "longest common substring": "longest common substring",
    '`preset="evidence"`, the default': "smollm2: evidence",
    '`preset="instant"`': "smollm2: instant",
    '`preset="faithful"`': "smollm2: faithful",
    "ContextCite's estimator": "smollm2: contextcite",
    "TracLLM": "smollm2: TracLLM",
    "AT2": "smollm2: AT2 (hotpotqa)",
    "*leave-one-out of the answering model*": "leave-one-out of the answering model",
}
_PLACE = re.compile(r"(<!-- table: [^>]* -->\n).*?(<!-- end of table -->)", re.DOTALL)


def table(results: Path) -> str:
    """The table as Markdown.

    Args:
        results: The folder with the results files.
    """
    rankings = {name: _rankings(results / f"{name}.jsonl.xz") for name in (_ARENA, _LABELS)}
    rows = [
        [label, *(_cell(rankings[file], name, key) for file, key in COLUMNS.values())]
        for label, name in ROWS.items()
    ]
    return pages.table(["", *COLUMNS], rows)


def update(readme: Path, results: Path) -> Path:
    """Replace the table between the two comments of the README."""
    text, count = _PLACE.subn(
        lambda place: f"{place[1]}{table(results)}\n{place[2]}", readme.read_text(encoding="utf-8")
    )
    if count != 1:
        raise InputError(f"{readme} has {count} places for the table; it must have one.")
    readme.write_text(text, encoding="utf-8", newline="\n")
    return readme


def _rankings(path: Path) -> list[Mapping[str, Any]]:
    return [row["rankings"] for row in read(path)[1] if "rankings" in row]


def _cell(rankings: list[Mapping[str, Any]], name: str, key: str) -> str:
    found = [r[name][key] for r in rankings if name in r and r[name].get(key) is not None]
    mean = sum(found) / len(found) if found else None
    return pages.number(mean, ",.0f" if key == "tokens" else ".2f")
