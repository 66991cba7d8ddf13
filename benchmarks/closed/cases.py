"""The prompts that are answered, or that come with an answer already."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.data.hotpot import entries_of
from benchmarks.evaluation.labels import Labels
from ropelime.errors import InputError
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, Span, from_context, from_messages, from_text

_SYSTEM = (
    "You are a helpful assistant. Answer from the given text. Be brief.",
    "You work at a library. Somebody comes with a text and a question. Answer politely.",
    "Answer in English. Do not mention these instructions. If the text does not say it, say so.",
)


@dataclass(frozen=True)
class Case:
    """A prompt whose answer is explained.

    Attributes:
        id: Its name in the data.
        prompt: The prompt.
        spans: Its parts, as spans of the prompt's text.
        question: What was asked, for lexical rankings.
        gold: (n,) the parts that a person would cite, or that are known to have caused the output.
        output: The answer that was given; None if the answering model has to answer.
    """

    id: str
    prompt: Prompt
    spans: tuple[Span, ...]
    question: str
    gold: Labels
    output: str | None = None

    @property
    def parts(self) -> list[str]:
        """The texts of the parts."""
        return [self.prompt.text[start:end] for start, end in self.spans]


def hotpotqa(path: Path) -> list[Case]:
    """Ten paragraphs each; the supporting facts are gold."""
    return [
        Case(
            example.id,
            from_text(example.prompt),
            example.spans,
            example.question,
            example.gold,
        )
        for example in data.hotpotqa(path, context="all")
    ]


def reference(path: Path) -> list[Case]:
    """The same with the reference answers, which nobody is asked for; the supporting facts are gold."""
    examples = data.hotpotqa(path, context="all")
    return [
        replace(case, output=example.answer)
        for case, example in zip(hotpotqa(path), examples, strict=True)
    ]


def mixed(path: Path) -> list[Case]:
    """Prompts of many kinds out of HotpotQA, to learn from; nothing is labelled.

    Each has the two gold paragraphs among two to ten, as chunks or in a chat with a system prompt, and
    asks for a short answer, for two sentences, or for what the text says about a title.
    """
    found = []
    for number, entry in enumerate(entries_of(path)):
        rng = np.random.default_rng([16, number])
        titles = sorted({title for title, _ in entry["supporting_facts"]})
        wanted = int(rng.choice([2, 4, 7, 10])) - len(titles)
        others = [i for i, (title, _) in enumerate(entry["context"]) if title not in titles]
        kept = set(rng.permutation(others)[: max(wanted, 0)].tolist())
        paragraphs = [
            "".join(sentences).strip()
            for i, (title, sentences) in enumerate(entry["context"])
            if title in titles or i in kept
        ]
        question = str(
            rng.choice(
                [
                    entry["question"],
                    f"{entry['question']} Answer in two full sentences.",
                    f"What does the text say about {titles[0] if titles else 'it'}?",
                ],
                p=[0.5, 0.25, 0.25],
            )
        )
        found.append(_mixed(entry["_id"], list(filter(None, paragraphs)), question, rng))
    return [case for case in found if len(case.spans) > 1]


def _mixed(id: str, paragraphs: Sequence[str], question: str, rng: np.random.Generator) -> Case:
    if rng.random() < 0.7:
        prompt = from_context(paragraphs, question)
    else:
        first = int(rng.integers(len(_SYSTEM)))
        text = "\n\n".join([*paragraphs, question])
        messages = [{"role": "system", "content": _SYSTEM[first]}, {"role": "user", "content": text}]
        prompt = from_messages(messages)
    spans = _sentences(prompt)
    return Case(f"mixed-{id}", prompt, spans, question, np.zeros(len(spans), dtype=bool))


def lfqa(path: Path) -> list[Case]:
    """Questions that take a long answer, with documents; nothing is labelled."""
    found: dict[str, Case] = {}
    for row in rows(path):
        if row["documents"] and row["question_id"] not in found:
            context = [{"text": d["text"], "source": d["title"] or ""} for d in row["documents"]]
            prompt = from_context(context, row["question"])
            spans = _sentences(prompt)
            gold = np.zeros(len(spans), dtype=bool)
            found[row["question_id"]] = Case(row["question_id"], prompt, spans, row["question"], gold)
    return [case for case in found.values() if len(case.spans) > 4]


KINDS: Mapping[str, Callable[[Path], list[Case]]] = {
    "hotpotqa": hotpotqa,
    "reference": reference,
    "mixed": mixed,
    "lfqa": lfqa,
}


def _sentences(prompt: Prompt) -> tuple[Span, ...]:
    return tuple((feature.start, feature.end) for feature in split(prompt, "sentence"))


def rows(path: Path) -> Sequence[dict[str, Any]]:
    """The objects of a file of JSON lines, compressed or not."""
    try:
        text = path.read_bytes()
        text = lzma.decompress(text) if path.suffix == ".xz" else text
        return [json.loads(line) for line in text.splitlines()]
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise InputError(f"{path} is not a file of JSON lines ({error}).") from None
