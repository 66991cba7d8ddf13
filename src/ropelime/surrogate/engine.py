"""Runs token sequences through a model: packed where the model supports it, else one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from ropelime.errors import ModelError, first_line
from ropelime.surrogate.architecture import layers_of, longest_cached, longest_packed, sliding_window
from ropelime.surrogate.attention import (
    NotPackableError,
    PackedChunk,
    PrefixCache,
    WatchedAttention,
    configs_of,
    has_cascade,
    packed_attention,
    running,
)
from ropelime.surrogate.base import Load, Progress
from ropelime.surrogate.memory import OUT_OF_MEMORY, BatchLimits, input_device, is_out_of_memory
from ropelime.surrogate.norms import fused_norms, plain_norms
from ropelime.surrogate.packing import Cursor, Packer
from ropelime.surrogate.sequences import LazySequences
from ropelime.surrogate.tokens import TokenSequence
from ropelime.typing import Ints, Masks

_LOGITS_AT_ONCE = 1 << 28  # bounds output positions x vocabulary of one chunk
# Attending to so many keys for each dimension of the hidden states takes a CPU as long as all else that
# it does for a token. Six would be as many operations, but those on keys run at a quarter of the speed.
_KEYS = 1.5

# What a model that does not take what it is given raises.
FAILURES = (ArithmeticError, AttributeError, AssertionError, ImportError, LookupError, RuntimeError,
            TypeError, ValueError)  # fmt: skip


@dataclass(frozen=True)
class ForwardResult:
    """What one forward pass has computed.

    Attributes:
        scored: (K, 2) the mask and the token that each row of logits predicts, counted from the end.
        logits: (K, V).
        whole: The sequences that are complete now and hold the whole masked prompt,
        cached: and those that attended to the cached prefix.
        keys: For each captured layer the rotated keys of the tokens in ``whole``, (tokens, heads, d).
        hidden: The same for the hidden states that go into a layer, (tokens, H).
    """

    scored: Ints
    logits: torch.Tensor
    whole: list[TokenSequence]
    cached: list[TokenSequence]
    keys: dict[int, torch.Tensor]
    hidden: dict[int, torch.Tensor]


@dataclass(frozen=True)
class Capture:
    """What forward passes capture besides logits: keys, inputs and attention of some layers."""

    keys: Collection[int] = ()
    hidden: Collection[int] = ()
    attention: Mapping[int, WatchedAttention] = field(default_factory=dict)  # by mask


OnResult = Callable[[ForwardResult], None]


@dataclass(frozen=True)
class Ways:
    """What a model supports besides plain forward passes, as far as its config does not say.

    Attributes:
        packs: Whether sequences can be packed.
        caches: Whether sequences can attend to some of the cached keys of a prompt.
        moves: Whether tokens can be given other positions; not with ALiBi, nor in recurrent models.
        note: What the reader of a result should know about it; empty if all is as expected.
    """

    packs: bool = True
    caches: bool = True
    moves: bool = True
    note: str = ""


class Engine:
    """Runs token sequences through one model."""

    def __init__(self, model: Any, name: str) -> None:
        """Take a model, and its name for errors."""
        self.model, self.name = model, name
        self.ways = Ways()
        self._longest_packed, self._longest_cached = longest_packed(model), longest_cached(model)
        self._layers = layers_of(model)
        self._norms = plain_norms(model) if input_device(model).type == "cuda" else []
        self._configs = configs_of(model)
        self._takes_cache = "use_cache" in inspect.signature(model.forward).parameters
        config = model.config.get_text_config()
        self._window = sliding_window(model)
        self.depth, self._vocabulary = int(config.num_hidden_layers), int(config.vocab_size)
        self._keys = _KEYS * int(getattr(config, "hidden_size", None) or 1024)

    def packs(self, longest: int) -> bool:
        """Whether sequences of this length are packed."""
        return self.ways.packs and longest <= self._longest_packed

    def supports_cached(self, length: int) -> bool:
        """Whether sequences can attend to the cached prefix of a prompt of this length."""
        return self.ways.caches and length <= self._longest_cached

    def load(self, sequences: LazySequences) -> Load:
        """What running all sequences takes."""
        if not self.packs(sequences.max_end):
            tokens = sum(sequence.length for sequence in sequences)
            return Load(tokens, tokens)
        packer = Packer(sequences)
        return self._load(packer.tokens, packer.pairs)

    def _load(self, tokens: int, pairs: int) -> Load:
        return Load(tokens, tokens + pairs / self._keys)

    def run(
        self,
        sequences: LazySequences,
        on_result: OnResult,
        *,
        capture: Capture = Capture(),
        tokens: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Ints, str]:
        """Run all sequences.

        Args:
            sequences: The sequences; neighbours should begin alike, to share their prefixes.
            on_result: Called with the result of each forward pass, in the order of the sequences.
            capture: What to capture besides logits.
            tokens: The most tokens of a forward pass; chosen by the device if not given.
            progress: As for :meth:`ropelime.surrogate.base.Scorer.score`.

        Returns:
            How many tokens of each sequence were run, and a note for the user, empty if all went well.
        """
        if self.packs(sequences.max_end):
            try:
                return self._run_packed(sequences, on_result, capture, tokens, progress)
            except NotPackableError:
                self.ways = replace(self.ways, packs=False)
        try:
            run = self._run_one_by_one(sequences, on_result, capture, progress)
            return run, self.ways.note
        except OUT_OF_MEMORY as error:
            if not is_out_of_memory(error):
                raise
            raise ModelError(
                f"{self.name} runs one masked prompt at a time, and the longest does not fit into the "
                f"memory of {input_device(self.model)}. Use a smaller surrogate, dtype='bfloat16', or "
                "a device with more memory."
            ) from error

    def _run_packed(
        self,
        sequences: LazySequences,
        on_result: OnResult,
        capture: Capture,
        tokens: int | None,
        progress: Progress | None,
    ) -> tuple[Ints, str]:
        model = self.model
        packer = Packer(sequences, cascade=has_cascade(input_device(model), model.dtype))
        cache = PrefixCache(packer.capacity)
        limits = BatchLimits(model, tokens)
        outputs = max(1, _LOGITS_AT_ONCE // self._vocabulary)
        whole = self._load(packer.tokens, packer.pairs)
        cursor, note = Cursor(), ""
        norms = fused_norms(self._norms) if self._norms else nullcontext()
        with packed_attention(self._configs), norms:
            while not packer.finished(cursor):
                if progress:
                    part = self._load(*packer.run_before(cursor)).time / whole.time
                    progress(round(part * packer.tokens), packer.tokens)
                chunk, following = packer.chunk(
                    cursor, tokens=limits.tokens, outputs=outputs, keys=limits.keys
                )
                failed: BaseException | None = None
                packed = PackedChunk(chunk, cache, capture.keys, capture.attention)
                try:
                    with limits.watch(len(chunk.ids)), running(packed):
                        result = self._forward_packed(packed, cache, capture.hidden)
                        if not packed.windowed and sequences.max_end > self._window:
                            raise NotPackableError  # its window is in a mask, which is not used here
                        on_result(result)
                    cache.commit(chunk)
                    packer.cascade &= not packed.one_by_one
                except OUT_OF_MEMORY as error:
                    if not is_out_of_memory(error):
                        raise
                    failed = error.with_traceback(None)  # whose frames hold all that was computed
                del packed  # its keys need not be kept while memory is measured or freed
                if failed is not None:
                    cache.discard()
                    note = limits.shrink(self.name, failed)
                    continue
                cursor = following
        if progress:
            progress(packer.tokens, packer.tokens)
        return packer.fresh, note

    def _forward_packed(
        self, packed: PackedChunk, cache: PrefixCache, capture_hidden: Collection[int]
    ) -> ForwardResult:
        chunk = packed.chunk
        logits, inputs, _ = self._logits(
            chunk.ids, chunk.positions, chunk.outputs, capture_hidden, attention_mask=None
        )
        if len(packed.layers) < self.depth:
            raise NotPackableError  # some layers mix tokens in another way
        hidden = {n: cache.pool(("hidden", n), chunk, states[0]) for n, states in inputs.items()}
        slots = torch.as_tensor(np.concatenate([np.zeros(0, dtype=np.int64), *chunk.slots]))
        return ForwardResult(
            chunk.scored,
            logits,
            [sequence for sequence in chunk.finished if not sequence.cached],
            [sequence for sequence in chunk.finished if sequence.cached],
            {layer: pool[slots.to(pool.device)] for layer, pool in packed.captured.items()},
            {layer: pool[slots.to(pool.device)] for layer, pool in hidden.items()},
        )

    def _run_one_by_one(
        self,
        sequences: Sequence[TokenSequence],
        on_result: OnResult,
        capture: Capture,
        progress: Progress | None,
    ) -> Ints:
        """One sequence per forward pass, with the model's own attention; only cached ones share."""
        lengths = np.array([sequence.length for sequence in sequences])
        total, done = int(lengths.sum()), 0
        prefix: Any = None  # the KV cache of the last whole sequence
        for sequence in sequences:
            if progress:
                progress(done, total)
            cache: Any = None
            if sequence.prefix_mask is not None:
                cache = _some_of(prefix, sequence.prefix_mask)
            elif not sequence.n_outputs:  # the prompt that cached sequences attend to
                prefix = cache = DynamicCache()
            elif capture.keys:
                cache = self._fresh_cache()
            on_result(self._forward(sequence, cache, capture))
            done += sequence.length
        if progress:
            progress(total, total)
        return lengths

    def _forward(self, sequence: TokenSequence, cache: Any, capture: Capture) -> ForwardResult:
        """One forward pass over a sequence, behind what its KV cache holds if it has one."""
        count = sequence.n_outputs
        moved = sequence.cached or (self.ways.moves and sequence.end > sequence.length)
        how = {} if cache is None else {"past_key_values": cache}
        logits, inputs, cache = self._logits(
            sequence.ids,
            sequence.positions if moved else None,
            np.arange(sequence.length - count, sequence.length),
            capture.hidden,
            use_cache=cache is not None or bool(capture.keys),
            **how,
        )
        scored = np.stack([np.full(count, sequence.index), np.arange(-count, 0)], 1)
        if sequence.cached:
            return ForwardResult(scored, logits, [], [sequence], {}, {})
        keys = {layer: self._captured_keys(cache, layer, sequence.length) for layer in capture.keys}
        hidden = {layer: states[0] for layer, states in inputs.items()}
        return ForwardResult(scored, logits, [sequence], [], keys, hidden)

    def _logits(
        self, ids: Ints, positions: Ints | None, outputs: Ints, hidden: Collection[int], **how: Any
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Any]:
        """(K, V) logits at some of the tokens, (1, N, H) inputs of some layers, and the KV cache."""
        with (
            logits_only_at(self.model, outputs),
            layer_inputs(self._layers, hidden) as inputs,
        ):
            try:
                found = self.plain(ids, positions, **how)
            except FAILURES as error:
                if is_out_of_memory(error) or isinstance(error, ModelError):
                    raise
                raise ModelError(
                    f"{self.name} ({type(self.model).__name__}) fails in a forward pass over "
                    f"{len(ids):,} tokens ({type(error).__name__}: {first_line(error)}). If the prompt "
                    "is longer than what it was made for, shorten it; or choose another surrogate."
                ) from error
        logits = found.logits[0]
        if len(logits) != len(outputs):  # of a model that does not compute them by its last layer
            logits = logits[torch.as_tensor(outputs, device=logits.device)]
        return logits, inputs, getattr(found, "past_key_values", None)

    def plain(
        self, ids: Ints, positions: Ints | None = None, *, use_cache: bool = False, **how: Any
    ) -> Any:
        """What the model itself gives for one sequence; it counts positions itself if they are None."""
        device = input_device(self.model)
        if positions is not None:
            how["position_ids"] = torch.as_tensor(positions, device=device)[None]
            if "past_key_values" not in how:  # or gaps would be taken for the ends of packed sequences
                how.setdefault("attention_mask", torch.ones_like(how["position_ids"]))
        if self._takes_cache:  # GPT-1 knows no such option
            how["use_cache"] = use_cache
        return self.model(input_ids=torch.as_tensor(ids, device=device)[None], **how)

    def keys(self, ids: Ints, positions: Ints, layer: int) -> torch.Tensor | None:
        """(q, heads, d) rotated keys of one layer over a few tokens; None if it keeps none."""
        cache = self._fresh_cache()
        how = {} if cache is None else {"past_key_values": cache}
        found = self.plain(ids, positions, use_cache=True, **how)
        return _kept_keys(getattr(found, "past_key_values", None), layer, len(ids))

    def _fresh_cache(self) -> DynamicCache | None:
        """A KV cache that keeps all keys; None, for the model's own, if that must hold more."""
        return DynamicCache() if self.ways.packs or self.ways.caches else None

    def _captured_keys(self, cache: Any, layer: int, tokens: int) -> torch.Tensor:
        keys = _kept_keys(cache, layer, tokens)
        if keys is None:
            raise ModelError(
                f"{self.name} does not keep the keys of layer {layer} in a KV cache, so "
                "kernel='rope-rwmd' cannot use them. Use kernel='hamming', 'cosine' or 'uniform' with "
                "it."
            )
        return keys


