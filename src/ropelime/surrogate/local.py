"""A transformers model as a surrogate: masks read exactly or cheaply."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ropelime.errors import InputError, ModelError
from ropelime.features import Feature, enough, split
from ropelime.passes import Asked, Floats, Ints, Masks, Passes
from ropelime.prompt import Prompt, Span
from ropelime.rope import RopeSpace
from ropelime.surrogate import rotary
from ropelime.surrogate.base import Progress, Removal
from ropelime.surrogate.encoding import Encoder, owners
from ropelime.surrogate.engine import Engine, Piece, input_device
from ropelime.surrogate.rows import Rows, Sequences
from ropelime.surrogate.spaces import Space, hidden_planes

_LOGITS_IN_FLOAT = 1 << 25  # bounds output positions x vocabulary in float32
_LOGITS_ON_CPU = 1 << 19  # as many as its caches hold


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
        self.engine = Engine(model, self.name)
        self.lock = threading.Lock()  # one run at a time; a model may serve several threads
        self._rotations: dict[int, rotary.Rotation | None] = {}

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return input_device(self.model)

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

        facts = {
            "name": self.name,
            "architecture": type(self.model).__name__,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.device.type,
            "torch": str(torch.__version__).split("+")[0],
            "transformers": transformers.__version__,
        }
        if quantised := getattr(self.model.config, "quantization_config", None):
            known = quantised if isinstance(quantised, dict) else quantised.to_dict()
            facts["quantization"] = str(known.get("quant_method", "unknown")).split(".")[-1].lower()
        return facts

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
        question = bool(prompt.text[parts[-1].end :].strip())
        return LocalScorer(self, parts, sequences, encoded.output_spans, has_question=question)

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
            places = torch.arange(ids.shape[1], device=self.device)[None]
            with self.lock, torch.inference_mode():
                keys = [self.engine.keys(ids, places + shift, layer) for shift in (0, 1)]
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
        *,
        has_question: bool = False,
    ) -> None:
        """Made by :meth:`LocalSurrogate.prepare`."""
        self.features = features
        self.has_question = has_question
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
        asked: bool = False,
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
            asked: Read what stands between the last feature and the output too.
            progress: Called with the tokens done and the tokens in all.
            batch_tokens: Tokens of a batch; chosen by the device where it is not given.
        """
        start = time.perf_counter()
        if not masks[0].all():
            raise InputError("The first mask must be the unmasked prompt.")
        distinct, inverse = _distinct(masks)
        surrogate, sequences = self._surrogate, self.sequences
        questions = sequences.asked if asked else 0
        readings = _Readings(surrogate, sequences, distinct, questions, kl=kl or asked, spaces=spaces)
        rows = Rows(sequences, distinct, cheap=cheap, asked=questions)
        self._check(rows, cheap=cheap)
        with surrogate.lock, torch.inference_mode():
            scored, note = surrogate.engine.run(
                rows,
                readings.take,
                keys=readings.layers("key"),
                hidden=readings.layers("hidden"),
                tokens=batch_tokens,
                progress=progress,
            )
        readings.check()
        tokens, exact = rows.costs()
        said = slice(questions, None)
        return Passes(
            masks,
            readings.logprob[inverse, said],
            readings.kl[inverse, said] if kl else None,
            {space.settings: space.distance[inverse] for space in readings.spaces},
            tokens[inverse],
            scored,
            time.perf_counter() - start,
            note,
            exact[inverse],
            Asked(readings.logprob[inverse, :questions], readings.kl[inverse, :questions])
            if questions
            else None,
        )

    @property
    def looks_back(self) -> bool:
        """Whether there are cheap readings of this prompt."""
        length = len(self.sequences.ids) + len(self.sequences.output_ids)
        return self._surrogate.engine.looks_back(length)

    def _check(self, rows: Rows, *, cheap: bool) -> None:
        surrogate = self._surrogate
        longest = int(rows.ends.max()) + 1
        if surrogate.window is not None and longest > surrogate.window:
            raise InputError(
                f"With placeholders for what is removed, prompt and output grow to {longest:,} tokens, "
                f"and {surrogate.name} can read {surrogate.window:,} in all. Use a shorter "
                "placeholder, or removal='delete'."
            )
        if cheap and not self.looks_back:
            raise ModelError(
                f"{surrogate.name} does not look back at all of a prompt this long in the same way, so "
                "it has no cheap readings of it. Use readings='exact'."
            )


