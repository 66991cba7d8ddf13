"""A transformers model as a surrogate: masks read exactly or cheaply, in batches."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ropelime.errors import InputError, ModelError
from ropelime.features import Feature, enough, split
from ropelime.passes import Floats, Masks, Passes
from ropelime.prompt import Prompt, Span
from ropelime.rope import RopeSpace
from ropelime.surrogate import rotary
from ropelime.surrogate.base import Progress, Removal
from ropelime.surrogate.cache import Layers, SharedCache
from ropelime.surrogate.encoding import Encoder, owners
from ropelime.surrogate.rows import Row, Sequences, batches
from ropelime.surrogate.spaces import Space, hidden_planes, hidden_states

_LOGITS_AT_ONCE = 1 << 28  # bounds rows x output tokens x vocabulary of one batch
_SHARE_FROM = 0.2  # share prefixes when that saves at least this part of the tokens


class LocalSurrogate:
    """A causal language model of transformers with its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, *, name: str | None = None) -> None:
        """Take a loaded model and its fast tokenizer.

        Args:
            model: A causal language model, on the device and in the dtype that it shall run in.
            tokenizer: Its tokenizer.
            name: What to call it in explanations.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.encoder = Encoder(tokenizer)
        self._rotations: dict[int, rotary.Rotation | None] = {}

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return torch.device(self.model.get_input_embeddings().weight.device)

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def window(self) -> int | None:
        """The most tokens the model can read, if it says."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return int(limit) if limit else None

    def describe(self) -> dict[str, Any]:
        """What an explanation records about the model."""
        import transformers

        return {
            "name": self.name,
            "architecture": type(self.model).__name__,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.device.type,
            "torch": str(torch.__version__).split("+")[0],
            "transformers": transformers.__version__,
        }

    def prepare(
        self,
        prompt: Prompt,
        features: str | Sequence[Span],
        output: str,
        *,
        removal: Removal = Removal(),  # noqa: B008 - it is frozen
    ) -> LocalScorer:
        """Tokenise the prompt once and assign every token to its feature."""
        encoded = self.encoder.encode(prompt, output)
        total = len(encoded.ids) + len(encoded.output_ids)
        if self.window is not None and total > self.window:
            raise InputError(
                f"The prompt has {len(encoded.ids):,} tokens and the output "
                f"{len(encoded.output_ids):,}, and {self.name} can read {self.window:,} in all. "
                "Shorten the prompt, or choose a surrogate with a longer window."
            )
        parts = split(prompt, features, token_spans=self.encoder.token_spans)
        owner = owners(encoded, parts, prompt.text)
        parts, owner = _with_tokens(parts, owner, prompt.text, given=not isinstance(features, str))
        placeholder = self.encoder.token_ids(removal.text)
        sequences = Sequences(
            encoded.ids, owner, encoded.output_ids, removal, placeholder, self.encoder.beginning()
        )
        return LocalScorer(self, parts, sequences, encoded.output_spans)

    def rotation(self, layer: int | float) -> rotary.Rotation:
        """The planes of a layer, given by number or as a share of the depth."""
        index = int(layer * self.layers) if isinstance(layer, float) else int(layer)
        if not -self.layers <= index < self.layers:
            raise InputError(f"{self.name} has {self.layers} layers; there is no layer {layer}.")
        index %= self.layers
        if not rotary.candidates(self.model):
            raise rotary.refuse(self.name)
        found = self._measured(index)
        if found is None and isinstance(layer, float):
            # Some models leave every few layers unrotated: a share of the depth means the next one.
            near = sorted(range(self.layers), key=lambda other: abs(other - index))
            found = next((r for r in map(self._measured, near) if r is not None), None)
        if found is None:
            raise rotary.refuse(self.name, index)
        return found

    def _measured(self, layer: int) -> rotary.Rotation | None:
        if layer not in self._rotations:
            ids = torch.arange(8, 24, device=self.device)[None] % self.vocabulary
            keys = []
            for shift in (0, 1):
                cache = SharedCache(capture={layer})
                positions = torch.arange(shift, shift + ids.shape[1], device=self.device)[None]
                with torch.inference_mode():
                    self.model(
                        input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True
                    )
                keys.append(cache.captured.get(layer))
            if keys[0] is None or keys[1] is None:
                raise ModelError(
                    f"{self.name} does not keep the keys of layer {layer} in a cache, so kernel="
                    f"'rope-rwmd' cannot read them. Use {rotary.WITHOUT_ROPE} with it."
                )
            self._rotations[layer] = rotary.measure(keys[0], keys[1], self.model, layer)
        return self._rotations[layer]


