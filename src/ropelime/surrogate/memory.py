"""How many tokens one forward pass may hold, by the memory that is free."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ropelime.errors import ModelError

_CPU_TOKENS = 2_048  # enough for its matrix products
_GPU_TOKENS = 32_768  # enough to keep a large one busy; more only takes memory
_WIDTHS = 16  # memory of a token in widths of a layer, assumed until it has been measured
_FEWEST_TOKENS = 64  # where even these do not fit, the model is too large
_FREE_PART = 0.7  # of the free memory, for one chunk
_KEY_BYTES = 1 << 31  # of keys and values that one layer gathers at once
_KEYS_A_TOKEN = 8  # but at least so many for each token of a chunk

OUT_OF_MEMORY = (torch.cuda.OutOfMemoryError, RuntimeError, MemoryError)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether one of the errors above means that memory ran out."""
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return True
    return "allocate memory" in str(error) or "out of memory" in str(error).lower()


class BatchLimits:
    """How many tokens, and how many gathered keys, one forward pass may hold."""

    def __init__(self, model: Any, tokens: int | None) -> None:
        """Start with the given number of tokens, or with one that the devices have memory for."""
        first = input_device(model)  # offloaded weights are used there, though they lie elsewhere
        held = {parameter.device for parameter in model.parameters()} | {first}
        self._gpus = sorted((device for device in held if device.type == "cuda"), key=str)
        self._named = ", ".join(map(str, self._gpus or [first]))
        self._ceiling = _GPU_TOKENS if self._gpus else _CPU_TOKENS
        self._keys = math.inf  # on a CPU segments gather their keys one after the other
        if self._gpus:
            self._keys = _KEY_BYTES / (2 * key_width(model) * model.dtype.itemsize)
        self._measure = bool(self._gpus) and tokens is None
        self.tokens = tokens or self._ceiling
        if self._measure:
            config = model.config.get_text_config()
            widths = config.hidden_size + (getattr(config, "intermediate_size", 0) or 0)
            self._fit(dict.fromkeys(self._gpus, _WIDTHS * widths * model.dtype.itemsize))

    @property
    def keys(self) -> float:
        """How many keys may be gathered for all segments of a chunk together."""
        return max(self._keys, _KEYS_A_TOKEN * self.tokens)

    @contextmanager
    def watch(self, tokens: int) -> Iterator[None]:
        """Measure during a chunk how much memory a token takes, and use what is free from then on."""
        if not self._measure:
            yield
            return
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        before = {gpu: torch.cuda.memory_allocated(gpu) for gpu in self._gpus}
        yield
        self._measure = False
        peaks = {gpu: torch.cuda.max_memory_allocated(gpu) for gpu in self._gpus}
        self._fit({gpu: (peaks[gpu] - before[gpu]) / tokens for gpu in self._gpus})

    def _fit(self, each: Mapping[torch.device, float]) -> None:
        """Take as many tokens as every GPU has free memory for, at so many bytes each."""
        fits = [self._ceiling]
        for gpu, size in each.items():
            free, _ = torch.cuda.mem_get_info(gpu)
            held = torch.cuda.memory_reserved(gpu) - torch.cuda.memory_allocated(gpu)
            fits.append(int(_FREE_PART * (free + held) / max(size, 1)))
        self.tokens = max(_FEWEST_TOKENS, min(fits))

    def shrink(self, name: str, error: BaseException) -> str:
        """Halve the tokens of a forward pass after memory ran out.

        Returns:
            A note for the result.

        Raises:
            ModelError: If it is as small as it can be.
        """
        if self.tokens <= _FEWEST_TOKENS:
            raise ModelError(
                f"{name} does not fit into the memory of {self._named} with even {self.tokens} tokens "
                "at once. Use a smaller surrogate, dtype='bfloat16', or a device with more memory."
            ) from error
        self.tokens = self._ceiling = max(_FEWEST_TOKENS, self.tokens // 2)
        self._keys = 0 if self._gpus else self._keys
        self._measure = False
        gc.collect()
        if self._gpus:
            torch.cuda.empty_cache()  # of all of them
        return f"Memory ran out, so no more than {self.tokens:,} tokens were run at once."


def input_device(model: Any) -> torch.device:
    """The device of a model's inputs; offloaded weights are on none until they are used."""
    embedding = model.get_input_embeddings()
    hook = getattr(embedding, "_hf_hook", None)  # accelerate's
    runs_on = getattr(hook, "execution_device", None)
    return torch.device(embedding.weight.device if runs_on is None else runs_on)


def key_width(model: Any) -> int:
    """Key heads times their dimensions."""
    config = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads) * int(size)
