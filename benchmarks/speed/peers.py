"""Other attribution libraries, run unmodified on the same model object."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.data import Example
from benchmarks.hardware import Hardware, Measured
from benchmarks.speed.measure import Absent, Contender, Lengths, quiet, reason
from benchmarks.speed.names import CAPTUM_LOO, CAPTUM_SHAPLEY, CONTEXTCITE, SHAPIQ
from benchmarks.store import Row
from ropelime.surrogate.local import LocalSurrogate
from ropelime.typing import Floats, Masks

INSTALL = "pip install 'ropelime[peers]'"
BATCHES = (1, 2, 4, 8, 16)
_TRIED = 16  # masks that each batch size is tried with
_BUDGET = 64


@dataclass(frozen=True)
class Single:
    """A contender that runs one masked prompt at a time, unpadded: each call is a prompt.

    Attributes:
        name: What the tables call it.
        run: Scores everything once.
    """

    name: str
    run: Callable[[], object]

    def lengths(self, measured: Measured) -> Lengths:
        """The length of every call."""
        return [length for _, length in measured.calls]

    def facts(self) -> Row:
        """Nothing more."""
        return {}


class BatchSize:
    """ContextCite's best batch size: each is tried once, on a few masks, at first use."""

    def __init__(self, surrogate: LocalSurrogate, example: Example, masks: Masks) -> None:
        """Take the prompt to try it on."""
        self._surrogate, self._example, self._masks = surrogate, example, masks[:_TRIED]
        self._seconds: dict[int, float] = {}

    def best(self) -> int:
        """The fastest one."""
        if not self._seconds:
            hardware = Hardware(self._surrogate)
            failed: Exception | None = None
            for batch in BATCHES:
                citer = _ContextCite(self._surrogate, self._example, self._masks, batch)
                try:
                    with quiet():
                        self._seconds[batch] = hardware.measure(citer.run).seconds
                except Exception as error:  # a large batch may not fit
                    failed = error
            if not self._seconds and failed:
                raise failed
        return min(self._seconds, key=lambda batch: self._seconds[batch])


def contextcite(
    surrogate: LocalSurrogate, example: Example, masks: Masks, batch: BatchSize
) -> Contender | Absent:
    """ContextCite at its best batch size."""
    if missing := _missing(CONTEXTCITE, "context_cite"):
        return missing
    try:
        return _ContextCite(surrogate, example, masks, batch.best())
    except Exception as error:  # its row says why
        return Absent(CONTEXTCITE, "failed", reason(error))


class _ContextCite:
    name = CONTEXTCITE

    def __init__(self, surrogate: LocalSurrogate, example: Example, masks: Masks, batch: int) -> None:
        self._batch, self._masks = batch, masks
        with quiet():
            self._citer = _citer(surrogate, example, len(masks), batch)

    def run(self) -> object:
        self._citer._cache.pop("reg_masks", None)
        self._citer._cache.pop("reg_logit_probs", None)
        return self._citer._logit_probs

    def lengths(self, measured: Measured) -> Lengths:
        citer = self._citer
        if not np.array_equal(citer._masks, self._masks):
            raise AssertionError("ContextCite drew other masks than the other contenders.")
        answer = len(citer._response_ids)
        return [len(citer._get_prompt_ids(mask)) + answer for mask in self._masks]

    def facts(self) -> Row:
        return {"batch": self._batch}


def _citer(surrogate: LocalSurrogate, example: Example, masks: int, batch: int) -> Any:
    """ContextCite on given sentences and a given answer."""
    from context_cite import ContextCiter
    from context_cite.context_partitioner import BaseContextPartitioner

    before, sources, after = pieces(example)

    class Given(BaseContextPartitioner):  # type: ignore[misc]
        num_sources = len(sources)

        def split_context(self) -> None:
            pass

        def get_source(self, index: int) -> str:
            return sources[index]

        def get_context(self, mask: Any = None) -> str:
            return "".join(s for i, s in enumerate(sources) if mask is None or mask[i])

    tokenizer = copy.deepcopy(surrogate.tokenizer)
    tokenizer.padding_side = "left"
    citer = ContextCiter(
        surrogate.model,
        tokenizer,
        "".join(sources),
        "",
        num_ablations=masks,
        batch_size=batch,
        prompt_template=f"{_braced(before)}{{context}}{_braced(after)}",
        partitioner=Given("".join(sources)),
    )
    _, prompt = citer._get_prompt_ids(return_prompt=True)
    citer._cache["output"] = prompt + example.answer
    return citer


def captum_loo(surrogate: LocalSurrogate, example: Example) -> Contender | Absent:
    """Captum's leave-one-out, with one forward pass per masked prompt, not one per token."""
    return _captum(CAPTUM_LOO, "FeatureAblation", surrogate, example, {})


def captum_shapley(surrogate: LocalSurrogate, example: Example) -> Contender | Absent:
    """Captum's sampled Shapley values, with the smallest number of samples."""
    return _captum(CAPTUM_SHAPLEY, "ShapleyValueSampling", surrogate, example, {"n_samples": 1})


def _captum(
    name: str, method: str, surrogate: LocalSurrogate, example: Example, options: dict[str, Any]
) -> Contender | Absent:
    if missing := _missing(name, "captum.attr"):
        return missing
    before, sources, after = pieces(example)
    tokenizer = surrogate.tokenizer

    def run() -> object:
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": "\0"}], tokenize=False, add_generation_prompt=True
        )
        head, tail = chat.split("\0")
        attr = import_module("captum.attr")
        explained = attr.LLMAttribution(getattr(attr, method)(surrogate.model), tokenizer)
        given = attr.TextTemplateInput(
            lambda *kept: head + before + "".join(kept) + after + tail, list(sources)
        )
        return explained.attribute(given, target=example.answer, forward_in_tokens=False, **options)

    return Single(name, run)


def shapiq(example: Example, score: Callable[[Masks], Floats]) -> Contender | Absent:
    """KernelSHAP of shapiq over a plain loop: shapiq is an estimator and does not score."""
    if missing := _missing(SHAPIQ, "shapiq"):
        return missing
    n = len(example.spans)

    def run() -> object:
        estimator = import_module("shapiq").KernelSHAP(n=n)
        return estimator.approximate(
            budget=_BUDGET, game=lambda masks: score(np.asarray(masks, dtype=bool)).sum(1)
        )

    return Single(SHAPIQ, run)


def pieces(example: Example) -> tuple[str, Sequence[str], str]:
    """The text before the features, each feature with the white space after it, the text after them."""
    text, spans = example.prompt, example.spans
    starts = [start for start, _ in spans]
    sources = [text[a:b] for a, b in zip(starts, [*starts[1:], spans[-1][1]], strict=True)]
    return text[: starts[0]], sources, text[spans[-1][1] :]


def _missing(name: str, module: str) -> Absent | None:
    """Why a peer cannot take part; None if it can, and then it is imported before any timing."""
    if find_spec(module.split(".")[0]) is None:
        return Absent(name, "absent", f"not installed: {INSTALL}")
    try:
        with quiet(), _offline():
            import_module(module)
    except Exception as error:  # its row says why
        return Absent(name, "failed", reason(error))
    return None


@contextmanager
def _offline() -> Iterator[None]:
    """Keep ContextCite from downloading sentence splitters at import: it gets sentences."""
    if find_spec("nltk") is None:
        yield
        return
    nltk: Any = import_module("nltk")
    download = nltk.download
    nltk.download = lambda *_, **__: True
    try:
        yield
    finally:
        nltk.download = download


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
