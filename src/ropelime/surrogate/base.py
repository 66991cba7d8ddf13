"""What the method needs of a surrogate: masks in, readings out. No torch here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ropelime.errors import InputError, ModelError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.text.features import Feature, split
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Ints, Masks

Progress = Callable[[int, int], None]  # tokens done, tokens in all


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
                f"Unknown removal {self.how!r}. Known: delete, in-place, placeholder[:TEXT]."
            )

    def __str__(self) -> str:
        return f"{self.how}:{self.text}" if self.how == "placeholder" else self.how

    @classmethod
    def of(cls, spec: object) -> Ablation:
        """Read ``"delete"``, ``"in-place"``, ``"placeholder"`` or ``"placeholder:TEXT"``."""
        if isinstance(spec, cls):
            return spec
        if not isinstance(spec, str):
            raise InputError(f"removal must be a name, not {spec!r}.")
        how, colon, text = spec.partition(":")
        return cls(how, text) if colon else cls(how)


class Scorer(Protocol):
    """One prompt with one output, ready to be read under any masks."""

    features: tuple[Feature, ...]
    output_spans: tuple[Span, ...]  # where each output token lies in the output
    has_question: bool  # whether pinned text stands between the last feature and the output

    @property
    def supports_cached(self) -> bool:
        """Whether there are cheap readings of this prompt."""
        ...

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens that reading each mask would take."""
        ...

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """Read the output under each mask; the first mask must be the unmasked prompt."""
        ...


@dataclass(frozen=True)
class Job:
    """Masks to be read of one prompt with one output.

    Attributes:
        scorer: The prompt and the output.
        masks: (N, n), the first of them the unmasked prompt.
        kl: Whether divergences are wanted.
        spaces: The rotary spaces that distances are wanted in.
        cached: Whether readings are cheap.
        asked: Whether to read the question too.
        beside: Whether it is the prompt of the job before it with another output: what both share is
            that one's cost.
    """

    scorer: Scorer
    masks: Masks
    kl: bool = False
    spaces: tuple[RopeSpace, ...] = ()
    cached: bool = False
    question: bool = False
    beside: bool = False


def score_all(jobs: Sequence[Job], *, progress: Progress | None = None) -> list[Scores]:
    """Read several jobs: in one go where they are for one model that can, else one by one."""
    together = getattr(jobs[0].scorer, "together", None)
    if together and all(getattr(job.scorer, "together", None) == together for job in jobs):
        return list(together(jobs, progress=progress))
    return [
        job.scorer.score(
            job.masks,
            kl=job.kl,
            spaces=job.spaces,
            cached=job.cached,
            question=job.question,
            progress=progress,
        )
        for job in jobs
    ]


@runtime_checkable
class Surrogate(Protocol):
    """A model that can say how likely an output is after a prompt."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    def prepare(
        self, prompt: Prompt, features: str | Sequence[Span], output: str, *, ablation: Ablation
    ) -> Scorer:
        """Cut the prompt into features and make it ready for scoring."""
        ...

    def describe(self) -> dict[str, Any]:
        """What an explanation should record: name, dtype, device, versions."""
        ...


def check_only_output(*, kl: bool, spaces: bool, cached: bool, question: bool = False) -> None:
    """Refuse what a surrogate cannot read that gives the log-probability of the output and no more.

    Such a surrogate says so by ``only_output = True``, and is then refused before it is prepared.
    """
    if cached:
        raise ModelError("This surrogate has no cheap readings. Use readings='exact' with it.")
    if kl or spaces or question:
        raise ModelError(
            "This surrogate gives the log-probability of the output and nothing else. Use "
            "preset='faithful' with it, or target='nll' or 'logit' and kernel='uniform', 'hamming' "
            "or 'cosine'."
        )


@dataclass(frozen=True)
class FunctionSurrogate:
    """Any function from masks to log-probabilities as a surrogate.

    Attributes:
        function: Takes (N, n) masks, gives (N,) or (N, T) log-probabilities in nats.
        name: What to call it in the explanation.
    """

    only_output: ClassVar[bool] = True

    function: Callable[[Masks], Any]
    name: str = "function"

    def prepare(
        self, prompt: Prompt, features: str | Sequence[Span], output: str, *, ablation: Ablation
    ) -> FunctionScorer:
        """Cut the prompt; the function sees masks only, and removes features as it likes."""
        return FunctionScorer(self.function, split(prompt, features), output)

    def describe(self) -> dict[str, Any]:
        """Its name; a function has no more to say."""
        return {"name": self.name}


class FunctionScorer:
    """Scores masks by calling a function."""

    has_question = False
    supports_cached = False

    def __init__(
        self, function: Callable[[Masks], Any], features: tuple[Feature, ...], output: str
    ) -> None:
        """Read the full prompt once to learn how many output tokens the function has."""
        self._function = function
        self.features = features
        tokens = self._read(np.ones((1, len(features)), dtype=bool)).shape[1]
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

    def _read(self, masks: Masks) -> np.ndarray[Any, np.dtype[np.float64]]:
        values = np.asarray(self._function(masks), dtype=float)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != len(masks) or not values.shape[1]:
            raise ModelError(
                f"The surrogate was given {len(masks)} masks and gave back an array of shape "
                f"{values.shape}; (N,) or (N, T) is needed."
            )
        if not np.isfinite(values).all():
            raise ModelError("The surrogate gave back NaN or infinite log-probabilities.")
        return values

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        progress: Progress | None = None,
    ) -> Scores:
        """Call the function on all masks at once."""
        check_only_output(kl=kl, spaces=bool(spaces), cached=cached, question=question)
        start = time.perf_counter()
        logprob = self._read(masks)
        tokens = self.cost(masks)
        seconds = time.perf_counter() - start
        return Scores(masks, logprob, None, {}, tokens, int(tokens.sum()), seconds)
