"""What the method needs of a surrogate: masks in, scores out. No torch here."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ropelime.errors import InputError, ModelError, NoTokenizerError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Ints, Masks

Progress = Callable[[int, int], None]  # tokens done, by the time they take, and tokens in all


@dataclass(frozen=True)
class Load:
    """What scoring takes, for progress.

    Attributes:
        tokens: How many are run.
        time: What that takes, in tokens of a short prompt: those that attend to many take longer.
    """

    tokens: float = 0.0
    time: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(self.tokens + other.tokens, self.time + other.time)

    def of(self, tokens: float) -> Load:
        """The load of so many tokens like these."""
        return Load(tokens, tokens * self.time / self.tokens if self.tokens else tokens)

    @staticmethod
    def total(loads: Iterable[Load]) -> Load:
        """All of them together."""
        return sum(loads, Load())


@dataclass(frozen=True)
class Ablation:
    """What happens where a feature is removed.

    Attributes:
        how: ``"delete"`` closes the gap; ``"in-place"`` leaves the kept tokens at their positions;
            ``"placeholder"`` puts a text where the feature was.
        text: The placeholder.
    """

    how: str = "delete"
    text: str = "[...]"

    def __post_init__(self) -> None:
        if self.how not in ("delete", "in-place", "placeholder"):
            raise InputError(
                f"Unknown ablation {self.how!r}. Known: delete, in-place, placeholder[:TEXT]."
            )

    def __str__(self) -> str:
        return f"{self.how}:{self.text}" if self.how == "placeholder" else self.how

    @classmethod
    def of(cls, spec: object) -> Ablation:
        """Parse ``"delete"``, ``"in-place"``, ``"placeholder"`` or ``"placeholder:TEXT"``."""
        if isinstance(spec, cls):
            return spec
        if not isinstance(spec, str):
            raise InputError(f"ablation must be a name, not {spec!r}.")
        how, colon, text = spec.partition(":")
        return cls(how, text) if colon else cls(how)


class Scorer(ABC):
    """One prompt with one output, tokenised once and ready to be scored under any masks.

    Attributes:
        output_spans: Where each output token lies in the output.
        has_question: Whether pinned text stands between the last feature and the output.
        supports_cached: Whether this prompt can be scored with ``cached=True``.
        shows_attention: Whether this prompt can be scored with ``attention=True``.
        notes: What the reader of a result should know about how it is scored.
    """

    output_spans: tuple[Span, ...]
    has_question: bool = False
    supports_cached: bool = False
    shows_attention: bool = False
    notes: tuple[str, ...] = ()

    @abstractmethod
    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens that scoring each mask takes by itself."""

    def load(self, masks: Masks, *, cached: bool = False) -> Load:
        """About what scoring the masks takes."""
        tokens = float(self.cost(masks, cached=cached).sum())
        return Load(tokens, tokens)

    @abstractmethod
    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        attention: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """Score the output under each mask by teacher forcing.

        Args:
            masks: (N, n) masks over the features, the first of them all ones.
            kl: Whether to compute divergences from the unmasked predictions.
            spaces: The rotary spaces to compute distances in.
            cached: Run the prompt once and keep its KV cache. Each mask then runs only what follows
                the last feature, attending to the cached prefix less the removed features. Kept
                features have already attended to removed ones, so this is an approximation.
            question: Whether to score the pinned text before the output too.
            attention: Whether to give the attention of the output to the features, too.
            progress: Called with the tokens done and the tokens in all. Where some take longer than
                others, those done are the part of all that stands for the time taken.
        """


@dataclass(frozen=True)
class ScoreRequest:
    """Masks to score for one prompt with one output.

    Attributes:
        scorer: The prompt and the output.
        masks: (N, n), the first of them the unmasked prompt.
        kl: Whether to compute divergences.
        spaces: The rotary spaces to compute distances in.
        cached: Whether to score with the KV cache of the unmasked prompt.
        question: Whether to score the question too.
        shares_previous: Whether this is the prompt of the request before it with another output: the
            prefix that both share is counted as the cost of that one.
        attention: Whether the attention of the output to the features is wanted.
        later: About what the same explanation will score after this request. Asked only for progress.
    """

    scorer: Scorer
    masks: Masks
    kl: bool = False
    spaces: tuple[RopeSpace, ...] = ()
    cached: bool = False
    question: bool = False
    shares_previous: bool = False
    attention: bool = False
    later: Callable[[], Load] = Load

    def load(self) -> Load:
        """About what it takes."""
        return self.scorer.load(self.masks, cached=self.cached)


@dataclass(frozen=True)
class Lengths:
    """How long a prompt and an output are, in tokens of a surrogate.

    Attributes:
        features: (n,) the tokens of each feature.
        pinned: Those of the pinned text and the chat template.
        output: Those of the output.
        window: The most that the surrogate can read at once.
    """

    features: Ints
    pinned: int
    output: int
    window: int


