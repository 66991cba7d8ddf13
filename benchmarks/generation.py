"""Answers and embeddings from a local model, for baselines that generate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ropelime.surrogate.local import LocalSurrogate
from ropelime.surrogate.memory import input_device
from ropelime.text.prompt import Message, Prompt
from ropelime.typing import Floats


class LocalGenerator:
    """Greedy answers of a surrogate, in batches, and its input embeddings."""

    def __init__(self, surrogate: LocalSurrogate, *, tokens: int = 32, batch: int = 61) -> None:
        """Take a loaded model.

        Args:
            surrogate: The model.
            tokens: The longest answer.
            batch: Prompts answered at once.
        """
        self._model, self._tokenizer = surrogate.model, surrogate.tokenizer
        self._encoder, self._device = surrogate.encoder, surrogate.device
        self._tokens, self._batch = tokens, batch

    def answer(self, prompts: Sequence[str]) -> list[str]:
        """One greedy answer for each prompt."""
        answers: list[str] = []
        for at in range(0, len(prompts), self._batch):
            answers += self._answer(prompts[at : at + self._batch])
        return answers

    def _answer(self, prompts: Sequence[str]) -> list[str]:
        rows = [self._ids(prompt) for prompt in prompts]
        width = max(map(len, rows))
        pad = self._tokenizer.pad_token_id or self._tokenizer.eos_token_id or 0
        ids = torch.full((len(rows), width), pad)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for i, row in enumerate(rows):  # padded on the left, so that all answers start together
            ids[i, width - len(row) :] = torch.tensor(row)
            mask[i, width - len(row) :] = 1
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=ids.to(self._device),
                attention_mask=mask.to(self._device),
                max_new_tokens=self._tokens,
                do_sample=False,
                pad_token_id=pad,
            )
        return list(self._tokenizer.batch_decode(made[:, width:], skip_special_tokens=True))

    def _ids(self, prompt: str) -> list[int]:
        whole = (0, len(prompt))
        given = Prompt(prompt, (Message("user", *whole),), (whole,), "prompt")  # may be blank
        return list(self._encoder.encode(given, "x").ids)

    def embed(self, text: str) -> Floats:
        """(tokens, d) input embeddings of a text."""
        ids = self._tokenizer(text or " ", add_special_tokens=False).input_ids or [0]
        embedding = self._model.get_input_embeddings()  # called, because its weights may be offloaded
        with torch.inference_mode():
            points = embedding(torch.tensor(ids, device=input_device(self._model)))
        return np.asarray(points.float().cpu().numpy(), dtype=np.float64)
