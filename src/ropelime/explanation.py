"""The result: what was explained, the share of every feature, and how far to trust it."""

from __future__ import annotations

import base64
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ropelime import segment
from ropelime.attribution import Recipe, attribute
from ropelime.diagnostics import Diagnostics, diagnose
from ropelime.errors import InputError
from ropelime.features import Feature
from ropelime.passes import Asked, Floats, Ints, Passes
from ropelime.prompt import Message, Origin, Prompt, Span
from ropelime.rope import RopeSpace
from ropelime.trust import Trust, judge

if TYPE_CHECKING:
    from ropelime.citations import Cited

FORMAT = "ropelime.explanation"
VERSION = 1


@dataclass(frozen=True)
class Share:
    """One feature in a ranking.

    Attributes:
        index: Which feature it is.
        text: Its text.
        score: Its share.
        weight: Its signed weight.
        interval: Ends of the 90 % interval of the weight; None in files of older releases.
        rank: Its place; features that cannot be told apart from the one above share a place.
    """

    index: int
    text: str
    score: float
    weight: float
    interval: tuple[float, float] | None = None
    rank: int = 0


@dataclass(frozen=True)
class Cost:
    """What an explanation cost.

    Attributes:
        passes: Masked prompts that were read.
        tokens: Tokens that the surrogate ran, shared work counted once.
        seconds: Time it took; not saved, because it belongs to the run and not to the result.
    """

    passes: int
    tokens: int
    seconds: float | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False)