class Surrogate(ABC):
    """A model that gives the log-probability of a fixed output after a masked prompt.

    Subclass it to use any other model. What it can do is declared by attributes with defaults.

    Attributes:
        name: What explanations call it.
        only_output: Whether it gives log-probabilities of the output and nothing else: no divergences,
            no rotary keys, no cached scoring.
        sees_output: False for a function of masks, which cannot tell two outputs apart.
    """

    name: str
    only_output: bool = False
    sees_output: bool = True

    def fits(self, prompt: Prompt, output: str) -> bool:
        """Whether it can read the prompt and the output at once; :meth:`lengths` is for those not."""
        return True

    def lengths(self, prompt: Prompt, features: tuple[Feature, ...], output: str) -> Lengths:
        """How long a prompt is that does not fit."""
        raise NoTokenizerError(f"{self.name} has no tokenizer, so the length of a text is not known.")

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Where each of its tokens lies in ``prompt.text``, as tokenised inside its chat template."""
        raise NoTokenizerError(f"{self.name} has no tokenizer. Use features='word' with it.")

    @abstractmethod
    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        """Tokenise a prompt and an output for scoring.

        Args:
            prompt: The prompt.
            features: Its features, from :func:`ropelime.text.features.split`.
            output: The output.
            ablation: What happens where a feature is removed.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What an explanation records about it: name, dtype, device, versions."""

    def score_all(
        self, requests: Sequence[ScoreRequest], *, progress: Progress | None = None
    ) -> list[Scores]:
        """Score several requests, one after the other unless a subclass packs them together."""
        reports: list[Progress | None] = [None] * len(requests)
        if progress is not None:
            sizes = [round(request.load().tokens) for request in requests]
            reports = [
                partial(_among, progress, sum(sizes[:number]), sum(sizes[number + 1 :]))
                for number in range(len(requests))
            ]
        return [
            request.scorer.score(
                request.masks,
                kl=request.kl,
                spaces=request.spaces,
                cached=request.cached,
                question=request.question,
                attention=request.attention,
                progress=report,
            )
            for request, report in zip(requests, reports, strict=True)
        ]


def _among(progress: Progress, before: int, after: int, done: int, total: int) -> None:
    """Report the progress of one request, with the tokens of those before and after it."""
    progress(before + done, before + total + after)


def check_only_output(
    *, kl: bool, spaces: bool, cached: bool, question: bool = False, attention: bool = False
) -> None:
    """Refuse what a surrogate with ``only_output = True`` cannot compute."""
    if cached:
        raise ModelError("This surrogate does not support cached scoring. Use scoring='exact' with it.")
    if kl or spaces or question or attention:
        raise ModelError(
            "This surrogate gives the log-probability of the output and nothing else. Use "
            "preset='faithful' with it, or target='nll' or 'logit' and kernel='uniform', 'hamming' "
            "or 'cosine'."
        )


def check_first_unmasked(masks: Masks) -> None:
    """Refuse masks whose first one removes something."""
    if not masks[0].all():
        raise InputError("The first mask must be the unmasked prompt.")


@dataclass(frozen=True)
class FunctionSurrogate(Surrogate):
    """Any function from masks to log-probabilities as a surrogate.

    Attributes:
        function: Takes (N, n) masks, gives (N,) or (N, T) log-probabilities in nats.
        name: Its name in explanations.
    """

    only_output = True
    sees_output = False

    function: Callable[[Masks], Any]
    name: str = "function"

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> FunctionScorer:
        """Nothing is tokenised: the function sees masks only, and removes features as it likes."""
        return FunctionScorer(self.function, features, output)

    def describe(self) -> dict[str, Any]:
        """Its name."""
        return {"name": self.name}


class OutputScorer(Scorer):
    """A scorer that gives log-probabilities of the output and nothing else."""

    @abstractmethod
    def logprob(self, masks: Masks, progress: Progress | None = None) -> tuple[Floats, int]:
        """(N, T) log-probabilities of the output under each mask, and the tokens run for them."""

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        attention: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """As :meth:`Scorer.score`; refuses whatever is more than the output."""
        wanted = {"kl": kl, "spaces": bool(spaces), "question": question, "attention": attention}
        check_only_output(cached=cached, **wanted)
        start = time.perf_counter()
        logprob, tokens_run = self.logprob(masks, progress)
        seconds = time.perf_counter() - start
        return Scores(masks, logprob, None, {}, self.cost(masks), tokens_run, seconds)


class FunctionScorer(OutputScorer):
    """Scores masks by calling a function."""

    def __init__(
        self, function: Callable[[Masks], Any], features: tuple[Feature, ...], output: str
    ) -> None:
        self._function = function
        self.output_spans = ()  # not known until it has been called on the full prompt
        tokens = self.logprob(np.ones((1, len(features)), dtype=bool))[0].shape[1]
        if tokens > len(output):
            raise InputError(
                f"The surrogate gives {tokens} log-probabilities for an output of {len(output)} "
                "characters."
            )
        cuts = np.linspace(0, len(output), tokens + 1).round().astype(int).tolist()
        self.output_spans = tuple(pairwise(cuts))

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """A token for each kept feature and each of the output."""
        return np.asarray(masks.sum(1) + len(self.output_spans))

    def load(self, masks: Masks, *, cached: bool = False) -> Load:
        """Nothing: a function reports no progress."""
        return Load()

    def logprob(self, masks: Masks, progress: Progress | None = None) -> tuple[Floats, int]:
        """Call the function on all masks at once."""
        values = np.asarray(self._function(masks), dtype=float)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != len(masks) or not values.shape[1]:
            raise ModelError(
                f"The surrogate was given {len(masks)} masks and gave back an array of shape "
                f"{values.shape}; (N,) or (N, T) is needed."
            )
        if not np.isfinite(values).all():
            raise ModelError("The surrogate gave back NaN or infinite log-probabilities.")
        return values, int(self.cost(masks).sum())
