"""A transformers model as a surrogate: masks scored exactly, or with the KV cache of the prompt."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import transformers

from ropelime.errors import InputError, Interrupted, ModelError
from ropelime.method.learnt import learnt_heads
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Scores
from ropelime.surrogate.base import (
    Ablation,
    Lengths,
    Load,
    Progress,
    Scorer,
    ScoreRequest,
    Surrogate,
    check_first_unmasked,
)
from ropelime.surrogate.chat_template import Encoder
from ropelime.surrogate.checkpoints import method_of
from ropelime.surrogate.engine import Capture, Engine
from ropelime.surrogate.logprobs import Head, ScoreCollector, distinct, route
from ropelime.surrogate.memory import input_device
from ropelime.surrogate.rotary import RotaryDistances, Rotation, candidates, measure, refuse
from ropelime.surrogate.selfcheck import checked
from ropelime.surrogate.sequences import JoinedSequences, MaskedSequences
from ropelime.surrogate.tokens import ContextWindow, TokenizedPrompt, tokenize
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span
from ropelime.typing import Ints, Masks

# A model runs once at a time: it may serve several threads, and several surrogates.
_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_LOCKING = threading.Lock()
_UNMOVED = (
    "{} takes no positions (ALiBi, a recurrent model, or one that counts for itself), so "
    "ablation='in-place' does the same as 'delete'."
)


class LocalSurrogate(Surrogate):
    """A causal language model of transformers with its tokenizer."""

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str | None = None, checks: Path | None = None
    ) -> None:
        """Take a model, on the device and in the dtype that it runs in, and its fast tokenizer.

        ``checks`` is a folder that keeps how each model can be run, for later processes.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.encoder = Encoder(tokenizer)
        self.engine = Engine(model, self.name)
        self.engine.ways = checked(self.engine, folder=checks)
        config = model.config.get_text_config()
        self.layers, self.vocabulary = int(config.num_hidden_layers), int(config.vocab_size)
        self.window: int | None = getattr(config, "max_position_embeddings", None) or None  # tokens
        with _LOCKING:
            self.lock = _LOCKS.setdefault(model, threading.Lock())
        self._rotations: dict[int, Rotation | None] = {}

    @property
    def device(self) -> torch.device:
        """The device of the model's inputs."""
        return input_device(self.model)

    def describe(self) -> dict[str, Any]:
        """What an explanation records about the model."""
        facts = {
            "name": self.name,
            "architecture": type(self.model).__name__,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.device.type,
            "torch": str(torch.__version__).split("+")[0],
            "transformers": transformers.__version__,
        }
        if quantised := getattr(self.model.config, "quantization_config", None):
            facts["quantization"] = method_of(quantised)
        return facts

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Where each token of the rendered prompt lies in ``prompt.text``."""
        return self.encoder.token_spans(prompt)

    def fits(self, prompt: Prompt, output: str) -> bool:
        """Whether the model can read the prompt and the output at once."""
        return ContextWindow(self.name, self.window).fits(self.encoder, prompt, output)

    def lengths(self, prompt: Prompt, features: tuple[Feature, ...], output: str) -> Lengths:
        """How long a prompt is that does not fit."""
        return ContextWindow(self.name, self.window).lengths(self.encoder, prompt, features, output)

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> LocalScorer:
        """Tokenise the prompt and the output, and assign every token to its feature."""
        window = ContextWindow(self.name, self.window, self.vocabulary)
        tokenized = tokenize(self.encoder, prompt, features, output, ablation=ablation, window=window)
        return LocalScorer(self, tokenized)

    def score_all(
        self,
        requests: Sequence[ScoreRequest],
        *,
        progress: Progress | None = None,
        batch_tokens: int | None = None,
    ) -> list[Scores]:
        """Score several requests, their sequences packed together.

        ``batch_tokens`` are the most tokens of a forward pass; chosen by the device if not given.
        """
        if not requests:
            return []
        start = time.perf_counter()
        collectors = [self._collector(request) for request in requests]
        shares_previous = [request.shares_previous for request in requests]
        sequences = JoinedSequences([c.sequences for c in collectors], shares_previous)
        keys, hidden = ({n for c in collectors for n in c.layers(space)} for space in ("key", "hidden"))
        take = partial(route, collectors, sequences.first_masks)
        watched = {
            int(first): collector.attention
            for first, collector in zip(sequences.first_masks, collectors, strict=False)
            if collector.attention is not None
        }
        with self.lock, torch.inference_mode():
            try:
                run, note = self.engine.run(
                    sequences,
                    take,
                    capture=Capture(keys, hidden, watched),
                    tokens=batch_tokens,
                    progress=progress,
                )
            except KeyboardInterrupt:
                each = (time.perf_counter() - start) / len(collectors)
                kept = [collector.so_far(self.name, each) for collector in collectors]
                raise Interrupted(kept) from None
        tokens_run = sequences.tokens_alone(run)
        seconds = (time.perf_counter() - start) * tokens_run / tokens_run.sum()
        return [
            collector.scores(self.name, self.model.dtype, int(tokens), float(took), note)
            for collector, tokens, took in zip(collectors, tokens_run, seconds, strict=True)
        ]

    def _collector(self, request: ScoreRequest) -> ScoreCollector:
        check_first_unmasked(request.masks)
        scorer = request.scorer
        if not isinstance(scorer, LocalScorer) or scorer.surrogate is not self:
            raise InputError(
                f"{self.name} scores only what it has prepared; this request has a scorer of another "
                "surrogate. Call score_all() of the surrogate whose prepare() made it."
            )
        masks, inverse = distinct(request.masks)
        sequences = scorer.sequences(masks, cached=request.cached, question=request.question)
        distances = [
            RotaryDistances(space, self.rotation(space.layer), scorer.tokenized, masks)
            for space in request.spaces
        ]
        found = (masks, inverse)
        heads = self.heads if request.attention else ()
        return ScoreCollector(request, scorer.tokenized, found, sequences, distances, heads)

    @cached_property
    def heads(self) -> Sequence[Head]:
        """The heads that ``preset="instant"`` looks at: learnt ones, or all of the middle layers."""
        if (learnt := learnt_heads(self.shape)) is not None:
            return learnt
        count = int(getattr(self.model.config.get_text_config(), "num_attention_heads", 1))
        middle = range(self.layers // 2, max(self.layers * 5 // 6, self.layers // 2 + 1))
        return [(layer, number, 1.0) for layer in middle for number in range(count)]

    @property
    def shape(self) -> str:
        """What tells models of one kind and size from all others."""
        config = self.model.config.get_text_config()
        heads = f"{self.layers} layers of {getattr(config, 'num_attention_heads', 0)} heads"
        return f"{config.model_type}, {heads}, {config.hidden_size} wide, {self.vocabulary} tokens"

    def rotation(self, layer: int | float) -> Rotation:
        """The planes of a layer, given by number or as a fraction of the depth."""
        index = int(layer * self.layers) if isinstance(layer, float) else int(layer)
        if not -self.layers <= index < self.layers:
            raise InputError(f"{self.name} has {self.layers} layers; there is no layer {layer}.")
        index %= self.layers
        if not candidates(self.model):
            raise refuse(self.name)
        found = self._measured(index)
        if found is None and isinstance(layer, float):
            # Some models leave every few layers unrotated: a fraction means the nearest rotated layer.
            near = sorted(range(self.layers), key=lambda other: abs(other - index))
            found = next((r for r in map(self._measured, near) if r is not None), None)
        if found is None:
            raise refuse(self.name, index)
        return found

    def _measured(self, layer: int) -> Rotation | None:
        if layer not in self._rotations:
            ids = np.arange(8, 24) % self.vocabulary
            places = np.arange(len(ids))
            with self.lock, torch.inference_mode():
                before, after = (self.engine.keys(ids, places + shift, layer) for shift in (0, 1))
            if before is not None and after is not None:
                self._rotations[layer] = measure(before, after, self.model, layer)
            else:  # a layer without attention
                self._rotations[layer] = None
        return self._rotations[layer]


class LocalScorer(Scorer):
    """One prompt and one output, ready to be scored under any masks."""

    def __init__(self, surrogate: LocalSurrogate, tokenized: TokenizedPrompt) -> None:
        self.surrogate, self.tokenized = surrogate, tokenized
        self.output_spans = tokenized.output_spans
        self.has_question = tokenized.has_question
        length = len(tokenized.ids) + len(tokenized.output_ids)
        self.supports_cached = surrogate.engine.supports_cached(length)
        self.shows_attention = surrogate.engine.packs(length)  # which is where it can be watched
        if tokenized.ablation.how == "in-place" and not surrogate.engine.ways.moves:
            self.notes = (_UNMOVED.format(surrogate.name),)

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        attention: bool = False,
        progress: Progress | None = None,
        batch_tokens: int | None = None,
    ) -> Scores:
        """As :meth:`Scorer.score`; ``batch_tokens`` are those of a forward pass, if not the default."""
        request = ScoreRequest(self, masks, kl, tuple(spaces), cached, question, attention=attention)
        return self.surrogate.score_all([request], progress=progress, batch_tokens=batch_tokens)[0]

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens that scoring each mask takes by itself."""
        kept, inverse = distinct(masks)
        return np.asarray(MaskedSequences(self.tokenized, kept, cached=cached).costs()[0][inverse])

    def load(self, masks: Masks, *, cached: bool = False) -> Load:
        """About what scoring the masks takes."""
        sequences = MaskedSequences(self.tokenized, distinct(masks)[0], cached=cached)
        return self.surrogate.engine.load(sequences)

    def sequences(self, masks: Masks, *, cached: bool, question: bool) -> MaskedSequences:
        """The sequences of distinct masks; refuses those that the model cannot score."""
        n_question = self.tokenized.n_question if question else 0
        sequences = MaskedSequences(self.tokenized, masks, cached=cached, n_question=n_question)
        name = self.surrogate.name
        ContextWindow(name, self.surrogate.window).check_placeholders(sequences.max_end + 1)
        if cached and not self.supports_cached:
            longer = self.surrogate.engine.supports_cached(1)
            why = (
                "attend to all of a prompt this long in the same way"
                if longer
                else ("let later tokens attend to a part of its KV cache")
            )
            raise ModelError(
                f"{name} ({type(self.surrogate.model).__name__}) does not {why}, so the prompt cannot "
                "be scored with its KV cache. Use scoring='exact'."
            )
        return sequences
