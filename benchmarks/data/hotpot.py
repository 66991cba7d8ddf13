"""HotpotQA's dev distractor set: sentences as features, supporting facts as gold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import sources
from benchmarks.data.example import BUCKETS, Example, bucket
from ropelime.text.prompt import Span, from_context

SOURCE = "hotpotqa/hotpot_qa"


def hotpotqa(path: Path | None, *, context: str, limit: int | None = None) -> list[Example]:
    """Examples of HotpotQA's dev distractor set that have ten paragraphs.

    With ``context="gold"`` the prompt holds the paragraphs with supporting facts, and the examples fill
    the paper's buckets in the order of the file. With ``"all"`` it holds all ten paragraphs. With
    ``"twice"`` the gold paragraphs are appended once more, and both copies are gold. With a number,
    paragraphs of other examples are mixed in until there are about so many sentences.

    Args:
        path: The file in the official format; the copy on the hub if None.
        context: Which paragraphs to use.
        limit: The largest number of examples, of each bucket for ``"gold"`` or in all.
    """
    sizes = {name: size if limit is None else min(size, limit) for name, _, size in BUCKETS}
    found: list[Example] = []
    entries = [entry for entry in entries_of(path) if len(entry["context"]) == 10]
    for number, entry in enumerate(entries):
        if context == "twice":
            entry = _twice(entry)
        elif context.isdecimal():
            entry = _among_others(entries, number, int(context))
        example = _example(entry, context)
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
        raise sources.unexpected(
            path, "examples with ten paragraphs, of which some hold supporting facts"
        )
    return found


def entries_of(path: Path | None) -> Iterable[dict[str, Any]]:
    """The examples in the official format, from a file or from the hub."""
    if path is None:
        rows = sources.from_hub(SOURCE, "distractor", "validation")
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
        entries = json.loads(sources.read(path))
    except json.JSONDecodeError as error:
        raise sources.unexpected(path, f"a JSON list of HotpotQA examples ({error})") from None
    needed = {"_id", "question", "answer", "context", "supporting_facts"}
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and needed <= set(e) for e in entries
    ):
        raise sources.unexpected(path, f"a JSON list of examples with {', '.join(sorted(needed))}")
    for entry in entries:
        if not _well_formed(entry):
            raise sources.unexpected(
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
    """Whether it is a list of pairs of a title and a value of this type."""
    return isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], second)
        for pair in value
    )


def _example(entry: dict[str, Any], context: str) -> Example | None:
    """The example; None if it has fewer than two sentences to rank."""
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
            elif spans:  # some "sentences" are blank or a stray mark: they join the one before
                spans[-1] = (spans[-1][0], len(prompt.text[:end].rstrip()))
                gold[-1] = gold[-1] or is_gold
            at = end
    if len(spans) < 2:
        return None
    group = bucket(len(spans)) if context == "gold" else "all"
    return Example(str(entry["_id"]), group, prompt.text, tuple(spans), np.array(gold), entry["answer"])


def _twice(entry: dict[str, Any]) -> dict[str, Any]:
    """The example with a copy of each paragraph that holds a supporting fact at the end."""
    titles = {title for title, _ in entry["supporting_facts"]}
    copies = [paragraph for paragraph in entry["context"] if paragraph[0] in titles]
    return {**entry, "context": [*entry["context"], *copies]}


def _among_others(entries: Sequence[dict[str, Any]], number: int, sentences: int) -> dict[str, Any]:
    """The example with paragraphs of the examples after it, all in random order."""
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