class Explanation:
    """Which parts of a prompt carried an output.

    Attributes:
        prompt: What was sent to the model.
        output: The answer that is explained.
        features: The parts of the prompt that were scored.
        scores: (n,) at least 0, sum 1.
        weights: (n,) signed, in ``config["unit"]``; positive supports the output.
        token_weights: (n, T) the same fit for each output token.
        output_spans: Where each output token lies in the output.
        span: The part of the output that the scores are for.
        passes: The readings: the unmasked prompt, the prompt with no feature, then the masks.
        cost: Passes, tokens and seconds.
        diagnostics: How far to trust it.
        config: Every choice that was made.
        recipe: The strategies themselves; a loaded explanation builds them from ``config``.
        intervals: (n, 2) ends of the 90 % interval of each weight; None in files of older releases.
        trust: One number and a sentence on how far to trust it; None in files of older releases.
    """

    prompt: Prompt
    output: str
    features: tuple[Feature, ...]
    scores: Floats
    weights: Floats
    token_weights: Floats
    output_spans: tuple[Span, ...]
    span: Span
    passes: Passes
    cost: Cost
    diagnostics: Diagnostics
    config: Mapping[str, Any]
    recipe: Recipe | None = field(default=None, repr=False)
    intervals: Floats | None = None
    trust: Trust | None = None

    def __post_init__(self) -> None:
        for array in (self.scores, self.weights, self.token_weights, self.intervals):
            if array is not None:
                array.setflags(write=False)

    @property
    def score_intervals(self) -> Floats | None:
        """(n, 2) ends of the 90 % interval of each share, the sum of all weights taken as it is."""
        if self.intervals is None:
            return None
        total = float(np.abs(self.weights).sum())
        if total == 0:  # the shares are equal for want of anything else
            return np.tile([0.0, 1.0], (len(self.weights), 1))
        ends = np.abs(self.intervals) / total
        low = np.where(np.prod(np.sign(self.intervals), 1) > 0, ends.min(1), 0.0)
        return np.stack([low, np.minimum(ends.max(1), 1.0)], 1)

    @property
    def ranks(self) -> Ints:
        """(n,) places in the ranking; features that cannot be told apart share the first of theirs.

        Going down the ranking, a feature takes a new place when the first of the place above lies
        outside its interval.
        """
        order = np.argsort(-self.scores, kind="stable")
        ranks = np.empty(len(order), dtype=np.int64)
        size = np.abs(self.weights)
        half = np.zeros(len(size)) if self.intervals is None else np.ptp(self.intervals, axis=1) / 2
        first, place = order[0], 1
        for number, i in enumerate(order, 1):
            if size[first] - size[i] > half[i]:
                first, place = i, number
            ranks[i] = place
        return ranks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        first = self.top(1)[0]
        text = first.text.strip()
        shown = text if len(text) <= 60 else text[:57] + "..."
        return (
            f"<Explanation of {self.output[:40]!r} over {len(self.features)} features; "
            f"first is {shown!r} with {first.score:.0%}>"
        )

    def top(self, k: int | None = None) -> list[Share]:
        """The features by score, the largest first; all of them, or the first ``k``."""
        if k is not None and k < 0:
            raise InputError(f"top() takes a number that is not negative, not {k}.")
        order = np.argsort(-self.scores, kind="stable")[:k]
        ranks, ends = self.ranks, self.intervals
        return [
            Share(
                int(i),
                self.features[i].text,
                float(self.scores[i]),
                float(self.weights[i]),
                None if ends is None else (float(ends[i, 0]), float(ends[i, 1])),
                int(ranks[i]),
            )
            for i in order
        ]

    def for_output(self, start: int, end: int) -> Explanation:
        """The explanation of one span of the output, from the readings that are there.

        Args:
            start: First character of the span in the output.
            end: The character after its last.
        """
        first, last = self.tokens_in(start, end)
        config = self.config
        recipe = self.recipe or Recipe.of(*(config[k] for k in ("target", "kernel", "regressor")))
        return build(
            self.prompt,
            self.output,
            self.features,
            self.output_spans[first:last],
            self.passes.columns(first, last),
            recipe,
            config,
            span=(start, end),
            cost=self.cost,
            asked=self.diagnostics.masks_asked,
            notes=self.diagnostics.notes,
        )

    @property
    def output_sentences(self) -> tuple[Span, ...]:
        """Where each sentence of the explained output lies, without the white space around it."""
        first, last = self.span
        found = []
        for start, end in segment.sentences(self.output[first:last]):
            text = self.output[first + start : first + end]
            start, end = (
                first + start + len(text) - len(text.lstrip()),
                first + start + len(text.rstrip()),
            )
            if any(a < end and b > start for a, b in self.output_spans):
                found.append((start, end))
        return tuple(found)

    def tokens_in(self, start: int, end: int) -> tuple[int, int]:
        """The output tokens that lie in a span of the output, at least in part: first, and after last.

        Args:
            start: First character of the span in the output.
            end: The character after its last.
        """
        first, last = self.span
        if not first <= start < end <= last:
            raise InputError(
                f"({start}, {end}) does not lie in the explained output; "
                f"{first} <= start < end <= {last} is needed."
            )
        inside = [i for i, (a, b) in enumerate(self.output_spans) if a < end and b > start]
        if not inside:
            raise InputError(f"No output token lies in ({start}, {end}).")
        return inside[0], inside[-1] + 1

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The explanation as one self-contained page.

        Args:
            path: Where to write it too; an existing file is replaced in one step or not at all.
        """
        from ropelime.views.html import report

        page = report(self)
        if path is not None:
            write_text(Path(path), page)
        return page

    def cite(self) -> Cited:
        """The answer with marks on its sentences, and the parts of the prompt that they stand for.

        The rule is that of :func:`ropelime.citations.cite`.
        """
        from ropelime.citations import cite

        return cite(self)

    def _repr_html_(self) -> str:
        from ropelime.views.html import frame

        return frame(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the same for the same seed: no times in it."""
        passes = self.passes
        return {
            "format": FORMAT,
            "version": VERSION,
            "output": self.output,
            "prompt": asdict(self.prompt),
            "features": [asdict(feature) for feature in self.features],
            "scores": self.scores.tolist(),
            "weights": self.weights.tolist(),
            "token_weights": _pack(self.token_weights),
            "intervals": None if self.intervals is None else self.intervals.tolist(),
            "trust": None if self.trust is None else asdict(self.trust),
            "output_spans": [list(span) for span in self.output_spans],
            "span": list(self.span),
            "passes": {
                "masks": ["".join("01"[int(z)] for z in mask) for mask in passes.masks],
                "logprob": _pack(passes.logprob),
                "kl": None if passes.kl is None else _pack(passes.kl),
                "distances": [
                    {"space": asdict(space), "values": _pack(values)}
                    for space, values in passes.distances.items()
                ],
                "tokens": passes.tokens.tolist(),
                "exact": "".join("01"[int(e)] for e in passes.exact),
                "asked": None
                if passes.asked is None
                else {"logprob": _pack(passes.asked.logprob), "kl": _pack(passes.asked.kl)},
                "scored": passes.scored,
            },
            "cost": {"passes": self.cost.passes, "tokens": self.cost.tokens},
            "diagnostics": _finite(asdict(self.diagnostics)),
            "config": dict(self.config),
        }

    def to_json(self) -> str:
        """The explanation as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the explanation as JSON; an existing file is replaced in one step or not at all."""
        write_text(Path(path), self.to_json())


