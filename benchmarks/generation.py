"""Answers and embeddings from a local model, for baselines that generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.prompt import Message, Prompt
from ropelime.typing import Floats, Ints


def greedy(
    surrogate: LocalSurrogate, rows: Sequence[Sequence[int] | Ints], most: int, **how: Any
) -> list[str]:
    """One greedy answer to each sequence of tokens, all in one batch.

    Args:
        surrogate: The model that answers.
        rows: The tokens of each prompt.
        most: The most tokens of an answer.
        **how: More arguments of transformers' ``generate``.
    """
    tokenizer, device, width = surrogate.tokenizer, surrogate.device, max(map(len, rows))
    pad = tokenizer.pad_token_id or tokenizer.eos_token_id or 0
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):  # padded on the left, so that all answers start together
        ids[i, width - len(row) :] = torch.as_tensor(row)
        mask[i, width - len(row) :] = 1
    with surrogate.lock, torch.inference_mode():
        made = surrogate.model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=most,
            do_sample=False,
            pad_token_id=pad,
            **how,
        )
    return list(tokenizer.batch_decode(made[:, width:], skip_special_tokens=True))


class LocalGenerator:
    """Greedy answers of a surrogate, in batches, and its input embeddings."""

    def __init__(self, surrogate: LocalSurrogate, *, tokens: int = 32, batch: int = 61) -> None:
        """Take a loaded model.

        Args:
            surrogate: The model.
            tokens: The longest answer.
            batch: Prompts answered at once.
        """
        self._surrogate, self._tokens, self._batch = surrogate, tokens, batch

    def answer(self, prompts: Sequence[str]) -> list[str]:
        """One greedy answer for each prompt."""
        answers: list[str] = []
        for at in range(0, len(prompts), self._batch):
            answers += self._answer(prompts[at : at + self._batch])
        return answers

    def _answer(self, prompts: Sequence[str]) -> list[str]:
        return greedy(self._surrogate, [self._ids(prompt) for prompt in prompts], self._tokens)

    def _ids(self, prompt: str) -> list[int]:
        whole = (0, len(prompt))
        given = Prompt(prompt, (Message("user", *whole),), (whole,), "prompt")  # may be blank
        return list(self._surrogate.encoder.encode(given, "x").ids)

    def embed(self, text: str) -> Floats:
        """(tokens, d) input embeddings of a text."""
        model, tokenizer = self._surrogate.model, self._surrogate.tokenizer
        ids = tokenizer(text or " ", add_special_tokens=False).input_ids or [0]
        embedding = model.get_input_embeddings()  # called, because its weights may be offloaded
        with torch.inference_mode():
            points = embedding(torch.tensor(ids, device=self._surrogate.device))
        return np.asarray(points.float().cpu().numpy(), dtype=np.float64)
