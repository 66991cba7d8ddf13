"""Needles: sentences that an answer comes from, in prose about other things."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.hotpot import entries_of
from ropelime.errors import InputError
from ropelime.text.prompt import Prompt, Span, from_context

KINDS = ("shared", "answer only", "no words", "two")
_CHARACTERS = 4.3  # of a token, for a first guess; the exact length is measured
_FIRST = ("Odrun", "Tarquin", "Ysolde", "Perrin", "Maelis", "Corvin", "Brannoch", "Sunniva")
_LAST = ("Vask", "Ebbsworth", "Tollemar", "Quillan", "Hathrey", "Dunmorrow", "Ostrel", "Fennick")
_PLACES = ("Varnholt", "Tessmoor", "Quarrow", "Elderwick", "Hollin Reach", "Sarnby", "Drovemere")
_FIRMS = ("Corvane Foundry", "Lathbury Mills", "Ostrey Glassworks", "Penhallow Dyers", "Merrin Press")
# Facts with {name}, {place} and {firm}; then a question, an answer, and what a right answer has one of.
_SHARED = (
    ("{name} keeps the spare ledger in the cellar of the {firm}.",
     "Where does {name} keep the spare ledger?", "In the cellar of the {firm}.", ("cellar",)),
    ("The harbour clock of {place} was repaired by {name} in a single night.",
     "Who repaired the harbour clock of {place}?", "{name} repaired it.", ("{name}",)),
    ("{name} was paid eleven silver marks for the map of {place}.",
     "How much was {name} paid for the map of {place}?", "Eleven silver marks.", ("eleven", "11")),
    ("The {firm} was founded by {name} after the flood.",
     "Who founded the {firm}?", "It was founded by {name}.", ("{name}",)),
)  # fmt: skip
# The question has no rare word of the fact; the answer has.
_ANSWER_ONLY = (
    ("The physician was laid to rest at {place}, beneath a yew.",
     "Where is the doctor buried?", "At {place}.", ("{place}",)),
    ("{name} taught the blind twins to play chess.",
     "Who gave lessons to the siblings who could not see?", "{name} did.", ("{name}",)),
    ("Every loaf in the monastery was baked by {name}.",
     "Who made the bread for the monks?", "{name} made it.", ("{name}",)),
    ("The old bridge burned down because {name} dropped a lantern.",
     "Who caused the fire at the crossing?", "{name} caused it.", ("{name}",)),
)  # fmt: skip
# Neither has one.
_NO_WORDS = (
    ("The ferry casts off at a quarter past six in the evening.",
     "When can one leave by boat?", "At 18:15.", ("18:15", "6:15", "quarter past six")),
    ("The apothecary sold his shop for a dozen gold coins.",
     "What did the chemist receive for his store?", "12 pieces of money.", ("12", "dozen", "twelve")),
    ("Nobody may enter the library without removing their boots.",
     "What must visitors do before reading there?", "Take off their shoes.", ("shoes", "boots")),
    ("The widow buried her jewels below the hen house.",
     "Where did the old woman hide what was precious?", "Under the coop.",
     ("coop", "hen house", "henhouse")),
)  # fmt: skip
# Two facts that must be joined.
_TWO = (
    (("{name} has worked for the {firm} since spring.", "The {firm} stands on a hill in {place}."),
     "In which town does {name} work?", "In {place}.", ("{place}",)),
    (("The portrait of the mayor was painted by {name}.", "{name} was born in {place} to a miller."),
     "Where was the painter of the mayor's portrait born?", "In {place}.", ("{place}",)),
    (("The {firm} is owned by the eldest daughter of {name}.", "The eldest daughter of {name} lives in "
      "{place}."), "Where does the owner of the {firm} live?", "In {place}.", ("{place}",)),
    (("The lighthouse at {place} is lit by {name}.", "{name} lost two fingers to frostbite."),
     "What happened to the person who lights the lighthouse at {place}?",
     "Two fingers were lost to frostbite.", ("fingers",)),
)  # fmt: skip
_TEMPLATES = {"shared": _SHARED, "answer only": _ANSWER_ONLY, "no words": _NO_WORDS, "two": _TWO}


@dataclass(frozen=True)
class Case:
    """A prompt with needles.

    Attributes:
        id: Its name.
        kind: One of :data:`KINDS`, or of HotpotQA.
        size: Tokens, or sentences, that were asked for.
        prompt: The prompt.
        question: The question.
        answer: The answer.
        gold: Where the needles lie in the text of the prompt.
        spans: The features, where they are given.
    """

    id: str
    kind: str
    size: int
    prompt: Prompt
    question: str
    answer: str
    gold: tuple[Span, ...]
    spans: tuple[Span, ...] = ()


def cases(path: Path | None, sizes: Sequence[int], limit: int, seed: int) -> Iterator[Case]:
    """Needles of each kind in prose of each size: one of each, then the next, so that a run can stop.

    Args:
        path: HotpotQA in the official format, whose paragraphs are the prose.
        sizes: Tokens of the prose, about.
        limit: How many of each kind and size.
        seed: Seed of places and names.
    """
    paragraphs = _paragraphs(path)
    for number in range(limit):
        for kind in KINDS:
            for size in sizes:
                yield _case(kind, size, number, paragraphs, _rng(seed, size, number, kind))


def _paragraphs(path: Path | None) -> list[str]:
    """Distinct paragraphs, in the order of the file."""
    found = (" ".join("".join(p[1]).split()) for e in entries_of(path) for p in e["context"])
    return list(dict.fromkeys(text for text in found if len(text) > 80))


def _case(
    kind: str, size: int, number: int, paragraphs: Sequence[str], rng: np.random.Generator
) -> Case:
    facts, question, answer, _ = _filled(kind, number, rng)
    wanted, chosen, used = size * _CHARACTERS, [], 0
    for i in rng.permutation(len(paragraphs)):
        if used >= wanted:
            break
        chosen.append(paragraphs[i])
        used += len(paragraphs[i])
    if used < wanted:
        raise InputError(f"The data have too few paragraphs for {size:,} tokens.")
    places = np.sort(rng.choice(len(chosen), len(facts), replace=False))
    for place, fact in zip(places.tolist(), rng.permutation(facts).tolist(), strict=True):
        chosen[place] = f"{chosen[place]} {fact}"
    prompt = from_context(chosen, question)
    starts = [prompt.text.index(fact) for fact in facts]
    gold = tuple((start, start + len(fact)) for start, fact in zip(starts, facts, strict=True))
    name = f"{kind.replace(' ', '-')}-{size}-{number}"
    return Case(name, kind, size, prompt, question, answer, gold)


def is_right(row: Mapping[str, Any], seed: int) -> bool:
    """Whether the answer that a row explains says what the needle says.

    Args:
        row: A row of a run.
        seed: The seed of the run.
    """
    kind, size, number = row["kind"], row["size"], int(row["example"].rpartition("-")[2])
    *_, keys = _filled(kind, number, _rng(seed, size, number, kind))
    whole = "|".join(map(re.escape, keys))  # 12 is not in 1812
    return re.search(rf"(?<!\w)(?:{whole})(?!\w)", row["output"], re.IGNORECASE) is not None


def _rng(seed: int, size: int, number: int, kind: str) -> np.random.Generator:
    """What names and places of a needle are drawn from."""
    return np.random.default_rng([seed, size, number, KINDS.index(kind)])


def _filled(kind: str, number: int, rng: np.random.Generator) -> tuple[list[str], str, str, list[str]]:
    """The facts, the question, the answer, and what a right answer has one of."""
    fact, question, answer, keys = _TEMPLATES[kind][number % len(_TEMPLATES[kind])]
    names = {
        "name": f"{rng.choice(_FIRST)} {rng.choice(_LAST)}",
        "place": str(rng.choice(_PLACES)),
        "firm": str(rng.choice(_FIRMS)),
    }
    facts = [fact] if isinstance(fact, str) else list(fact)
    filled = [key.format(**names) for key in keys]
    return [f.format(**names) for f in facts], question.format(**names), answer.format(**names), filled