def load(path: str | os.PathLike[str]) -> Explanation:
    """Read an explanation that :meth:`Explanation.save` wrote."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is no complete JSON ({error}). It may have been cut off; make the explanation "
            "again."
        ) from None
    return from_dict(data, source=str(path))


def from_dict(data: Any, *, source: str = "The data") -> Explanation:
    """Build an explanation from what :meth:`Explanation.to_dict` gave."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise InputError(f"{source} is no ropelime explanation (its format is not {FORMAT!r}).")
    if data.get("version") != VERSION:
        raise InputError(
            f"{source} has version {data.get('version')} of the format and this release reads "
            f"{VERSION}. Read it with the release that wrote it, or update: pip install -U ropelime."
        )
    try:
        return _read(data)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{source} is damaged: {type(error).__name__}: {error}.") from None


def build(
    prompt: Prompt,
    output: str,
    features: tuple[Feature, ...],
    output_spans: tuple[Span, ...],
    passes: Passes,
    recipe: Recipe,
    config: Mapping[str, Any],
    *,
    span: Span,
    cost: Cost,
    asked: int,
    notes: tuple[str, ...] = (),
) -> Explanation:
    """Fit the readings and say how far the result can be trusted.

    Args:
        prompt: What was sent.
        output: The whole answer.
        features: The features, in the order of the masks.
        output_spans: The output tokens that the readings are of.
        passes: The readings: the unmasked prompt, the prompt with no feature, then the masks.
        recipe: How to fit them.
        config: Every choice that was made.
        span: The part of the output that is explained.
        cost: What the readings cost.
        asked: How many masks the sampler was to draw.
        notes: What was done differently from what was asked.
    """
    used = passes.select(np.delete(np.arange(len(passes.masks)), 1))
    fitted = attribute(used, recipe)
    return Explanation(
        prompt=prompt,
        output=output,
        features=features,
        scores=fitted.scores,
        weights=fitted.weights,
        token_weights=fitted.token_weights,
        output_spans=output_spans,
        span=span,
        passes=passes,
        cost=cost,
        diagnostics=diagnose(passes, fitted, asked=asked, notes=notes),
        config=config,
        recipe=recipe,
        intervals=fitted.weights[:, None] + fitted.half[:, None] * np.array([-1.0, 1.0]),
        trust=judge(used, fitted),
    )


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; the name of a file is needed.")
    if path.exists() and not path.is_file():  # a pipe or a device must not be replaced by a file
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # follow links
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder} to write {path.name} into.")
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes private files
        os.replace(name, path)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise InputError(f"{path} cannot be written: {error.strerror}.") from None
        raise


def _pack(array: Floats) -> dict[str, Any]:
    data = np.ascontiguousarray(array, dtype="<f8")
    return {"shape": list(array.shape), "float64": base64.b64encode(data.tobytes()).decode("ascii")}


