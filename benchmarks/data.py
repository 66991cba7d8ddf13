"""Benchmark examples: a prompt, its features, which of them are gold, and the fixed answer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ropelime.errors import InputError
from ropelime.text.prompt import Span, from_context

# The paper's buckets: a name, the most features, and how many examples.
BUCKETS = (("2-3", 3, 96), ("4-5", 5, 100), ("6-8", 8, 99), ("9-11", 11, 99), ("12+", None, 24))
HOTPOT_SOURCE = "hotpotqa/hotpot_qa"
MMLU_SOURCE = "cais/mmlu"


@dataclass(frozen=True)
class Example:
    """One labelled example.

    Attributes:
        id: Its name in the data.
        group: The bucket it belongs to.
        prompt: The whole prompt.
        spans: The features, as spans of the prompt.
        gold: (n,) which of them a person would cite.
        answer: The answer that is explained.
    """

    id: str
    group: str
    prompt: str
    spans: tuple[Span, ...]
    gold: npt.NDArray[np.bool_]
    answer: str


def hotpotqa(path: Path | None, *, context: str, limit: int | None = None) -> list[Example]:
    """Examples of HotpotQA's dev distractor set that have ten paragraphs.

    With ``context="gold"`` the prompt holds the paragraphs with supporting facts, and the examples fill
    the paper's buckets in the order of the file; with ``"all"`` it holds all ten. With ``"twice"`` the
    gold paragraphs of the ten stand there once more, and both copies are gold; with a number there are
    about so many sentences, paragraphs of other examples being put among the ten.

    Args:
        path: The file in the official format; without it the hub's copy is taken.
        context: Which paragraphs to use.
        limit: At most so many examples, of each bucket or in all.
    """
    sizes = {name: size if limit is None else min(size, limit) for name, _, size in BUCKETS}
    found: list[Example] = []
    entries = [entry for entry in _hotpot_entries(path) if len(entry["context"]) == 10]
    for number, entry in enumerate(entries):
        if context == "twice":
            entry = _twice(entry)
        elif context.isdecimal():
            entry = _among_others(entries, number, int(context))
        example = _hotpot_example(entry, context)
        if example is None:
            continue
        if context == "gold":
            if not sizes[example.group]:
                continue
            sizes[example.group] -= 1
        elif limit is not None and len(found) >= limit:
            break
        found.append(example)
    if not found:
        raise _foreign(path, "examples with ten paragraphs, of which some hold supporting facts")
    return found


def bucket(features: int) -> str:
    """The paper's bucket for a number of features."""
    return next(name for name, most, _ in BUCKETS if most is None or features <= most)


def mmlu(path: Path | None, *, limit: int | None = None) -> list[Example]:
    """The 50 questions of MMLU ``miscellaneous`` that carry word labels.

    The prompt is the question, its words are the features, and the answer is the text of the correct
    choice. Labels are row numbers and word positions only; see ``mmlu_labels.json``.
    """
    rows = _mmlu_rows(path)
    labels = json.loads(resources.files(__package__).joinpath("mmlu_labels.json").read_text("utf-8"))
    found = []
    for item in labels["items"][:limit]:
        if item["row"] >= len(rows):
            raise _foreign(path, f"row {item['row']} of 783 test questions")
        question, *choices, letter = rows[item["row"]]
        spans = _word_spans(question)
        if len(spans) != item["n_words"]:
            raise _foreign(path, f"{item['n_words']} words in row {item['row']}, not {len(spans)}")
        gold = np.isin(np.arange(len(spans)), item["influential"])
        answer = choices["ABCD".index(letter)]
        found.append(Example(f"row-{item['row']}", "words", question, spans, gold, answer))
    return found


def _word_spans(text: str) -> tuple[Span, ...]:
    spans, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        spans.append((start, at))
    return tuple(spans)


def _hotpot_entries(path: Path | None) -> Iterable[dict[str, Any]]:
    if path is None:
        rows = _from_hub(HOTPOT_SOURCE, "distractor", "validation")
        for row in rows:
            yield {
                "_id": row["id"],
                "question": row["question"],
                "answer": row["answer"],
                "context": list(zip(row["context"]["title"], row["context"]["sentences"], strict=True)),
                "supporting_facts": list(
                    zip(
                        row["supporting_facts"]["title"],
                        row["supporting_facts"]["sent_id"],
                        strict=True,
                    )
                ),
            }
        return
    try:
        entries = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise _foreign(path, f"a JSON list of HotpotQA examples ({error})") from None
    needed = {"_id", "question", "answer", "context", "supporting_facts"}
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and needed <= set(e) for e in entries
    ):
        raise _foreign(path, f"a JSON list of examples with {', '.join(sorted(needed))}")
    for entry in entries:
        if not _well_formed(entry):
            raise _foreign(
                path,
                "a question and an answer in text, paragraphs of a title and sentences, and supporting "
                f"facts of a title and a number in example {entry['_id']!r}",
            )
    yield from entries


