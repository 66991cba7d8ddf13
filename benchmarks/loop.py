"""The naive way to score: one masked prompt after the other. For comparison only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ropelime.surrogate.local import LocalScorer
from ropelime.surrogate.memory import input_device
from ropelime.typing import Floats, Masks


class Loop:
    """A transformers model in a loop over masks, with its own attention and no padding."""

    def __init__(self, model: Any, scorer: LocalScorer, *, everywhere: bool) -> None:
        """Take a model and a prompt.

        Args:
            model: The model.
            scorer: The prepared prompt and answer.
            everywhere: Whether logits are computed for the whole prompt, as the model does by default,
                or for the answer only.
        """
        self._model, self._tokenized = model, scorer.tokenized
        self._everywhere = everywhere

    def score(self, masks: Masks) -> Floats:
        """(N, T) log-probability of each token of the answer under each mask."""
        device = input_device(self._model)
        output = torch.as_tensor(self._tokenized.output_ids, device=device)
        count = len(output)
        found: list[Floats] = []
        with torch.inference_mode():
            for number, mask in enumerate(masks):
                row = self._tokenized.sequence(number, mask)
                ids = torch.cat([torch.as_tensor(row.ids, device=device), output[-1:]])
                keep = {} if self._everywhere else {"logits_to_keep": count + 1}
                logits = self._model(input_ids=ids[None], use_cache=False, **keep).logits[0]
                logprob = logits[-count - 1 : -1].float().log_softmax(-1)
                found.append(logprob.gather(-1, output[:, None])[:, 0].double().cpu().numpy())
        return np.stack(found)