class LocalScorer:
    """One prompt and one output, ready to be read under any masks."""

    def __init__(
        self,
        surrogate: LocalSurrogate,
        features: tuple[Feature, ...],
        sequences: Sequences,
        output_spans: tuple[Span, ...],
    ) -> None:
        """Made by :meth:`LocalSurrogate.prepare`."""
        self.features = features
        self.sequences = sequences
        self.output_spans = output_spans
        self._surrogate = surrogate

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cheap: bool = False,
        progress: Progress | None = None,
        batch_tokens: int | None = None,
    ) -> Passes:
        """Read the output under each mask.

        Args:
            masks: (N, n) masks, the first of them all ones.
            kl: Whether divergences are wanted.
            spaces: The rotary spaces that distances are wanted in.
            cheap: Run the prompt once, and for each mask only what follows the last feature, with the
                removed features hidden from it. Kept features have then seen the removed ones.
            progress: Called with the tokens done and the tokens in all.
            batch_tokens: Tokens of a batch; chosen by the device where it is not given.
        """
        start = time.perf_counter()
        if not masks[0].all():
            raise InputError("The first mask must be the unmasked prompt.")
        distinct, inverse = _distinct(masks)
        with torch.inference_mode():
            run = _Run(
                self._surrogate, self.sequences, len(self.features), kl=kl, spaces=spaces, cheap=cheap
            )
            run.all(distinct, batch_tokens or _batch_tokens(self._surrogate.device), progress)
        bad = ~np.isfinite(run.logprob).all(1) | ~np.isfinite(run.kl).all(1)
        if bad.any():
            dtype = str(self._surrogate.model.dtype).removeprefix("torch.")
            raise ModelError(
                f"{self._surrogate.name} gave NaN or infinite probabilities under {int(bad.sum())} of "
                f"{len(distinct)} masks in {dtype}. Try dtype='float32'; if that fails too, the model "
                "file is damaged."
            )
        return Passes(
            masks,
            run.logprob[inverse],
            run.kl[inverse] if kl else None,
            {space.settings: space.distance[inverse] for space in run.spaces},
            run.tokens[inverse],
            run.scored,
            time.perf_counter() - start,
        )


