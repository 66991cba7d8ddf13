"""At loading, a few tokens show whether packed, chunked and cached scoring agree with the plain model.

Which layers mix tokens, and how, no config says reliably. So a model is asked: the reference is a plain
call over each masked prompt by itself. Whatever differs from it on this machine is not used.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import transformers

from ropelime._version import __version__
from ropelime.errors import InputError, ModelError, first_line
from ropelime.files import replacing
from ropelime.surrogate.architecture import few_predictions, first_layers
from ropelime.surrogate.base import Ablation
from ropelime.surrogate.checkpoints import LOADING, quietly
from ropelime.surrogate.engine import FAILURES, Engine, ForwardResult, Ways
from ropelime.surrogate.memory import OUT_OF_MEMORY, input_device, is_out_of_memory
from ropelime.surrogate.sequences import JoinedSequences, MaskedSequences
from ropelime.surrogate.tokens import TokenizedPrompt
from ropelime.typing import Masks

# Three features behind a pinned token and before a pinned end, and an output of three tokens.
_OWNER = np.array([-1, 0, 0, 1, 1, 1, 2, 2, -1, -1])
_OUTPUT = 3
_FULL, _PART, _NONE = (np.array(kept, dtype=bool) for kept in ([1, 1, 1], [1, 0, 1], [0, 0, 0]))
_SHARED = 3  # tokens that the sequences of _FULL and _PART begin with
_CHUNK = 10  # tokens of a forward pass, so that sequences are cut
_PREDICTED = 1024  # tokens whose predictions are compared; all of them take most of the time
_NO_EFFECT = 0.01  # of what counts as different: what positions must change at least

_UNCHECKED = Ways()  # of a model whose predictions are not finite
_NOT_PACKED = (
    "Packed forward passes of the surrogate differ from plain ones, so every masked prompt was run by "
    "itself."
)
_TRIMMED = "its predictions change when only those of the output are computed"

_CHECKED: WeakKeyDictionary[Any, Ways] = WeakKeyDictionary()  # of each model in this process


def checked(engine: Engine, *, folder: Path | None = None) -> Ways:
    """What a model supports: by the check, or by its result if that is known.

    Args:
        engine: Runs the model.
        folder: Where results are kept for later processes; nowhere if None.

    Raises:
        ModelError: If it is not a causal language model, or cannot be run at all.
    """
    with LOADING:
        if (known := _CHECKED.get(engine.model)) is not None:
            return known
        path = None if folder is None else folder / "checks" / f"{_fingerprint(engine.model)}.json"
        ways = _read(path)
        if ways is None:
            ways = check(engine)
            if ways is not _UNCHECKED:
                _write(path, ways)
        _CHECKED[engine.model] = ways
        return ways


def check(engine: Engine) -> Ways:
    """Compare packed, chunked and cached scoring of a few tokens with plain forward passes."""
    try:
        with torch.inference_mode(), quietly(), _one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of options that some models do not take
            if (ways := _of_first_layers(engine)) == Ways():  # mostly
                return ways
            return _Check(engine).ways()
    except OUT_OF_MEMORY as error:
        if not is_out_of_memory(error):
            raise
        raise ModelError(
            f"{engine.name} does not fit into the memory of {input_device(engine.model)} with even a "
            "few tokens. Use a smaller surrogate, dtype='bfloat16', or a device with more memory."
        ) from error


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: with a few tokens, several would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _of_first_layers(engine: Engine) -> Ways | None:
    """The result for the first few layers and a part of the vocabulary, which takes little time.

    None if they cannot be run alone.
    """
    depth = engine.depth
    try:
        with first_layers(engine.model) as few, few_predictions(engine.model, _PREDICTED):
            if few is None:
                return None
            engine.depth = few
            return _Check(engine).ways()
    except ModelError:
        return None
    finally:
        engine.depth, engine.ways = depth, Ways()


@dataclass(frozen=True)
class _Trial:
    """The full mask and another one, how they are run, and what plain forward passes predict."""

    how: str  # of the ablation
    mask: Masks
    expected: list[torch.Tensor]  # (q, V) log-probabilities under the full mask, and under the other
    cached: bool = False


class _Check:
    """One check of one model."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        model = engine.model
        # Of the total variation distance of two predictions: 0.0007 in float32, 0.18 in bfloat16.
        quantised = getattr(model.config, "quantization_config", None) is not None
        coarse = torch.finfo(torch.bfloat16).eps if quantised else torch.finfo(model.dtype).eps
        self._tolerance = 2 * coarse**0.5
        vocabulary = int(model.config.get_text_config().vocab_size)
        self._ids = np.arange(8, 8 + len(_OWNER) + _OUTPUT) % vocabulary

    def ways(self) -> Ways:
        """What agrees with plain forward passes."""
        engine = self.engine
        try:
            full, part = (self._plain("delete", mask, counted=False) for mask in (_FULL, _PART))
        except FAILURES as error:
            if is_out_of_memory(error):
                raise
            raise self._refusal(f"{type(error).__name__}: {first_line(error)}") from error
        if not bool(full.isfinite().all() & part.isfinite().all()):
            return _UNCHECKED  # scoring will say what is wrong
        if _distance(full[:_SHARED], part[:_SHARED]) > self._tolerance:
            raise ModelError(
                f"{engine.name} ({type(engine.model).__name__}) is not a causal language model: what "
                "it predicts depends on later tokens. Use a model that was trained to continue text."
            )
        moved = self._moved(part)
        engine.ways = Ways(moves=moved is not None)
        exact, cached = _Trial("delete", _PART, [full, part]), None
        if moved is not None:
            exact = _Trial("in-place", _PART, [full, moved])
            if engine.supports_cached(len(self._ids)):
                alone = self._plain("in-place", _NONE)
                cached = _Trial("delete", _NONE, [full, alone], cached=True)
        if cached is not None and self._agree(exact, cached):  # together they take fewer passes
            return replace(engine.ways, packs=engine.packs(len(self._ids)))
        if not self._agree(exact):
            if not engine.packs(len(self._ids)):
                raise self._refusal(_TRIMMED)
            engine.ways = replace(engine.ways, packs=False, note=_NOT_PACKED)
            if not self._agree(exact):
                raise self._refusal(_TRIMMED)
        caches = cached is not None and self._agree(cached)
        return replace(engine.ways, packs=engine.packs(len(self._ids)), caches=caches)

    def _refusal(self, why: str) -> ModelError:
        engine = self.engine
        return ModelError(
            f"{engine.name} ({type(engine.model).__name__}) cannot be used as a surrogate: a forward "
            f"pass over {len(self._ids)} tokens fails ({why}). Choose another model; docs/"
            "results/architectures.md lists those that work."
        )

    def _tokenized(self, how: str) -> TokenizedPrompt:
        prompt, output = np.split(self._ids, [len(_OWNER)])
        return TokenizedPrompt(prompt, _OWNER, output, Ablation(how), prompt[:0], prompt[:1])

    def _plain(self, how: str, mask: Masks, *, counted: bool = True) -> torch.Tensor:
        """(q, V) log-probabilities of a plain call over one masked prompt with the output.

        Positions are given to the model if ``counted``; else it counts for itself.
        """
        sequence = self._tokenized(how).sequence(0, mask)
        positions = sequence.positions if counted else None
        logits: torch.Tensor = self.engine.plain(sequence.ids, positions).logits[0]
        return logits.float().log_softmax(-1)

    def _moved(self, part: torch.Tensor) -> torch.Tensor | None:
        """Predictions with the kept tokens at their positions; None if the model takes no positions.

        It must count them as we do, from 0, and they must have an effect.
        """
        try:
            counted, moved = (self._plain(how, _PART) for how in ("delete", "in-place"))
        except FAILURES as error:
            if is_out_of_memory(error):
                raise
            return None
        same = _distance(counted, part) <= self._tolerance
        return moved if same and _distance(moved, part) > _NO_EFFECT * self._tolerance else None

    def _agree(self, *trials: _Trial) -> bool:
        """Whether the engine predicts what plain forward passes do, for all masks of all trials."""
        found: dict[tuple[int, int], torch.Tensor] = {}

        def take(result: ForwardResult) -> None:
            for (mask, token), logits in zip(result.scored.tolist(), result.logits, strict=True):
                found[mask, token] = logits.float().log_softmax(-1)

        requests = [
            MaskedSequences(
                self._tokenized(trial.how), np.stack([_FULL, trial.mask]), cached=trial.cached
            )
            for trial in trials
        ]
        try:
            self.engine.run(JoinedSequences(requests, [False] * len(requests)), take, tokens=_CHUNK)
        except FAILURES as error:
            if is_out_of_memory(error):
                raise
            return False
        expected = [predicted for trial in trials for predicted in trial.expected]
        return all(
            _distance(found[mask, token], predicted[token]) <= self._tolerance
            for mask, predicted in enumerate(expected)
            for token in range(-_OUTPUT, 0)
        )


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest total variation distance of (q, V) predictions; infinite if some are not finite."""
    largest = float((a.exp() - b.to(a.device).exp()).abs().sum(-1).max()) / 2
    return largest if math.isfinite(largest) else math.inf


def _fingerprint(model: Any) -> str:
    """What the result of a check depends on."""
    device = input_device(model)
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    known = {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}
    versions = [__version__, torch.__version__, transformers.__version__]
    facts = [type(model).__name__, str(model.dtype), chip, versions, known]
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(path: Path | None) -> Ways | None:
    """A result that was kept; None if there is none, or it cannot be read."""
    try:
        return None if path is None else Ways(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path | None, ways: Ways) -> None:
    """Keep a result; where nothing can be written, the next process checks again."""
    if path is None:
        return
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(json.dumps(asdict(ways)).encode())
