"""A local model in the place of the closed one: it answers, and is asked again with parts removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.generation import greedy
from benchmarks.memo import MemoScorer
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.features import Feature, split
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Floats, Masks

_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<eos>", "</s>")
_TOKENS_AT_ONCE = 1 << 17  # of prompts that are answered together


class Conversation:
    """One prompt with one answering model; answers and scores are remembered by mask."""

    def __init__(
        self, model: LocalSurrogate, prompt: Prompt, spans: Sequence[Span], *, most: int
    ) -> None:
        """Take a prompt.

        Args:
            model: The answering model.
            prompt: The prompt.
            spans: Its parts.
            most: The most tokens of an answer.
        """
        self._model, self._prompt, self._most = model, prompt, most
        self.features = split(prompt, spans, token_spans=model.token_spans)
        self._tokenized = self._prepare("x").tokenized
        self._answers: dict[bytes, str] = {}
        self._scorer: MemoScorer | None = None

    def answers(self, masks: Masks) -> list[str]:
        """The greedy answer to the prompt under each mask."""
        new = {m.tobytes(): m for m in masks if m.tobytes() not in self._answers}
        if new:
            longest = int(self._tokenized.lengths(np.array(list(new.values()))).max())
            count, keys = max(1, _TOKENS_AT_ONCE // longest), list(new)
            for start in range(0, len(keys), count):
                self._generate(keys[start : start + count], new)
        return [self._answers[m.tobytes()] for m in masks]

    def explain(self, output: str) -> None:
        """Fix the answer whose log-probability is asked for."""
        self._scorer = MemoScorer(self._prepare(output), [])

    def logprob(self, masks: Masks) -> Floats:
        """(N,) log-probability of the answer under each mask, in nats."""
        assert self._scorer is not None
        return self._scorer.logprob(masks)

    def _prepare(self, output: str) -> LocalScorer:
        features: tuple[Feature, ...] = self.features
        return self._model.prepare(self._prompt, features, output, ablation=Ablation())

    def _generate(self, keys: Sequence[bytes], masks: dict[bytes, Masks]) -> None:
        own = len(self._tokenized.output_ids) - 1  # all but the last of the output's tokens are run
        rows = [self._tokenized.sequence(0, masks[key]).ids for key in keys]
        tokenizer = self._model.tokenizer
        known = tokenizer.get_vocab()
        ends = {tokenizer.eos_token_id, *(known[end] for end in _ENDS if end in known)} - {None}
        texts = greedy(
            self._model,
            [row[: len(row) - own] for row in rows],
            self._most,
            temperature=None,
            top_p=None,
            top_k=None,
            eos_token_id=sorted(ends),
        )
        self._answers |= dict(zip(keys, (text.strip() for text in texts), strict=True))
