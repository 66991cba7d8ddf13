"""The 50 labelled questions of MMLU ``miscellaneous``: words as features."""

from __future__ import annotations

import csv
import io
import json
from importlib import resources
from pathlib import Path

import numpy as np

from benchmarks.data import sources
from benchmarks.data.example import Example
from ropelime.text.prompt import Span

SOURCE = "cais/mmlu"


def mmlu(path: Path | None, *, limit: int | None = None) -> list[Example]:
    """The 50 questions of MMLU ``miscellaneous`` that carry word labels.

    The prompt is the question, its words are the features, and the answer is the text of the correct
    choice. Labels are row numbers and word positions only; see ``mmlu_labels.json``.
    """
    rows = _rows(path)
    labels = json.loads(resources.files(__package__).joinpath("mmlu_labels.json").read_text("utf-8"))
    found = []
    for item in labels["items"][:limit]:
        if item["row"] >= len(rows):
            raise sources.unexpected(path, f"row {item['row']} of 783 test questions")
        question, *choices, letter = rows[item["row"]]
        spans = word_spans(question)
        if len(spans) != item["n_words"]:
            raise sources.unexpected(
                path, f"{item['n_words']} words in row {item['row']}, not {len(spans)}"
            )
        gold = np.isin(np.arange(len(spans)), item["influential"])
        answer = choices["ABCD".index(letter)]
        found.append(Example(f"row-{item['row']}", "words", question, spans, gold, answer))
    return found


def word_spans(text: str) -> tuple[Span, ...]:
    """The words of a text, split at white space."""
    spans, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        spans.append((start, at))
    return tuple(spans)


def _rows(path: Path | None) -> list[list[str]]:
    if path is None:
        rows = sources.from_hub(SOURCE, "miscellaneous", "test")
        return [[r["question"], *r["choices"], "ABCD"[r["answer"]]] for r in rows]
    expected = "a CSV of question, four choices and a letter"
    try:
        table = [row for row in csv.reader(io.StringIO(sources.read(path))) if row]
    except csv.Error as error:
        raise sources.unexpected(path, f"{expected} ({error})") from None
    if not table or any(len(row) != 6 or row[5] not in ("A", "B", "C", "D") for row in table):
        raise sources.unexpected(path, expected)
    return table
