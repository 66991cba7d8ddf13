"""Small data in the formats of the benchmarks, made by the tests themselves."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Example

Entry = dict[str, Any]
LABELS: dict[str, Any] = json.loads(
    resources.files("benchmarks.data").joinpath("mmlu_labels.json").read_text("utf-8")
)


def entry(name: str, first: list[str], second: list[str], facts: list[tuple[str, int]]) -> Entry:
    """An example of ten paragraphs: "A" and "B" as given, the others one sentence each."""
    others = [[title, [f"{title} is short."]] for title in "CDEFGHIJ"]
    return {
        "_id": name,
        "question": "Who?",
        "answer": "Paris",
        "context": [others[0], ["A", first], *others[1:4], ["B", second], *others[4:]],
        "supporting_facts": [list(fact) for fact in facts],
    }


def sized(name: str, sentences: int) -> Entry:
    """An example with so many sentences in its two gold paragraphs; the first of each is gold."""
    first = [f"{name} a{i}." if i == 0 else f" a{i} is here." for i in range(sentences - 1)]
    return entry(name, first, [f"{name} b."], [("A", 0), ("B", 0)])


def write_hotpotqa(path: Path, entries: list[Entry]) -> Path:
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


def mmlu_rows() -> list[list[str]]:
    """Questions that have as many words as the labels say, and are otherwise nothing."""
    words = {item["row"]: item["n_words"] for item in LABELS["items"]}
    return [
        [
            " ".join(f"w{i}" for i in range(words.get(row, 3))),
            f"a{row}",
            "b",
            "c",
            "d, e",
            "ABCD"[row % 4],
        ]
        for row in range(783)
    ]


def write_mmlu(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def example(
    name: str = "one", gold: str = "10100", prompt: str = "red green blue black white"
) -> Example:
    """Words of a prompt as features, with labels."""
    spans, at = [], 0
    for word in prompt.split():
        at = prompt.index(word, at)
        spans.append((at, at + len(word)))
    return Example(name, "4-5", prompt, tuple(spans), np.array([g == "1" for g in gold]), "yes it is")
