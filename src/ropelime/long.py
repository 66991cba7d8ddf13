"""Prompts of any length: :func:`any_length` is :func:`ropelime.steps.steps` behind a first look.

Where the surrogate can read prompt and output at once, that is all. A longer prompt is read once in
windows (:mod:`ropelime.method.coarse`). The passages that matter most are put together in their order,
with everything that is pinned, and explained as any prompt is. The rest keeps its share of the first
look.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from ropelime.errors import InputError, Interrupted, RopeLimeError
from ropelime.method.coarse import FirstLook, choose, window_shares, word_shares
from ropelime.method.schedule import Budget
from ropelime.method.scores import Scores
from ropelime.options import Options
from ropelime.results.close import READ, CloseReading
from ropelime.results.explanation import ExplanationData, narrowed, widened
from ropelime.steps import Steps, Task, prepare, steps
from ropelime.surrogate.base import (
    Ablation,
    Lengths,
    Load,
    OutputScorer,
    Progress,
    Scorer,
    ScoreRequest,
    Surrogate,
)
from ropelime.text.features import Feature, split
from ropelime.text.lexical import shared_words
from ropelime.text.passages import passages, reduced, windows
from ropelime.text.prompt import Prompt
from ropelime.typing import Floats, Ints, Masks

_PASSAGE = 192  # tokens of a run of features that is read or left out together
_WINDOW = 2048  # tokens of a window of the first look, where prompt and answer leave enough of it
_OVERHEAD = 8  # or so many times what stands in every window
_CLOSE = 4096  # tokens that are read closely together, at most
_AT_ONCE = 32_768  # tokens of the first look that are scored in one call
_FRAME = 256  # tokens at either end of a prompt that has no question of its own
_LEAST = 4  # passages that must fit into a window
_SPARE = 16  # tokens: text that is put together anew may have a few more


def any_length(task: Task, surrogate: Surrogate) -> Steps:
    """Explain one answer by one surrogate, however long the prompt."""
    if task.before is not None and READ in task.before.config:
        return (yield from _extended(task, task.before, surrogate))
    if surrogate.fits(task.prompt, task.output):
        return (yield from steps(task, surrogate))
    plan = Plan.of(task.prompt, task.output, task.options, surrogate)
    look = yield from plan.look(task, surrogate)
    close, reading = plan.reading(task, look, surrogate)
    found = yield from reading
    known = plan.describe(close, look)
    named = task.options.features if isinstance(task.options.features, str) else "spans"
    config = {"features": named, "budget": str(task.options.budget), READ: known}
    cost = replace(
        found.cost, masks=found.cost.masks + look.windows, tokens=found.cost.tokens + look.tokens
    )
    return widened(
        replace(found, cost=cost, config={**found.config, **config}),
        close, plan.prompt, plan.features, notes=(plan.note(close, look),),
    )  # fmt: skip


def check(prompt: Prompt, options: Options, surrogate: Surrogate) -> None:
    """Refuse what cannot be explained, whatever the answer will be."""
    if not surrogate.fits(prompt, "."):
        Plan.of(prompt, ".", options, surrogate)
        return
    features = split(prompt, options.features, token_spans=surrogate.token_spans)
    prepare(surrogate, prompt, features, ".", options)


def _extended(task: Task, before: ExplanationData, surrogate: Surrogate) -> Steps:
    """More masks over what was read closely."""
    inner, close = narrowed(before)
    spans = tuple((feature.start, feature.end) for feature in inner.features)
    options = replace(task.options, features=spans)
    inside = replace(task, prompt=inner.prompt, options=options, before=inner)
    found = yield from steps(inside, surrogate)
    config = {**found.config, **{name: before.config[name] for name in ("features", READ)}}
    note = tuple(n for n in before.diagnostics.notes if n not in found.diagnostics.notes)
    return widened(replace(found, config=config), close, before.prompt, before.features, notes=note)


@dataclass(frozen=True)
class Look:
    """What the first look found, and what it cost."""

    first: FirstLook
    windows: int  # that were read
    tokens: int
    seconds: float
    stopped: str = ""  # why not all windows were read


@dataclass(frozen=True)
class Plan:
    """How a long prompt is read.

    Attributes:
        prompt: The prompt.
        output: The answer.
        features: All features.
        lengths: Their tokens.
        frame: Features that stand in every window, as the question does.
        runs: The passages, as features of each.
    """

    prompt: Prompt
    output: str
    features: tuple[Feature, ...]
    lengths: Lengths
    frame: Ints
    runs: list[range]
    sizes: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, prompt: Prompt, output: str, options: Options, surrogate: Surrogate) -> Plan:
        """Cut the prompt into features and passages; refuses what leaves no room in a window."""
        features = split(prompt, options.features, token_spans=surrogate.token_spans)
        lengths = surrogate.lengths(prompt, features, output)
        tokens = lengths.features
        asks = prompt.text[features[-1].end :].strip()
        frame = np.zeros(0, dtype=np.int64) if asks else _ends(tokens, lengths.window)
        runs = passages(features, tokens, prompt.text, min(_PASSAGE, lengths.window // 8))
        sizes = [int(tokens[run.start : run.stop].sum()) for run in runs]
        plan = cls(prompt, output, features, lengths, frame, runs, sizes)
        room = plan.room(lengths.window)
        if room < lengths.window // 4:
            raise InputError(
                f"The output has {lengths.output:,} tokens and the question and other pinned text "
                f"{plan.fixed - lengths.output:,}, and {surrogate.name} can read {lengths.window:,} in "
                "all: that leaves too little for the prompt. Shorten them, or choose a surrogate with "
                "a longer context window.",
                field=prompt.kind,
            )
        if max(sizes) > room:
            longest = features[runs[int(np.argmax(sizes))].start]
            raise InputError(
                f"The part that begins with {longest.text[:40]!r} has {max(sizes):,} tokens, and "
                f"{surrogate.name} can read {lengths.window:,} in all, of which {room:,} are left for "
                "it. Cut the prompt finer, such as with features='sentence' or 'word'.",
                field=prompt.kind,
            )
        return plan

    @property
    def fixed(self) -> int:
        """Tokens that stand in every window: pinned text, the frame and the output."""
        own = self.lengths.features[self.frame].sum()
        return int(own) + self.lengths.pinned + self.lengths.output

    @property
    def total(self) -> int:
        """Tokens of the prompt."""
        return int(self.lengths.features.sum()) + self.lengths.pinned

    def room(self, window: int) -> int:
        """Tokens that are left for passages in a window of this size."""
        return window - self.fixed - _SPARE - window // 64

    def look(
        self, task: Task, surrogate: Surrogate
    ) -> Generator[list[ScoreRequest], list[Scores], Look]:
        """Read the prompt once, window by window; as far as the budget allows, the best first."""
        options = task.options
        words = word_shares(shared_words(self.prompt, self.features, self.output))
        most = min(self.lengths.window, max(_WINDOW, _OVERHEAD * self.fixed))
        room = max(self.room(most), max(self.sizes))
        asked = [self._features(run) for run in windows(self.sizes, room)]
        asked, stopped = self._affordable(asked, words, options.budget)
        read: dict[int, Scores] = {}
        sizes = [int(self.lengths.features[w].sum()) + self.fixed for w in asked]
        ahead = cache(partial(self._ahead, task, words, sum(sizes), surrogate))
        tokens, seconds = 0, 0.0
        per_call = max(1, _AT_ONCE // most)
        for start in range(0, len(asked), per_call):
            some = range(start, min(start + per_call, len(asked)))
            requests = [self._request(asked[w], w == 0, options, surrogate) for w in some]
            later = partial(_later, requests[-1], sum(sizes[some.stop :]), ahead)
            requests[-1] = replace(requests[-1], later=later)
            try:
                scores: Sequence[Scores | None] = yield requests
            except Interrupted as stop:
                if not read and stop.kept[0] is None:
                    raise
                scores, stopped = stop.kept, "it was interrupted"
            fresh = {w: each for w, each in zip(some, scores, strict=True) if each is not None}
            read |= fresh
            empty = read[0].logprob[1]
            tokens += sum(each.tokens_run for each in fresh.values())
            seconds += sum(each.seconds for each in fresh.values())
            if len(fresh) < len(some):
                break
            if options.budget.seconds is not None and seconds > options.budget.seconds / 2:
                stopped = "time ran out" if some.stop < len(asked) else ""
                break
        model = self._model_shares({w: asked[w] for w in read}, read, empty)
        first = FirstLook.of({"words": words, "model": model}, len(self.features))
        return Look(first, len(read), tokens, seconds, stopped)

    def closely(
        self, look: FirstLook, surrogate: Surrogate
    ) -> tuple[CloseReading, tuple[Prompt, tuple[Feature, ...]]]:
        """What is read closely, and the prompt with that alone."""
        room = self.room(self.lengths.window)
        chosen = choose(look, self.runs, self.sizes, min(room, max(_CLOSE, *self.sizes)))
        while True:
            keep = self._features(chosen)
            inside = reduced(self.prompt, self.features, keep.tolist())
            if surrogate.fits(inside[0], self.output) or len(chosen) < 2:
                return CloseReading.of(keep, look.shares, look.half_width), inside
            least = np.array(
                [look.shares[self.runs[i].start : self.runs[i].stop].sum() for i in chosen]
            )
            del chosen[int(np.argmin(least))]

    def reading(self, task: Task, look: Look, surrogate: Surrogate) -> tuple[CloseReading, Steps]:
        """What is read closely after a first look, and the steps of doing so."""
        close, (prompt, features) = self.closely(look.first, surrogate)
        spans = tuple((feature.start, feature.end) for feature in features)
        options = replace(task.options, features=spans, budget=_left(task.options.budget, look))
        return close, steps(replace(task, prompt=prompt, options=options), surrogate)

    def _ahead(self, task: Task, words: Floats, tokens: int, surrogate: Surrogate) -> Load:
        """About what close reading will take: as if words alone chose what is read."""
        look = Look(FirstLook.of({"words": words}, len(self.features)), 0, tokens, 0.0)
        reader = _Unasked(surrogate) if surrogate.only_output else surrogate
        try:
            requests = next(self.reading(task, look, reader)[1])
        except RopeLimeError:
            return Load()  # what is read in the end may still be explained
        return Load.total(request.load() + request.later() for request in requests)

    def describe(self, close: CloseReading, look: Look) -> dict[str, Any]:
        """What the config of the explanation records."""
        return {
            "features": close.features.tolist(),
            "of_features": len(self.features),
            "tokens": int(self.lengths.features[close.features].sum()) + self.lengths.pinned,
            "of_tokens": self.total,
            "window": self.lengths.window,
            "windows": look.windows,
            "overlooked": round(close.overlooked, 6),
        }

    def note(self, close: CloseReading, look: Look) -> str:
        """What the reader of the result should know."""
        known = self.describe(close, look)
        seen = "all of it was read once" if not look.stopped else "a part of it was read once"
        left = f" ({look.stopped})" if look.stopped else ""
        return (
            f"The prompt has {known['of_tokens']:,} tokens, more than the {known['window']:,} that the "
            f"surrogate can read: {seen}, in {known['windows']} windows{left}, and {known['tokens']:,} "
            f"tokens of it closely, which are {len(close.features):,} of {len(self.features):,} parts. "
            f"The others have {known['overlooked']:.0%} of the first look's shares: a rough estimate "
            "of the probability that a part that matters is among them."
        )

    def _features(self, chosen: Sequence[int] | range) -> Ints:
        """The features of some passages, and those of the frame, in their order."""
        inside = [np.arange(self.runs[i].start, self.runs[i].stop) for i in chosen]
        return np.unique(np.concatenate([self.frame, *inside]))

    def _request(self, keep: Ints, first: bool, options: Options, surrogate: Surrogate) -> ScoreRequest:
        """One window; the first with the prompt without any feature beside it."""
        prompt, features = reduced(self.prompt, self.features, keep.tolist())
        scorer = surrogate.prepare(prompt, features, self.output, ablation=options.ablation)
        masks = np.repeat([[True], [False]], len(features), axis=1)[: 1 + first]
        return ScoreRequest(scorer, masks, attention=scorer.shows_attention)

    def _model_shares(self, asked: dict[int, Ints], read: dict[int, Scores], empty: Floats) -> Floats:
        """(n,) the shares by what the surrogate found in each window."""
        shares = np.zeros(len(self.features))
        of_window = window_shares([read[w].logprob[0] for w in asked], empty)
        for (w, features), share in zip(asked.items(), of_window, strict=True):
            attention = read[w].attention
            tokens = self.lengths.features[features].astype(float)
            within = tokens if attention is None else attention.sum(0)
            within = np.where(np.isin(features, self.frame), 0.0, within)
            shares[features] += share * within / (within.sum() or 1.0)
        shares[self.frame] = 0.0
        return shares

    def _affordable(self, asked: list[Ints], words: Floats, budget: Budget) -> tuple[list[Ints], str]:
        """The windows that a budget of tokens allows, half of which is left for close reading."""
        if budget.tokens is None:
            return asked, ""
        costs = [int(self.lengths.features[w].sum()) + self.fixed for w in asked]
        best = np.argsort([-words[w].max() for w in asked], kind="stable")
        allowed = int((np.cumsum(np.array(costs)[best]) <= budget.tokens / 2).sum())
        if not allowed:
            raise InputError(
                f"A budget of {budget.tokens:,} tokens is too small: the prompt has {self.total:,} "
                f"tokens, and reading one window of it takes {min(costs):,}."
            )
        chosen = sorted(best[:allowed].tolist())
        return [asked[i] for i in chosen], "the budget ran out" if allowed < len(asked) else ""


class _Unasked(Surrogate):
    """A surrogate of which only the lengths of texts are asked: one behind a server is sent nothing."""

    only_output = True

    def __init__(self, surrogate: Surrogate) -> None:
        self.name, self._surrogate = surrogate.name, surrogate

    def fits(self, prompt: Prompt, output: str) -> bool:
        """As the surrogate itself."""
        return self._surrogate.fits(prompt, output)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        """What knows the cost of masks, and cannot score them."""
        return _Lengths(self._surrogate.lengths(prompt, features, output))

    def describe(self) -> dict[str, Any]:
        """As the surrogate itself."""
        return self._surrogate.describe()


class _Lengths(OutputScorer):
    """The cost of masks by the lengths of the features."""

    output_spans = ()

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens of each mask."""
        known = self._lengths
        return np.asarray(masks @ known.features + known.pinned + known.output)

    def logprob(self, masks: Masks, progress: Progress | None = None) -> tuple[Floats, int]:
        """Nothing is scored."""
        raise NotImplementedError


def _later(like: ScoreRequest, tokens: int, ahead: Callable[[], Load]) -> Load:
    """What follows a call of the first look: windows of so many tokens, and close reading."""
    return like.load().of(tokens) + ahead()


def _ends(tokens: Ints, window: int) -> Ints:
    """The features at both ends of a prompt: where instructions and questions stand."""
    most = min(_FRAME, window // 8)
    first = int((np.cumsum(tokens) <= most).sum())
    last = int((np.cumsum(tokens[::-1]) <= most).sum())
    return np.unique(np.r_[np.arange(first), np.arange(len(tokens) - last, len(tokens))])


def _left(budget: Budget, look: Look) -> Budget:
    """What the first look leaves of a budget."""
    if budget.tokens is not None:
        return Budget(tokens=max(1, budget.tokens - look.tokens))
    if budget.seconds is not None:
        return Budget(seconds=max(0.1, budget.seconds - look.seconds))
    return budget