def _kept_keys(cache: Any, layer: int, tokens: int) -> torch.Tensor | None:
    """(q, heads, d) keys of so many tokens that a model has put into its KV cache, if it has."""
    layers = getattr(cache, "layers", ())
    keys: torch.Tensor | None = getattr(layers[layer], "keys", None) if layer < len(layers) else None
    if keys is None or keys.ndim != 4 or keys.shape[2] != tokens:
        return None
    return keys[0].transpose(0, 1)


def _some_of(prefix: Any, mask: Masks) -> DynamicCache:
    """The KV cache of a prompt with some of its tokens only."""
    kept, cache = torch.as_tensor(np.flatnonzero(mask)), DynamicCache()
    for layer, held in enumerate(prefix.layers):
        k, v = (t[:, :, kept.to(t.device)] for t in (held.keys, held.values))
        cache.update(k, v, layer)
    return cache


@contextmanager
def logits_only_at(model: Any, outputs: Ints) -> Iterator[None]:
    """Compute logits only at the tokens that predict the output."""
    wanted = torch.as_tensor(outputs)

    def pick(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        states = arguments[0]  # (1, N, H)
        return (states[:, wanted.to(states.device)], *arguments[1:])

    handle = model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def layer_inputs(layers: Sequence[Any], wanted: Collection[int]) -> Iterator[dict[int, torch.Tensor]]:
    """Collect the hidden states that go into some of the layers during a forward pass."""
    states: dict[int, torch.Tensor] = {}
    if wanted and not layers:
        raise ModelError("The layers of this model were not found. Use embedding='key'.")

    def take(n: int, _: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        states[n] = arguments[0] if arguments else keywords["hidden_states"]

    handles = [layers[n].register_forward_pre_hook(partial(take, n), with_kwargs=True) for n in wanted]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()