def _unpack(entry: Mapping[str, Any]) -> Floats:
    data = np.frombuffer(base64.b64decode(entry["float64"], validate=True), dtype="<f8")
    return data.reshape(entry["shape"]).astype(np.float64)


def _finite(entry: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: an undefined figure is null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in entry.items()
    }


def _trust(value: float, text: str) -> Trust:
    if not (0 <= value <= 1 and isinstance(text, str)):
        raise ValueError(f"trust has the value {value!r} and the text {text!r}")
    return Trust(value, text)


def _read(data: Mapping[str, Any]) -> Explanation:
    read, diagnostics = data["passes"], data["diagnostics"]
    figures: dict[str, Any] = {k: math.nan if v is None else v for k, v in diagnostics.items()}
    figures |= {k: tuple(diagnostics[k]) for k in ("notes", "warnings")}
    asked = read.get("asked")
    passes = Passes(
        masks=np.array([[z == "1" for z in mask] for mask in read["masks"]], dtype=bool),
        logprob=_unpack(read["logprob"]),
        kl=None if read["kl"] is None else _unpack(read["kl"]),
        distances={RopeSpace(**d["space"]): _unpack(d["values"]) for d in read["distances"]},
        tokens=np.array(read["tokens"], dtype=np.int64),
        scored=int(read["scored"]),
        seconds=0.0,
        exact=np.array([e == "1" for e in read.get("exact", "")], dtype=bool),
        asked=None if asked is None else Asked(_unpack(asked["logprob"]), _unpack(asked["kl"])),
    )
    prompt = data["prompt"]
    explanation = Explanation(
        prompt=Prompt(
            prompt["text"],
            tuple(Message(**message) for message in prompt["messages"]),
            tuple((int(a), int(b)) for a, b in prompt["parts"]),
            prompt["kind"],
            tuple(Origin(**origin) for origin in prompt.get("origins", ())),
        ),
        output=data["output"],
        features=tuple(Feature(**feature) for feature in data["features"]),
        scores=np.array(data["scores"], dtype=float),
        weights=np.array(data["weights"], dtype=float),
        token_weights=_unpack(data["token_weights"]),
        output_spans=tuple((int(a), int(b)) for a, b in data["output_spans"]),
        span=(int(data["span"][0]), int(data["span"][1])),
        passes=passes,
        cost=Cost(int(data["cost"]["passes"]), int(data["cost"]["tokens"])),
        diagnostics=Diagnostics(**figures),
        config=dict(data["config"]),
        intervals=None if (ends := data.get("intervals")) is None else np.array(ends, dtype=float),
        trust=None if (trust := data.get("trust")) is None else _trust(**trust),
    )
    n, tokens = len(explanation.features), len(explanation.output_spans)
    shapes = {
        "scores": (explanation.scores.shape, (n,)),
        "weights": (explanation.weights.shape, (n,)),
        "token_weights": (explanation.token_weights.shape, (n, tokens)),
        "masks": (passes.masks.shape[1:], (n,)),
        "logprob": (passes.logprob.shape, (len(passes.masks), tokens)),
        "tokens": (passes.tokens.shape, (len(passes.masks),)),
        "exact": (passes.exact.shape, (len(passes.masks),)),
    }
    if explanation.intervals is not None:
        shapes["intervals"] = (explanation.intervals.shape, (n, 2))
    if passes.asked is not None:
        for name in ("logprob", "kl"):
            shape = getattr(passes.asked, name).shape
            shapes[f"asked {name}"] = (shape, (len(passes.masks), passes.asked.logprob.shape[1]))
    if passes.kl is not None:
        shapes["kl"] = (passes.kl.shape, passes.logprob.shape)
    for distance in passes.distances.values():
        shapes["distances"] = (distance.shape, (len(passes.masks),))
    for name, (came, expected) in shapes.items():
        if came != expected:
            raise ValueError(f"{name} has the shape {came}, expected {expected}")
    return explanation
