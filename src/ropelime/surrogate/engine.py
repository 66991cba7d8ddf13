"""Runs rows through a model, packed where the model allows it, and hands out what they show."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from ropelime.errors import ModelError
from ropelime.surrogate.allocator import freed_memory_kept
from ropelime.surrogate.attention import (
    NotPackableError,
    Packed,
    Stack,
    configs_of,
    packed_attention,
    running,
    shares_keys,
)
from ropelime.surrogate.base import Progress
from ropelime.surrogate.compiling import Compiled
from ropelime.surrogate.forms import running_by
from ropelime.surrogate.norms import by_torch, norms_of
from ropelime.surrogate.packing import Packer, Place
from ropelime.surrogate.sequences import Row, Rows, Several
from ropelime.surrogate.tiles import Tiled
from ropelime.typing import Ints

_LOGITS_AT_ONCE = 1 << 28  # bounds output positions x vocabulary of one chunk
_CPU_TOKENS = 2_048  # enough for its matrix products
_GPU_TOKENS = 32_768  # enough to keep a large one busy; more only takes memory
_WIDTHS = 16  # a token takes about so many times a layer's widths, until its memory has been seen
_FEWEST_TOKENS = 64  # where even that does not fit, nothing will
_FREE_PART = 0.7  # of the free memory, for one chunk
_KEY_BYTES = 1 << 31  # of keys and values that one layer gathers at once
_KEYS_A_TOKEN = 8  # but at least so many for each token of a chunk


@dataclass(frozen=True)
class Piece:
    """What one run of the model showed.

    Attributes:
        scoring: (K, 2) the mask and the token that each of the logits is for, counted from the end.
        logits: (K, V).
        whole: The rows that are complete now and did not look back at another.
        looking: Those that did.
        keys: For each captured layer the rotated keys of the whole rows' tokens, (tokens, heads, d).
        hidden: The same for the hidden states that go into a layer, (tokens, H).
    """

    scoring: Ints
    logits: torch.Tensor
    whole: list[Row]
    looking: list[Row]
    keys: dict[int, torch.Tensor]
    hidden: dict[int, torch.Tensor]


class Engine:
    """Runs rows of tokens."""

    def __init__(self, model: Any, name: str, *, compiled: bool = False) -> None:
        """Take a model, what to call it in errors, and whether its layers are compiled."""
        self._model, self._name = model, name
        self._packs = bool(getattr(model, "_supports_attention_backend", False))
        self._layers = layers_of(model)
        self._norms = norms_of(model)
        self._tiled = Tiled(model)
        if compiled and not self._packs:
            raise ModelError(
                f"{name} runs one masked prompt at a time, and compiled layers take many at once: "
                "leave out compiled=True, or --compile."
            )
        self._compiled = Compiled(self._layers, name) if compiled else nullcontext
        self._configs = configs_of(model)
        self._depth = int(model.config.get_text_config().num_hidden_layers)

    @property
    def compiled(self) -> bool:
        """Whether compiled layers are used."""
        return self._packs and self._compiled is not nullcontext

    def packs(self, longest: int) -> bool:
        """Whether rows of this length can be run packed."""
        config = self._model.config.get_text_config()
        chunk = getattr(config, "attention_chunk_size", None)  # a mask that attention is not told about
        return self._packs and longest <= long_from(self._model) and not (chunk and longest > chunk)

    def supports_cached(self, length: int) -> bool:
        """Whether rows can look back at a prompt of this length that was run before them.

        Not where some layer looks back less far than that, in a window or a chunk, not where long
        prompts are turned at other frequencies, and not with ALiBi, where distances are counted over
        all keys that are there.
        """
        config = self._model.config.get_text_config()
        reach = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
        alibi = getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt")
        near = all(length <= int(r) for r in reach if r) and length <= long_from(self._model)
        return near and not alibi

    @freed_memory_kept()
    def run(
        self,
        rows: Sequence[Row],
        take: Callable[[Piece], None],
        *,
        keys: Collection[int] = (),
        hidden: Collection[int] = (),
        tokens: int | None = None,
        progress: Progress | None = None,
    ) -> tuple[Ints, str]:
        """Run all rows.

        Args:
            rows: The rows, neighbours that begin alike beside each other.
            take: Called with the pieces, in the order of the rows.
            keys: Layers whose keys are wanted.
            hidden: Layers whose inputs are wanted.
            tokens: The most tokens to be run at once; chosen by the device if not given.
            progress: Called with the tokens done and the tokens in all.

        Returns:
            How many tokens of each row were run, and a note if something went otherwise than planned.
        """
        reach = rows.reach if isinstance(rows, (Rows, Several)) else max(row.end for row in rows)
        if self.packs(reach):
            try:
                return self._run_packed(rows, take, keys, hidden, tokens, progress)
            except NotPackableError:
                self._packs = False
        try:
            return self._run_singly(rows, take, keys, hidden, progress)
        except _OUT_OF_MEMORY as error:
            if not _is_out_of_memory(error):
                raise
            raise ModelError(
                f"{self._name} runs one masked prompt at a time, and the longest does not fit into the "
                f"memory of {input_device(self._model)}. Use a smaller surrogate, dtype='bfloat16', or "
                "a device with more memory."
            ) from error

    def _run_packed(
        self,
        rows: Sequence[Row],
        take: Callable[[Piece], None],
        keys: Collection[int],
        hidden: Collection[int],
        tokens: int | None,
        progress: Progress | None,
    ) -> tuple[Ints, str]:
        packer = Packer(rows, share=shares_keys(input_device(self._model), self._model.dtype))
        place, done, note = Place(), 0, ""
        stack, last = Stack(packer.capacity), self._depth - 1
        budget = Budget(self._model, tokens)
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        with (
            packed_attention(self._configs),
            running_by(self._norms, by_torch),
            self._tiled(packer.tokens),
            self._compiled(),
        ):
            while not packer.finished(place):
                if progress:
                    progress(done, packer.tokens)
                outputs = max(1, _LOGITS_AT_ONCE // vocabulary)
                chunk, following = packer.chunk(
                    place, tokens=budget.tokens, outputs=outputs, keys=budget.keys
                )
                packed = Packed(chunk, stack, keys, last)
                failed: BaseException | None = None
                try:
                    with budget.watch(len(chunk.ids)), running(packed):
                        take(self._chunk(packed, stack, hidden))
                    stack.commit(chunk)
                    packer.share &= not packed.one_by_one
                except _OUT_OF_MEMORY as error:
                    if not _is_out_of_memory(error):
                        raise
                    failed = error.with_traceback(None)  # whose frames hold all that was computed
                if failed is not None:
                    del packed  # or its memory stays taken
                    stack.drop()
                    note = budget.shrink(self._name, failed)
                    continue
                done += len(chunk.ids)
                place = following
        if progress:
            progress(packer.tokens, packer.tokens)
        return packer.fresh, note

    def _chunk(self, packed: Packed, stack: Stack, hidden: Collection[int]) -> Piece:
        model, chunk = self._model, packed.chunk
        device = input_device(model)
        with (
            _only(model, chunk.outputs),
            _short_end(model, self._layers, chunk.outputs),
            _inputs(self._layers, hidden) as states,
        ):
            logits = model(
                input_ids=torch.as_tensor(chunk.ids, device=device)[None],
                position_ids=torch.as_tensor(chunk.positions, device=device)[None],
                use_cache=False,
            ).logits[0]
        if len(packed.layers) < self._depth:
            raise NotPackableError  # some layers mix tokens in another way
        pools = {n: stack.pool(("hidden", n), chunk, state[0]) for n, state in states.items()}
        places = np.concatenate([np.zeros(0, dtype=np.int64), *chunk.pools])
        index = torch.as_tensor(places)
        return Piece(
            chunk.scoring,
            logits,
            [row for row in chunk.finished if row.whole],
            [row for row in chunk.finished if not row.whole],
            {layer: pool[index.to(pool.device)] for layer, pool in packed.pools.items()},
            {layer: pool[index.to(pool.device)] for layer, pool in pools.items()},
        )

    def _run_singly(
        self,
        rows: Sequence[Row],
        take: Callable[[Piece], None],
        keys: Collection[int],
        hidden: Collection[int],
        progress: Progress | None,
    ) -> tuple[Ints, str]:
        """One row after the other, as the model itself would run it; nothing is shared."""
        model = self._model
        device = input_device(model)
        total, done = sum(row.length for row in rows), 0
        path: Any = None
        for row in rows:
            if progress:
                progress(done, total)
            cache = DynamicCache()
            if row.sees is not None:
                past = torch.as_tensor(np.flatnonzero(row.sees))
                for layer, held in enumerate(path.layers):
                    k, v = (t[:, :, past.to(t.device)] for t in (held.keys, held.values))
                    cache.update(k, v, layer)
            arguments: dict[str, Any] = {}
            if not row.whole or row.end > row.length:  # ALiBi models take no positions
                arguments["position_ids"] = torch.as_tensor(row.positions, device=device)[None]
            outputs = np.arange(row.length - row.outputs, row.length)
            with _only(model, outputs), _inputs(self._layers, hidden) as states:
                logits = model(
                    input_ids=torch.as_tensor(row.ids, device=device)[None],
                    past_key_values=cache,
                    use_cache=True,
                    **arguments,
                ).logits[0]
            whole = row.whole
            scoring = np.stack([np.full(row.outputs, row.index), np.arange(-row.outputs, 0)], 1)
            captured = {layer: _keys(cache, layer, self._name) for layer in keys} if whole else {}
            inputs = {layer: state[0] for layer, state in states.items()} if whole else {}
            take(Piece(scoring, logits, [row] * whole, [row] * (not whole), captured, inputs))
            if whole:
                path = cache
            done += row.length
        if progress:
            progress(total, total)
        return np.array([row.length for row in rows]), ""

    def keys(self, ids: torch.Tensor, positions: torch.Tensor, layer: int) -> torch.Tensor:
        """(q, heads, d) rotated keys of one layer over a few tokens."""
        cache = DynamicCache()
        self._model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
        return _keys(cache, layer, self._name)


class Budget:
    """How many tokens to run at once."""

    def __init__(self, model: Any, tokens: int | None) -> None:
        """Start with what was asked for, or with what the devices are known to bear."""
        first = input_device(model)  # offloaded weights are used there, though they lie elsewhere
        held = {parameter.device for parameter in model.parameters()} | {first}
        self._gpus = sorted((device for device in held if device.type == "cuda"), key=str)
        self._named = ", ".join(map(str, self._gpus or [first]))
        self._ceiling = _GPU_TOKENS if self._gpus else _CPU_TOKENS
        self._keys = math.inf  # on a CPU the rows gather theirs one after the other
        if self._gpus:
            self._keys = _KEY_BYTES / (2 * _width(model) * model.dtype.itemsize)
        self._measure = bool(self._gpus) and tokens is None
        self.tokens = tokens or self._ceiling
        if self._measure:
            config = model.config.get_text_config()
            widths = config.hidden_size + (getattr(config, "intermediate_size", 0) or 0)
            self._fit(dict.fromkeys(self._gpus, _WIDTHS * widths * model.dtype.itemsize))

    @property
    def keys(self) -> float:
        """How many keys may be gathered for the rows of a chunk, all together."""
        return max(self._keys, _KEYS_A_TOKEN * self.tokens)

    @contextmanager
    def watch(self, tokens: int) -> Iterator[None]:
        """Learn from a chunk how much memory a token takes, and take what is free from then on."""
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
        """Halve the budget after the memory ran out.

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