class _Run:
    """The state of one scoring: the unmasked readings, and results that fill up batch by batch."""

    def __init__(
        self,
        surrogate: LocalSurrogate,
        sequences: Sequences,
        features: int,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace],
        cheap: bool,
    ) -> None:
        self.cheap = cheap
        self.surrogate = surrogate
        self.sequences = sequences
        self.features = features
        self.want_kl = kl
        self.spaces = [
            Space(settings, surrogate.rotation(settings.layer), sequences, features)
            for settings in spaces
        ]
        self.output = torch.as_tensor(sequences.output_ids, device=surrogate.device)
        self.shared: Layers = {}
        self.logp0: torch.Tensor | None = None  # (T, V) log-probabilities under the unmasked prompt
        self.scored = 0

    def all(self, masks: Masks, batch_tokens: int, progress: Progress | None) -> None:
        """Read every mask: the unmasked prompt first, then the others in batches."""
        count, length = len(masks), len(self.sequences.output_ids)
        self.logprob: Floats = np.full((count, length), np.nan)
        self.kl: Floats = np.zeros((count, length))
        for space in self.spaces:
            space.distance = np.full(count, np.nan)
        self.tokens = np.zeros(count, dtype=np.int64)
        whole = [self.sequences.row(i, mask, share=False) for i, mask in enumerate(masks)]
        self.tokens[:] = [row.length for row in whole]
        longest, window = int(self.tokens.max()), self.surrogate.window
        if window is not None and longest > window:
            raise InputError(
                f"With placeholders for what is removed, prompt and output grow to {longest:,} tokens, "
                f"and {self.surrogate.name} can read {window:,} in all. Use a shorter placeholder, or "
                "removal='delete'."
            )
        rows = self._cheap_rows(masks, whole) if self.cheap else self._shared_rows(masks, whole)
        if self.cheap:
            self.tokens[1:] = [row.length for row in rows]
        total = whole[0].length + sum(row.length for row in rows)
        self._batch([whole[0]], keep=any(row.shared for row in rows))
        done = whole[0].length
        most = max(1, _LOGITS_AT_ONCE // (length * self.surrogate.vocabulary))
        limit = _long_from(self.surrogate.model)
        for group in ([r for r in rows if r.end <= limit], [r for r in rows if r.end > limit]):
            for batch in batches(group, tokens=batch_tokens, most=most):
                if progress:
                    progress(done, total)
                self._batch(batch)
                done += sum(row.length for row in batch)
        self.scored = total
        if progress:
            progress(total, total)

    def _cheap_rows(self, masks: Masks, whole: list[Row]) -> list[Row]:
        """Only the tails, looking back at the full prompt."""
        model = self.surrogate.model
        if not _may_share(model, whole[0].length) or whole[0].end > _long_from(model):
            raise ModelError(
                f"{self.surrogate.name} does not look back at all of a prompt this long in the same "
                "way, so it has no cheap readings of it. Use readings='exact'."
            )
        cheap = [self.sequences.cheap_row(i, mask) for i, mask in enumerate(masks)]
        return [row or exact for row, exact in zip(cheap[1:], whole[1:], strict=True)]

    def _shared_rows(self, masks: Masks, whole: list[Row]) -> list[Row]:
        """Rows without what they have in common with the full prompt, where that pays."""
        rest = whole[1:]
        if not _may_share(self.surrogate.model, max(row.length for row in whole)):
            return rest
        if len({row.end <= _long_from(self.surrogate.model) for row in whole}) > 1:
            return rest
        shared = [self.sequences.row(i, mask, share=True) for i, mask in enumerate(masks) if i > 0]
        saved = sum(row.shared for row in shared)
        return shared if saved > _SHARE_FROM * sum(row.length for row in rest) else rest

    def _batch(self, batch: list[Row], *, keep: bool = False) -> None:
        """Run one batch and write its readings."""
        device, model = self.surrogate.device, self.surrogate.model
        width = max(row.length for row in batch)
        ids = np.zeros((len(batch), width), dtype=np.int64)
        positions = np.zeros((len(batch), width), dtype=np.int64)
        for i, row in enumerate(batch):
            ids[i, : row.length] = row.ids
            positions[i, : row.length] = row.positions
            positions[i, row.length :] = row.positions[-1]
        length = max(row.shared for row in batch)
        cache = SharedCache(
            shared=self.shared,
            length=length,
            capture={space.rotation.layer for space in self.spaces},
            keep=keep,
        )
        arguments: dict[str, Any] = {}
        if length or self.sequences.removal.how == "in-place":
            arguments["position_ids"] = torch.as_tensor(positions, device=device)
            # Without shared tokens the model makes its own mask: it knows its sliding windows.
            arguments["attention_mask"] = (
                _look_back(batch, width, length, model.dtype, device)
                if length
                else torch.ones(len(batch), width, dtype=torch.long, device=device)
            )
        hidden = {s.rotation.layer for s in self.spaces if s.settings.space == "hidden"}
        with (
            _output_rows_only(model, [row.length for row in batch], len(self.output)),
            hidden_states(model, hidden) as states,
        ):
            logits = model(
                input_ids=torch.as_tensor(ids, device=device),
                past_key_values=cache,
                use_cache=True,
                **arguments,
            ).logits
        if keep:
            prompt = len(self.sequences.ids)
            self.shared = {n: (k[:, :, :prompt], v[:, :, :prompt]) for n, (k, v) in cache.kept.items()}
        self._probabilities(batch, logits)
        for space in self.spaces:
            layer = space.rotation.layer
            if space.settings.space == "hidden":
                planes = hidden_planes(states[layer], space.rotation, positions)
            else:
                planes = space.rotation.key_planes(cache.captured[layer])
            space.measure(batch, *planes)

    def _probabilities(self, batch: list[Row], logits: torch.Tensor) -> None:
        """Log-probabilities of the output, and divergences from the unmasked prompt."""
        logprobs, divergences = [], []
        for scores in logits:  # one row at a time: the whole batch in float32 would be large
            values = scores.float()  # (T, V)
            logp = values - values.logsumexp(-1, keepdim=True)
            logprobs.append(logp.gather(-1, self.output[:, None].to(values.device))[:, 0])
            if self.want_kl:
                if self.logp0 is None:
                    self.logp0 = logp
                # Not a matrix product, which adds up a large vocabulary too coarsely in float32.
                divergences.append((self.logp0.exp() * (self.logp0 - logp)).sum(-1))
        rows = [row.index for row in batch]
        self.logprob[rows] = torch.stack(logprobs).double().cpu().numpy()
        if divergences:
            self.kl[rows] = torch.stack(divergences).double().cpu().numpy()


def _distinct(masks: Masks) -> tuple[Masks, np.ndarray[Any, np.dtype[np.int64]]]:
    """The distinct masks in order of first appearance, and where each mask is among them."""
    _, first, inverse = np.unique(masks, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return masks[first[order]], rank[inverse.reshape(-1)]


def _batch_tokens(device: torch.device) -> int:
    return 32_768 if device.type == "cuda" else 1_024


def _with_tokens(
    features: tuple[Feature, ...], owner: np.ndarray[Any, np.dtype[np.int64]], text: str, *, given: bool
) -> tuple[tuple[Feature, ...], np.ndarray[Any, np.dtype[np.int64]]]:
    """Join features that are smaller than a token to the neighbour that the token belongs to."""
    has = np.isin(np.arange(len(features)), owner)
    if has.all():
        return features, owner
    if given:
        lost = int(np.flatnonzero(~has)[0])
        span = features[lost]
        raise InputError(
            f"features[{lost}] = ({span.start}, {span.end}) {span.text!r} shares its only token with "
            "a neighbour, so it cannot be removed by itself. Join the two spans."
        )
    joined: list[Feature] = []
    number = np.cumsum(has) - 1
    for feature, own in zip(features, has, strict=True):
        if own or not joined:
            joined.append(feature)
        else:
            last = joined[-1]
            joined[-1] = Feature(text[last.start : feature.end], last.start, feature.end, last.part)
    if not has[0]:
        raise InputError("The first feature has no token of its own. Use coarser features.")
    return enough(joined), np.where(owner >= 0, number[owner], -1)


def _may_share(model: Any, length: int) -> bool:
    """Whether rows of this length can look back at a prompt that was run before them.

    Not where some layer looks back less far than that, in a window or a chunk, and not with ALiBi,
    where distances are counted over all keys, hidden or not.
    """
    config = model.config.get_text_config()
    reach = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    alibi = getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt")
    return not alibi and all(length <= int(r) for r in reach if r)


def _long_from(model: Any) -> float:
    """The length beyond which a LongRoPE model (Phi-3) turns all its keys at other frequencies."""
    config = model.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) != "longrope":
        return math.inf
    limit = scaling.get("original_max_position_embeddings")
    return float(limit or config.original_max_position_embeddings)


def _look_back(
    batch: list[Row], width: int, shared: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """(b, 1, q, shared + q) additive mask: each row sees its shared tokens and its own past."""
    visible = torch.zeros(len(batch), width, shared + width, dtype=torch.bool, device=device)
    visible[:, :, shared:] = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    if shared:
        counts = torch.as_tensor([row.shared for row in batch], device=device)
        visible[:, :, :shared] = torch.arange(shared, device=device) < counts[:, None, None]
        for i, row in enumerate(batch):
            if row.hidden is not None:
                visible[i, :, : row.shared] &= ~torch.as_tensor(row.hidden, device=device)
    mask = torch.zeros(visible.shape, dtype=dtype, device=device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


@contextmanager
def _output_rows_only(model: Any, lengths: list[int], outputs: int) -> Iterator[None]:
    """Let the head see only the positions that predict the output, whatever the model does after."""
    head = model.get_output_embeddings()
    last = torch.as_tensor(lengths)[:, None] - outputs - 1 + torch.arange(outputs)

    def gather(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        hidden = arguments[0]
        rows = torch.arange(len(lengths), device=hidden.device)[:, None]
        return (hidden[rows, last.to(hidden.device)], *arguments[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield
    finally:
        handle.remove()
