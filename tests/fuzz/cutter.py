"""Any text is cut into spans that tile it: in order, without gap or overlap, never inside a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import regex

from fuzz.harness import Fuzzer, Step
from fuzz.junk import unicode_text
from ropelime.errors import InputError
from ropelime.text.features import GRANULARITIES, split
from ropelime.text.prompt import from_context, from_text
from ropelime.text.segmentation import paragraphs, sentences, words

_CLUSTER = regex.compile(r"\X")


def step(rng: Random) -> str:
    """Cut one text in all ways."""
    text = unicode_text(rng, 40 if rng.random() < 0.5 else 1500)
    for cut in (words, sentences, paragraphs):
        spans = cut(text)
        at = 0
        for start, end in spans:
            assert start == at < end, f"{cut.__name__}: {start} to {end} after {at}"
            assert text[start:end].strip(), f"{cut.__name__}: white space alone at {start}"
            at = end
        assert at == (len(text) if text.strip() else 0), f"{cut.__name__}: ends at {at} of {len(text)}"
        clusters = {match.start() for match in _CLUSTER.finditer(text)}
        assert {start for start, _ in spans} <= clusters, f"{cut.__name__}: cuts inside a cluster"
    return _features(rng, text)


def _features(rng: Random, text: str) -> str:
    """The features of a prompt are spans of it, in order, that together hold all its visible text."""
    try:
        half = rng.randrange(len(text) + 1)
        both = [text[:half], text[half:]]
        prompt = from_text(text) if rng.random() < 0.5 else from_context(both, rng.choice([None, "?"]))
        kind = rng.choice([kind for kind in GRANULARITIES if kind not in ("token", "message")])
        features = split(prompt, kind)
    except InputError:
        return "refused"
    at = 0
    for feature in features:
        assert at <= feature.start < feature.end
        assert feature.text == prompt.text[feature.start : feature.end]
        start, end = prompt.parts[feature.part]
        assert start <= feature.start < feature.end <= end
        at = feature.end
    for start, end in prompt.parts:
        held = "".join(prompt.text[max(f.start, start) : min(f.end, end)] for f in features)
        assert "".join(held.split()) == "".join(prompt.text[start:end].split())
    return "cut"


@contextmanager
def start() -> Iterator[Step]:
    """Nothing is shared."""
    yield step


FUZZER = Fuzzer("cutter", start)