def _width(model: Any) -> int:
    """Key heads times their dimensions."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(heads) * head_size(model)


def head_size(model: Any) -> int:
    """Dimensions of a head."""
    config = model.config.get_text_config()
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


_OUT_OF_MEMORY = (torch.cuda.OutOfMemoryError, RuntimeError, MemoryError)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return True
    return "allocate memory" in str(error) or "out of memory" in str(error).lower()


def _keys(cache: Any, layer: int, name: str) -> torch.Tensor:
    """(q, heads, d) keys that a model has put into its cache."""
    layers = getattr(cache, "layers", ())
    if layer >= len(layers) or getattr(layers[layer], "keys", None) is None:
        raise ModelError(
            f"{name} does not keep the keys of layer {layer} in a cache, so kernel='rope-rwmd' cannot "
            "read them. Use kernel='hamming', 'cosine' or 'uniform' with it."
        )
    found: torch.Tensor = layers[layer].keys[0].transpose(0, 1)
    return found


def input_device(model: Any) -> torch.device:
    """Where a model takes its tokens; offloaded weights are nowhere until they are used."""
    embedding = model.get_input_embeddings()
    hook = getattr(embedding, "_hf_hook", None)  # accelerate's
    runs_on = getattr(hook, "execution_device", None)
    return torch.device(embedding.weight.device if runs_on is None else runs_on)


def long_from(model: Any) -> float:
    """The length beyond which a LongRoPE model (Phi-3) turns all its keys at other frequencies."""
    config = model.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) != "longrope":
        return math.inf
    limit = scaling.get("original_max_position_embeddings")
    return float(limit or config.original_max_position_embeddings)


@contextmanager
def _only(model: Any, outputs: Ints) -> Iterator[None]:
    """Let the head see only the tokens that predict the output, whatever the model does after."""
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
def _short_end(model: Any, layers: Sequence[Any], outputs: Ints) -> Iterator[None]:
    """Spare the last feed-forward part the tokens whose result nobody looks at."""
    part = getattr(layers[-1], "mlp", None) if layers else None
    if part is None or _is_mixture(model):
        yield
        return
    wanted = torch.as_tensor(outputs)
    shapes: list[torch.Size] = []

    def pick(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        shapes.append(arguments[0].shape)
        return (arguments[0][:, wanted.to(arguments[0].device)], *arguments[1:])

    def put_back(_: Any, __: Any, result: torch.Tensor) -> torch.Tensor:
        whole = result.new_zeros(shapes.pop())
        whole[:, wanted.to(result.device)] = result
        return whole

    handles = [part.register_forward_pre_hook(pick), part.register_forward_hook(put_back)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_mixture(model: Any) -> bool:
    """Whether layers have experts, which may give back more than the states."""
    config = model.config.get_text_config()
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size")
    return any(getattr(config, name, None) for name in names)


def layers_of(model: Any) -> list[Any]:
    """The layers of a model; none where they are not found."""
    count = model.config.get_text_config().num_hidden_layers
    stacks = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count)
    return list(next(stacks, ()))


@contextmanager
def _inputs(layers: Sequence[Any], wanted: Collection[int]) -> Iterator[dict[int, torch.Tensor]]:
    """Collect what goes into some of the layers while the model runs."""
    states: dict[int, torch.Tensor] = {}
    if not wanted:
        yield states
        return
    if not layers:
        raise ModelError("The layers of this model were not found. Use embedding='key'.")

    def collector(layer: int) -> Any:
        def take(_: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            states[layer] = arguments[0] if arguments else keywords["hidden_states"]

        return take

    handles = [
        layers[layer].register_forward_pre_hook(collector(layer), with_kwargs=True) for layer in wanted
    ]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()
