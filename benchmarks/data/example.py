"""One labelled example, whatever data set it is from."""

from __future__ import annotations

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


def bucket(features: int) -> str:
    """The paper's bucket for a number of features."""
    return next(name for name, most, _ in BUCKETS if most is None or features <= most)
