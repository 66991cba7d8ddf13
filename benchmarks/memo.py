"""A surrogate with a memory: methods that explain the same example share its scored masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.method.attribution import Recipe
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores, join
from ropelime.surrogate.base import Ablation, Progress, Scorer, ScoreRequest, Surrogate
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Ints, Masks


class Memo(Surrogate):
    """Another surrogate that scores each mask of an example at most once, cached and exactly.

    Masks that explanations request are scored for all recipes: with every divergence, rotary distance
    and question score that any of them needs. Nothing is forgotten: take a new one for each example.
    """

    def __init__(self, surrogate: Surrogate, recipes: Sequence[Recipe]) -> None:
        """Remember nothing yet.

        Args:
            surrogate: The model that scores.
            recipes: How the scores will be fitted.
        """
        self._surrogate, self._recipes = surrogate, recipes
        self.name = surrogate.name
        self.only_output, self.sees_output = surrogate.only_output, surrogate.sees_output
        self._prepared: dict[tuple[object, ...], MemoScorer] = {}

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """As the model."""
        return self._surrogate.token_spans(prompt)

    def describe(self) -> dict[str, Any]:
        """As the model."""
        return self._surrogate.describe()

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> MemoScorer:
        """The scorer of this example, with its memory."""
        example = (prompt, features, output, ablation)
        if example not in self._prepared:
            scorer = self._surrogate.prepare(prompt, features, output, ablation=ablation)
            self._prepared[example] = MemoScorer(scorer, self._recipes)
        return self._prepared[example]

    def score_all(
        self, requests: Sequence[ScoreRequest], *, progress: Progress | None = None
    ) -> list[Scores]:
        """Score what is new in all requests together, then answer each from memory."""
        for scorer in dict.fromkeys(request.scorer for request in requests):
            assert isinstance(scorer, MemoScorer)
            for cached in (False, True):
                own = [r.masks for r in requests if r.scorer is scorer and r.cached == cached]
                if own:
                    scorer.add(np.concatenate(own), cached=cached, progress=progress)
        return super().score_all(requests)


@dataclass
class _Memory:
    """Scores of one kind, cached or exact.

    Attributes:
        scores: All scores so far.
        rows: The row of each mask in them.
    """

    scores: Scores | None = None
    rows: dict[bytes, int] = field(default_factory=dict)

    def add(self, new: Scores) -> None:
        """Append scores; of a mask that is known already the first ones stay."""
        start = 0 if self.scores is None else len(self.scores.masks)
        self.scores = new if self.scores is None else join(self.scores, new)
        for offset, mask in enumerate(new.masks):
            self.rows.setdefault(mask.tobytes(), start + offset)


class MemoScorer(Scorer):
    """One example whose scores are remembered.

    Attributes:
        scorer: The same example, prepared by the model itself.
    """

    def __init__(self, scorer: Scorer, recipes: Sequence[Recipe]) -> None:
        """Made by :meth:`Memo.prepare`."""
        self.scorer, self.output_spans = scorer, scorer.output_spans
        self.has_question, self.supports_cached = scorer.has_question, scorer.supports_cached
        spaces = {r.kernel.space for r in recipes if r.kernel.space is not None}
        self._needed: dict[str, Any] = {
            "kl": any(r.target.needs_kl for r in recipes),
            "spaces": tuple(sorted(spaces, key=repr)),
            "question": scorer.has_question and any(r.target.question_weight > 0 for r in recipes),
            "attention": any(r.target.needs_attention for r in recipes),
        }
        self._memories = {False: _Memory(), True: _Memory()}

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """As the model."""
        return self.scorer.cost(masks, cached=cached)

    def add(self, masks: Masks, *, cached: bool, progress: Progress | None = None) -> None:
        """Score new masks with everything that the recipes need."""
        self._add(masks, cached, progress=progress, **self._needed)

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
        """Answer from memory; new masks are scored first, with what is requested here and no more.

        Tokens are those of the requested masks, and seconds what so many tokens take on average.
        """
        wanted = {"kl": kl, "spaces": spaces, "question": question, "attention": attention}
        self._add(masks, cached, progress=progress, **wanted)
        memory = self._memories[cached]
        assert memory.scores is not None
        found = memory.scores.select([memory.rows[mask.tobytes()] for mask in masks])
        if kl and (found.kl is None or np.isnan(found.kl).any()):
            raise InputError("Some of these masks were scored without divergences: explain first.")
        tokens = int(found.tokens.sum())
        return replace(found, tokens_run=tokens, seconds=tokens * self.seconds_per_token(cached))

    def logprob(self, masks: Masks) -> Floats:
        """(N,) log-probability of the output under each mask, scored exactly."""
        full = np.ones((1, masks.shape[1]), dtype=bool)
        return self.score(np.concatenate([full, masks]), kl=False).output_logprob[1:]

    def seconds_per_token(self, cached: bool) -> float:
        """Mean time per token over all cached, or all exact scores."""
        scores = self._memories[cached].scores
        assert scores is not None
        return scores.seconds / max(1, int(scores.tokens.sum()))

    def _add(self, masks: Masks, cached: bool, **needed: Any) -> None:
        memory, full = self._memories[cached], np.ones(masks.shape[1], dtype=bool)
        new = {key: m for m in masks if (key := m.tobytes()) not in memory.rows and not m.all()}
        if new or memory.scores is None:
            rows = np.array([full, *new.values()])
            memory.add(self.scorer.score(rows, cached=cached, **needed))
