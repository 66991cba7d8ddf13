"""A transformers model as a surrogate: masks read exactly or cheaply."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from ropelime.errors import InputError, ModelError
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import Ints, Masks, Scores
from ropelime.surrogate import rotary
from ropelime.surrogate.base import Ablation, Progress, Scorer, ScoreRequest, Surrogate
from ropelime.surrogate.chat_template import Encoder
from ropelime.surrogate.checkpoints import method_of
from ropelime.surrogate.engine import Engine, input_device
from ropelime.surrogate.logprobs import Readings, Taker, distinct
from ropelime.surrogate.packing import Packer
from ropelime.surrogate.sequences import Rows, Several
from ropelime.surrogate.tokens import Layout, Window
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, Span

# One run of a model at a time: it may serve several threads, and several surrogates.
_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_LOCKING = threading.Lock()


class LocalSurrogate(Surrogate):
    """A causal language model of transformers with its tokenizer."""

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str | None = None, compiled: bool = False
    ) -> None:
        """Take a loaded model and its fast tokenizer.

        Args:
            model: A causal language model, on the device and in the dtype that it shall run in.
            tokenizer: Its tokenizer.
            name: What to call it in explanations.
            compiled: Whether torch compiles its layers, for runs that last: the first readings then
                take a minute, and seconds in later processes. Needs a compiler.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.encoder = Encoder(tokenizer)
        self.engine = Engine(model, self.name, compiled=compiled)
        with _LOCKING:
            self.lock = _LOCKS.setdefault(model, threading.Lock())
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
        if self.engine.compiled:
            facts["compiled"] = True
        if quantised := getattr(self.model.config, "quantization_config", None):
            facts["quantization"] = method_of(quantised)
        return facts

    def token_spans(self, prompt: Prompt) -> tuple[Span, ...]:
        """Where each token of the rendered prompt lies in ``prompt.text``."""
        return self.encoder.token_spans(prompt)

    def prepare(
        self,
        prompt: Prompt,
        features: tuple[Feature, ...],
        output: str,
        *,
        ablation: Ablation = Ablation(),  # noqa: B008 - it is frozen
    ) -> LocalScorer:
        """Tokenise the prompt once and assign every token to its feature."""
        window = Window(self.name, self.window)
        layout = Layout.of(self.encoder, prompt, features, output, ablation=ablation, window=window)
        return LocalScorer(self, layout)

    def score_all(
        self,
        requests: Sequence[ScoreRequest],
        *,
        progress: Progress | None = None,
        batch_tokens: int | None = None,
    ) -> list[Scores]:
        """Score several requests, their sequences packed together.

        Args:
            requests: What to score, by scorers that this surrogate prepared.
            progress: Called with the tokens done and the tokens in all.
            batch_tokens: Tokens of a batch; chosen by the device where it is not given.
        """
        start = time.perf_counter()
        scoring = [Readings(self, request) for request in requests]
        rows = Several([r.rows for r in scoring], [r.shares_previous for r in requests])
        taker = Taker(scoring, rows.numbers)
        with self.lock, torch.inference_mode():
            run, note = self.engine.run(
                rows,
                taker.take,
                keys=set().union(*(r.layers("key") for r in scoring)),
                hidden=set().union(*(r.layers("hidden") for r in scoring)),
                tokens=batch_tokens,
                progress=progress,
            )
        scored = rows.alone(run)
        seconds = (time.perf_counter() - start) * scored / scored.sum()
        return [
            r.scores(int(tokens), float(took), note)
            for r, tokens, took in zip(scoring, scored, seconds, strict=True)
        ]

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


class LocalScorer(Scorer):
    """One prompt and one output, ready to be read under any masks."""

    def __init__(self, surrogate: LocalSurrogate, layout: Layout) -> None:
        """Made by :meth:`LocalSurrogate.prepare`."""
        self.has_question = layout.has_question
        self.sequences = layout.sequences
        self.output_spans = layout.output_spans
        self._surrogate = surrogate
        length = len(self.sequences.ids) + len(self.sequences.output_ids)
        self.supports_cached = surrogate.engine.supports_cached(length)

    def score(
        self,
        masks: Masks,
        *,
        kl: bool,
        spaces: Sequence[RopeSpace] = (),
        cached: bool = False,
        question: bool = False,
        progress: Progress | None = None,
        batch_tokens: int | None = None,
    ) -> Scores:
        """Read the output under each mask.

        Args:
            masks: (N, n) masks, the first of them all ones.
            kl: Whether divergences are wanted.
            spaces: The rotary spaces that distances are wanted in.
            cached: Run the prompt once, and for each mask only what follows the last feature, with the
                removed features hidden from it. Kept features have then seen the removed ones.
            question: Read what stands between the last feature and the output too.
            progress: Called with the tokens done and the tokens in all.
            batch_tokens: Tokens of a batch; chosen by the device where it is not given.
        """
        request = ScoreRequest(self, masks, kl, tuple(spaces), cached, question)
        return self._surrogate.score_all([request], progress=progress, batch_tokens=batch_tokens)[0]

    def cost(self, masks: Masks, *, cached: bool = False) -> Ints:
        """(N,) tokens that reading each mask would take."""
        kept, inverse = distinct(masks)
        return np.asarray(Rows(self.sequences, kept, cached=cached).costs()[0][inverse])

    def count(self, masks: Masks, *, cached: bool = False) -> int:
        """Tokens that reading these masks would run, the first of them all ones, shared work once."""
        return self._packer(masks, cached=cached).tokens

    def pairs(self, masks: Masks, *, cached: bool = False) -> int:
        """Pairs of a token and a key that it looks at, in all that reading these masks would run."""
        return self._packer(masks, cached=cached).pairs

    def _packer(self, masks: Masks, *, cached: bool) -> Packer:
        kept, _ = distinct(masks)
        return Packer(Rows(self.sequences, kept, cached=cached))

    def rows(self, masks: Masks, *, cached: bool, question: bool) -> Rows:
        """The rows of distinct masks, which the model can read."""
        rows = Rows(
            self.sequences, masks, cached=cached, question=self.sequences.question if question else 0
        )
        self._check(rows, cached=cached)
        return rows

    def _check(self, rows: Rows, *, cached: bool) -> None:
        surrogate = self._surrogate
        Window(surrogate.name, surrogate.window).check_grown(rows.reach + 1)
        if cached and not self.supports_cached:
            raise ModelError(
                f"{surrogate.name} does not look back at all of a prompt this long in the same way, so "
                "it has no cheap readings of it. Use readings='exact'."
            )