class _Readings:
    """What the rows of one scoring showed, filled up piece by piece."""

    def __init__(
        self,
        surrogate: LocalSurrogate,
        sequences: Sequences,
        masks: Masks,
        questions: int,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace],
    ) -> None:
        read = np.concatenate([sequences.ids[len(sequences.ids) - questions :], sequences.output_ids])
        self.logprob: Floats = np.full((len(masks), len(read)), np.nan)
        self.kl: Floats = np.full((len(masks), len(read)), np.nan if kl else 0.0)
        self.kl[0] = 0.0
        self.spaces = [
            Space(settings, surrogate.rotation(settings.layer), sequences, masks.shape)
            for settings in spaces
        ]
        self._surrogate, self._masks, self._want_kl = surrogate, masks, kl
        self._questions = questions
        self._read = torch.as_tensor(read)  # the tokens of the question and of the output
        self._logp0: torch.Tensor | None = None  # (Q + T, V) log-probabilities, the prompt unmasked

    def layers(self, space: str) -> set[int]:
        """The layers that distances in such a space are read from."""
        return {s.rotation.layer for s in self.spaces if s.settings.space == space}

    def take(self, piece: Piece) -> None:
        """Write down what a piece shows."""
        self._probabilities(piece.readings, piece.logits)
        for space in self.spaces:
            if piece.whole:
                space.measure(piece.whole, *self._planes(piece, space))
            for row in piece.looking:
                space.look_back(row, np.flatnonzero(self._masks[row.index]))

    def _planes(self, piece: Piece, space: Space) -> tuple[torch.Tensor, torch.Tensor]:
        layer = space.rotation.layer
        if space.settings.space == "key":
            return space.rotation.key_planes(piece.keys[layer])
        positions = np.concatenate([row.positions for row in piece.whole])
        return hidden_planes(piece.hidden[layer], space.rotation, positions)

    def _probabilities(self, readings: Ints, logits: torch.Tensor) -> None:
        """Log-probabilities of the output, and divergences from the unmasked prompt."""
        # The unmasked prompt by itself and first, and never much of the vocabulary in float32 at once.
        full = int((readings[:, 0] == 0).sum())
        most = _LOGITS_ON_CPU if logits.device.type == "cpu" else _LOGITS_IN_FLOAT
        step = max(1, most // logits.shape[-1])
        starts = [*range(0, full, step), *range(full, len(readings), step)]
        for start, stop in pairwise([*starts, len(readings)]):
            which, token = readings[start:stop].T
            values = logits[start:stop].float()
            values -= values.logsumexp(-1, keepdim=True)
            at = torch.as_tensor(token, device=values.device)
            said = values.gather(-1, self._read.to(values.device)[at, None])[:, 0]
            self.logprob[which, token] = said.double().cpu().numpy()
            if not self._want_kl:
                continue
            if self._logp0 is None:
                self._logp0 = values.new_empty(len(self._read), values.shape[-1])
            if start < full:
                self._logp0[at] = values
                continue
            base = self._logp0[at]
            # Not a matrix product, which adds up a large vocabulary too coarsely in float32.
            apart = (base.exp() * values.neg_().add_(base)).sum(-1)
            self.kl[which, token] = apart.double().cpu().numpy()

    def check(self) -> None:
        """Refuse readings that are not numbers."""
        said = slice(self._questions, None)  # a mask may cut into the question
        fine = np.isfinite(self.logprob[:, said]) & np.isfinite(self.kl[:, said])
        bad = ~np.asarray(fine.all(1))
        if bad.any():
            dtype = str(self._surrogate.model.dtype).removeprefix("torch.")
            raise ModelError(
                f"{self._surrogate.name} gave NaN or infinite probabilities under {int(bad.sum())} of "
                f"{len(bad)} masks in {dtype}. Try dtype='float32'; if that fails too, the model "
                "file is damaged."
            )


def _distinct(masks: Masks) -> tuple[Masks, np.ndarray[Any, np.dtype[np.int64]]]:
    """The distinct masks in order of first appearance, and where each mask is among them."""
    _, first, inverse = np.unique(masks, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return masks[first[order]], rank[inverse.reshape(-1)]


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
