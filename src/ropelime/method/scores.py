"""What the surrogate read: one row for each masked prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ropelime.method.rope import RopeSpace

Masks = npt.NDArray[np.bool_]  # (N, n), True = the feature is kept
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class QuestionScores:
    """The same readings for what stands between the last feature and the output: the question.

    Attributes:
        logprob: (N, Q) log-probability of each of its tokens; NaN where a mask cut into them.
        kl: (N, Q) divergence from the unmasked prediction there.
    """

    logprob: Floats
    kl: Floats


@dataclass(frozen=True)
class Scores:
    """The readings of N masks over n features and T output tokens.

    Attributes:
        masks: (N, n) which features were kept; the first row is the unmasked prompt.
        logprob: (N, T) log-probability of each output token, in nats.
        kl: (N, T) divergence from the unmasked prediction at each output position, in nats; None
            where the surrogate gives only the probabilities of the output.
        distances: (N,) mover's distance for each rotary space that was read; NaN where nothing is kept.
        tokens: (N,) length of each masked prompt with the output, of a cheap reading what it ran.
        scored: Tokens that the surrogate ran, after work that the masks share was done once.
        seconds: Time that this took.
        note: What the reader of the result should know about the reading; empty where nothing is.
        exact: (N,) which readings ran the whole masked prompt; all of them if not given.
        asked: Readings of the question, where they were wanted.
        instead: (N, U) log-probability of each token of another answer, where there is one to compare.
    """

    masks: Masks
    logprob: Floats
    kl: Floats | None
    distances: Mapping[RopeSpace, Floats]
    tokens: Ints
    tokens_run: int
    seconds: float
    note: str = ""
    exact: Masks = field(default_factory=lambda: np.zeros(0, dtype=bool))
    question: QuestionScores | None = None
    alternative: Floats | None = None

    def __post_init__(self) -> None:
        if not len(self.exact):
            object.__setattr__(self, "exact", np.ones(len(self.masks), dtype=bool))

    @property
    def output_logprob(self) -> Floats:
        """(N,) log-probability of the output, less that of the other answer if there is one."""
        output_logprob = self.logprob.sum(1)
        return np.asarray(
            output_logprob if self.alternative is None else output_logprob - self.alternative.sum(1)
        )

    def select(self, rows: Sequence[int] | Ints | Masks) -> Scores:
        """The same readings for some of the rows only."""
        return replace(
            self,
            masks=self.masks[rows],
            logprob=self.logprob[rows],
            kl=None if self.kl is None else self.kl[rows],
            distances={space: distance[rows] for space, distance in self.distances.items()},
            tokens=self.tokens[rows],
            exact=self.exact[rows],
            question=None
            if self.question is None
            else QuestionScores(self.question.logprob[rows], self.question.kl[rows]),
            alternative=None if self.alternative is None else self.alternative[rows],
        )

    def fitted(self) -> Scores:
        """The readings that are fitted: all but the second, which is the prompt with no feature."""
        return self.select(np.delete(np.arange(len(self.masks)), 1))

    def columns(self, start: int, end: int) -> Scores:
        """The same readings for the output tokens ``start`` to ``end`` only.

        Of another answer, whose tokens stand beside none of these, they get their part.
        """
        part = (end - start) / self.logprob.shape[1]
        return replace(
            self,
            alternative=None if self.alternative is None else self.alternative * part,
            logprob=self.logprob[:, start:end],
            kl=None if self.kl is None else self.kl[:, start:end],
        )


def join(a: Scores, b: Scores) -> Scores:
    """Readings that were made later behind the first ones; what was not read of them is NaN."""
    kl = None
    if a.kl is not None:
        kl = np.concatenate([a.kl, np.full(b.logprob.shape, np.nan) if b.kl is None else b.kl])
    blank = np.full(len(b.masks), np.nan)
    return Scores(
        np.concatenate([a.masks, b.masks]),
        np.concatenate([a.logprob, b.logprob]),
        kl,
        {s: np.concatenate([d, b.distances.get(s, blank)]) for s, d in a.distances.items()},
        np.concatenate([a.tokens, b.tokens]),
        a.tokens_run + b.tokens_run,
        a.seconds + b.seconds,
        " ".join(dict.fromkeys(filter(None, (a.note, b.note)))),
        np.concatenate([a.exact, b.exact]),
        None if a.question is None else _more_question(a.question, b),
        None
        if a.alternative is None or b.alternative is None
        else np.concatenate([a.alternative, b.alternative]),
    )


def _more_question(question: QuestionScores, more: Scores) -> QuestionScores:
    blank = np.full((len(more.masks), question.logprob.shape[1]), np.nan)
    new = more.question or QuestionScores(blank, blank)
    return QuestionScores(
        np.concatenate([question.logprob, new.logprob]), np.concatenate([question.kl, new.kl])
    )
