"""One labelled example, whatever data set it is from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ropelime.text.prompt import Span

# The paper's buckets: a name, the most features, and how many examples.
BUCKETS = (("2-3", 3, 96), ("4-5", 5, 100), ("6-8", 8, 99), ("9-11", 11, 99), ("12+", None, 24))


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

    @property
    def parts(self) -> list[str]:
        """The texts of the features."""
        return [self.prompt[start:end] for start, end in self.spans]

    @property
    def question(self) -> str:
        """What was asked: the text behind the last feature; the whole prompt if there is none."""
        return self.prompt[self.spans[-1][1] :].strip() or self.prompt


def digest(examples: Sequence[Example]) -> str:
    """A digest of the examples, whatever file they are from."""
    known = [[e.id, e.spans, e.gold.tolist(), e.answer] for e in examples]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def bucket(features: int) -> str:
    """The paper's bucket for a number of features."""
    return next(name for name, most, _ in BUCKETS if most is None or features <= most)
