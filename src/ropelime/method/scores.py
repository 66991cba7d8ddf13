"""What the surrogate scored: the output's log-probabilities under every mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ropelime.errors import InputError
from ropelime.method.rope import RopeSpace
from ropelime.typing import Floats, Ints, Masks


@dataclass(frozen=True)
class QuestionScores:
    """The same scores for the text between the last feature and the output: the question."""

    logprob: Floats  # (N, Q) of each of its tokens; NaN where a mask removed some of them
    kl: Floats  # (N, Q)


@dataclass(frozen=True)
class Scores:
    """Scores of N masks over n features and T output tokens.

    The first mask is the full prompt. Where scores were collected for an explanation, the second is the
    prompt with no feature; :meth:`fitted` leaves it out. Other code uses the names below and no row
    numbers.

    Attributes:
        masks: (N, n) which features were kept.
        logprob: (N, T) log-probability of each output token, in nats.
        kl: (N, T) KL divergence from the prediction under the full prompt at each output position, in
            nats; None where the surrogate gives the output's probabilities only.
        distances: (N,) mover's distance for each rotary space; NaN where nothing is kept.
        tokens: (N,) length of each masked prompt with the output; with cached scoring, of what was run.
        tokens_run: Tokens of all forward passes, shared prefixes counted once.
        seconds: Time that they took.
        note: What the reader of the result should know about the scoring; often empty.
        exact: (N,) which masks had a forward pass of their own over the whole masked prompt; all of
            them if not given.
        question: Scores of the question, where they were wanted.
        alternative: (N, U) log-probability of each token of the answer to compare with, if there is
            one.
        attention: (T, n) how much of the attention that chosen heads pay to the features each output
            token pays to each; sums to 1. Only where it was wanted.
        without_features: (T,) log-probability of each output token with no feature, in scores that
            are :meth:`fitted`.
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
    attention: Floats | None = None
    without_features: Floats | None = None

    def __post_init__(self) -> None:
        if not len(self.exact):
            object.__setattr__(self, "exact", np.ones(len(self.masks), dtype=bool))

    @property
    def output_logprob(self) -> Floats:
        """(N,) log-probability of the output, minus that of the alternative if there is one."""
        total = self.logprob.sum(1)
        return np.asarray(total if self.alternative is None else total - self.alternative.sum(1))

    @property
    def full(self) -> Scores:
        """The full prompt alone."""
        return self.select([0])

    @property
    def empty(self) -> Scores:
        """The prompt with no feature, of scores that were collected for an explanation."""
        return self.select([1])

    @property
    def ablations(self) -> Scores:
        """All masks that were scored after the full prompt."""
        return self.select(np.arange(1, len(self.masks)))

    def fitted(self) -> Scores:
        """What is fitted: everything but the prompt with no feature."""
        left = self.select(np.delete(np.arange(len(self.masks)), 1))
        return replace(left, without_features=self.logprob[1])

    def select(self, rows: Sequence[int] | Ints | Masks) -> Scores:
        """The scores of some of the masks."""
        question = self.question
        return replace(
            self,
            masks=self.masks[rows],
            logprob=self.logprob[rows],
            kl=None if self.kl is None else self.kl[rows],
            distances={space: distance[rows] for space, distance in self.distances.items()},
            tokens=self.tokens[rows],
            exact=self.exact[rows],
            question=question and QuestionScores(question.logprob[rows], question.kl[rows]),
            alternative=None if self.alternative is None else self.alternative[rows],
        )

    def columns(self, start: int, end: int) -> Scores:
        """The scores of the output tokens ``start`` to ``end``."""
        part = (end - start) / self.logprob.shape[1]  # an alternative answer has other tokens
        return replace(
            self,
            alternative=None if self.alternative is None else self.alternative * part,
            logprob=self.logprob[:, start:end],
            kl=None if self.kl is None else self.kl[:, start:end],
            attention=None if self.attention is None else self.attention[start:end],
            without_features=None
            if self.without_features is None
            else self.without_features[start:end],
        )

    def distinct(self) -> int:
        """How many masks were scored; one that was scored both cached and exactly counts twice."""
        return len(np.unique(np.column_stack([self.masks, self.exact]), axis=0))

    def against(self, other: Scores) -> Scores:
        """These scores with those of an alternative answer under the same masks beside them."""
        return replace(
            self,
            alternative=other.logprob,
            tokens=self.tokens + other.tokens,
            tokens_run=self.tokens_run + other.tokens_run,
            seconds=self.seconds + other.seconds,
        )


def join(a: Scores, b: Scores) -> Scores:
    """Append scores of the same features and output; what ``b`` lacks is NaN."""
    sizes = [(each.masks.shape[1], each.logprob.shape[1]) for each in (a, b)]
    if sizes[0] != sizes[1]:
        (n, tokens), (others, read) = sizes
        raise InputError(
            f"There are scores of {n} features and {tokens} output tokens, and new ones of {others} "
            f"and {read}: the surrogate is another one, or splits the text in another way. Make the "
            "explanation again."
        )

    def both(first: Floats, then: Floats | None) -> Floats:
        blank = np.full((len(b.masks), *first.shape[1:]), np.nan)
        return np.concatenate([first, blank if then is None else then])

    question, new = a.question, b.question
    if question is not None:
        logprob, kl = (new.logprob, new.kl) if new else (None, None)
        question = QuestionScores(both(question.logprob, logprob), both(question.kl, kl))
    return Scores(
        masks=np.concatenate([a.masks, b.masks]),
        logprob=both(a.logprob, b.logprob),
        kl=None if a.kl is None else both(a.kl, b.kl),
        distances={space: both(d, b.distances.get(space)) for space, d in a.distances.items()},
        tokens=np.concatenate([a.tokens, b.tokens]),
        tokens_run=a.tokens_run + b.tokens_run,
        seconds=a.seconds + b.seconds,
        note=" ".join(dict.fromkeys(filter(None, (a.note, b.note)))),
        exact=np.concatenate([a.exact, b.exact]),
        question=question,
        alternative=None if a.alternative is None else both(a.alternative, b.alternative),
        attention=a.attention,
    )