def _well_formed(entry: dict[str, Any]) -> bool:
    texts = isinstance(entry["question"], str) and isinstance(entry["answer"], str)
    paragraphs = _pairs(entry["context"], list) and all(
        isinstance(sentence, str) for _, sentences in entry["context"] for sentence in sentences
    )
    return texts and paragraphs and _pairs(entry["supporting_facts"], int)


def _pairs(value: object, second: type) -> bool:
    """Whether it is a list of titles, each with something of a type."""
    return isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], second)
        for pair in value
    )


def _hotpot_example(entry: dict[str, Any], context: str) -> Example | None:
    """The example; None where fewer than two sentences are left to rank."""
    facts = {(title, int(number)) for title, number in entry["supporting_facts"]}
    titles = {title for title, _ in facts}
    chosen = [p for p in entry["context"] if context != "gold" or p[0] in titles]
    chosen = [p for p in chosen if "".join(p[1]).strip()]
    if not chosen:
        return None
    prompt = from_context(["".join(sentences) for _, sentences in chosen], entry["question"])
    spans: list[Span] = []
    gold: list[bool] = []
    for (title, sentences), (at, _) in zip(chosen, prompt.parts, strict=True):
        for number, sentence in enumerate(sentences):
            end = at + len(sentence)
            is_gold = (title, number) in facts
            if any(c.isalnum() for c in sentence):
                spans.append((at, end))
                gold.append(is_gold)
            elif spans:  # a few "sentences" are blank or a stray mark: they go with the one before
                spans[-1] = (spans[-1][0], len(prompt.text[:end].rstrip()))
                gold[-1] = gold[-1] or is_gold
            at = end
    if len(spans) < 2:
        return None
    group = bucket(len(spans)) if context == "gold" else "all"
    return Example(str(entry["_id"]), group, prompt.text, tuple(spans), np.array(gold), entry["answer"])


def _twice(entry: dict[str, Any]) -> dict[str, Any]:
    """The example with a copy of each paragraph that holds a supporting fact behind the ten."""
    titles = {title for title, _ in entry["supporting_facts"]}
    copies = [paragraph for paragraph in entry["context"] if paragraph[0] in titles]
    return {**entry, "context": [*entry["context"], *copies]}


def _among_others(entries: Sequence[dict[str, Any]], number: int, sentences: int) -> dict[str, Any]:
    """The example with paragraphs of those that follow it, all in a random order."""
    entry = entries[number]
    context = list(entry["context"])
    titles = {title for title, _ in context}
    count = sum(len(paragraph[1]) for paragraph in context)
    others = (p for e in [*entries[number + 1 :], *entries[:number]] for p in e["context"])
    for paragraph in others:
        if count >= sentences:
            break
        if paragraph[0] not in titles:
            context.append(paragraph)
            titles.add(paragraph[0])
            count += len(paragraph[1])
    order = np.random.default_rng([number, sentences]).permutation(len(context))
    return {**entry, "context": [context[i] for i in order]}


def _mmlu_rows(path: Path | None) -> list[list[str]]:
    if path is None:
        rows = _from_hub(MMLU_SOURCE, "miscellaneous", "test")
        return [[r["question"], *r["choices"], "ABCD"[r["answer"]]] for r in rows]
    expected = "a CSV of question, four choices and a letter"
    try:
        table = [row for row in csv.reader(io.StringIO(_read(path))) if row]
    except csv.Error as error:
        raise _foreign(path, f"{expected} ({error})") from None
    if not table or any(len(row) != 6 or row[5] not in ("A", "B", "C", "D") for row in table):
        raise _foreign(path, expected)
    return table


def _from_hub(source: str, name: str, split: str) -> Sequence[dict[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            "Pass --data FILE, or install the hub's loader: pip install 'ropelime[bench]'"
        ) from None
    try:
        rows: Sequence[dict[str, Any]] = load_dataset(source, name, split=split)
    except Exception as error:
        first = str(error).split("\n")[0][:200]
        raise InputError(
            f"The data set {source} could not be fetched ({first}). Connect, or pass --data FILE."
        ) from None
    return rows


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Pass the data with --data FILE.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def _foreign(path: Path | None, expected: str) -> InputError:
    return InputError(
        f"{path or 'The data'} is not what this benchmark reads: expected {expected}. It takes "
        "HotpotQA's dev distractor file (hotpotqa.github.io) and MMLU's test/miscellaneous_test.csv "
        "(github.com/hendrycks/test)."
    )
