"""The answering model: it answers, and is asked again with parts of the prompt removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol

import numpy as np

from benchmarks.generation import greedy
from benchmarks.memo import MemoScorer
from ropelime.answering import AnsweringModel
from ropelime.clients.openai import Call
from ropelime.clients.pool import Pool
from ropelime.errors import EmptyAnswerError
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalScorer, LocalSurrogate
from ropelime.text.ablated import ablated, messages_of
from ropelime.text.features import Feature, split
from ropelime.text.prompt import Prompt, Span
from ropelime.text.similarity import token_f1
from ropelime.typing import Floats, Masks

_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<eos>", "</s>")
_TOKENS_AT_ONCE = 1 << 17  # of prompts that are answered together

Measured = Literal["log-probability", "answers"]


class Conversation(Protocol):
    """One prompt with one answering model; what was asked once is remembered by its mask."""

    @property
    def measured(self) -> Measured:
        """What :meth:`score` compares with the answer: its log-probability, or other answers."""

    def answers(self, masks: Masks) -> list[str]:
        """The answer to the prompt under each mask, greedy where the model allows it."""

    def explain(self, output: str) -> None:
        """Fix the answer that is scored."""

    def score(self, masks: Masks) -> Floats:
        """(N,) how far the fixed answer stays under each mask.

        Its log-probability in nats; or, where a model gives answers only, the token F1 of the answer
        under the mask to it.
        """


Converse = Callable[[Prompt, Sequence[Span]], Conversation]


class LocalConversation:
    """A conversation with a model on this machine, by greedy answers and their log-probabilities."""

    measured: Measured = "log-probability"

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

    def score(self, masks: Masks) -> Floats:
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


class ServedConversation:
    """A conversation with a model behind a server, which gives answers and nothing else."""

    measured: Measured = "answers"

    def __init__(
        self, model: AnsweringModel, pool: Pool, prompt: Prompt, spans: Sequence[Span]
    ) -> None:
        """Take a prompt.

        Args:
            model: The answering model; its cache and its retries are used.
            pool: Where its calls wait for their turn.
            prompt: The prompt.
            spans: Its parts.
        """
        self._model, self._pool, self._prompt = model, pool, prompt
        self.features = split(prompt, spans)
        self._answers: dict[bytes, str] = {}
        self._output = ""

    def answers(self, masks: Masks) -> list[str]:
        """The answer to the prompt under each mask; those that are not known yet at once."""
        asked = {}
        for mask in masks:
            if (key := mask.tobytes()) not in self._answers and key not in asked:
                removed = np.flatnonzero(~mask).tolist()
                left = ablated(self._prompt, self.features, removed, messages_of(self._prompt))
                call = self._model.call(self._prompt, left)
                asked[key] = self._pool.submit(partial(self._ask, call))
        self._answers |= {key: answer.result() for key, answer in asked.items()}
        return [self._answers[mask.tobytes()] for mask in masks]

    def explain(self, output: str) -> None:
        """Fix the answer that others are compared with."""
        self._output = output

    def score(self, masks: Masks) -> Floats:
        """(N,) token F1 of the answer under each mask to the fixed one."""
        return np.array([token_f1(answer, self._output) for answer in self.answers(masks)])

    async def _ask(self, call: Call) -> str:
        try:
            return (await self._model.known_or_answer(call)).text.strip()
        except EmptyAnswerError:  # without some parts, a model may well have nothing to say
            return ""
