"""Explanations as files: plain data and back, with nothing lost and nothing trusted."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.files import replacing
from ropelime.method.interactions import Interaction
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import QuestionScores, Scores
from ropelime.results.diagnostics import Diagnostics
from ropelime.results.explanation import Cost, ExplanationData
from ropelime.results.trust import Trust
from ropelime.text.features import Feature
from ropelime.text.prompt import Message, Origin, Prompt
from ropelime.typing import Floats

FORMAT = "ropelime.explanation"
VERSION = 2


def to_dict(e: ExplanationData) -> dict[str, Any]:
    """Plain data, the same for the same seed: no times in it."""
    scores = e.surrogate_scores
    return {
        "format": FORMAT,
        "version": VERSION,
        "output": e.output,
        "prompt": asdict(e.prompt),
        "features": [asdict(feature) for feature in e.features],
        "normalized_weights": e.normalized_weights.tolist(),
        "weights": e.weights.tolist(),
        "token_weights": _pack(e.token_weights),
        "intervals": None if e.intervals is None else e.intervals.tolist(),
        "trust": None if e.trust is None else asdict(e.trust),
        "output_spans": [list(span) for span in e.output_spans],
        "span": list(e.span),
        "surrogate_scores": {
            "masks": ["".join("01"[int(z)] for z in mask) for mask in scores.masks],
            "logprob": _pack(scores.logprob),
            "kl": None if scores.kl is None else _pack(scores.kl),
            "distances": [
                {"space": asdict(space), "values": _pack(values)}
                for space, values in scores.distances.items()
            ],
            "tokens": scores.tokens.tolist(),
            "exact": "".join("01"[int(e)] for e in scores.exact),
            "question": None
            if scores.question is None
            else {"logprob": _pack(scores.question.logprob), "kl": _pack(scores.question.kl)},
            "alternative": None if scores.alternative is None else _pack(scores.alternative),
            "tokens_run": scores.tokens_run,
        },
        "cost": {"masks": e.cost.masks, "tokens": e.cost.tokens},
        "diagnostics": _finite(asdict(e.diagnostics)),
        "interactions": [asdict(interaction) for interaction in e.interactions],
        "members": [to_dict(member) for member in e.members],
        "also": None if e.also is None else to_dict(e.also),
        "config": dict(e.config),
    }


def load(path: str | os.PathLike[str]) -> ExplanationData:
    """Read an explanation that :meth:`Explanation.save` wrote."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:  # no UTF-8, or no name that a file can have
        raise InputError(f"{path} cannot be read: {error}.") from None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is no complete JSON ({error}). It may have been cut off; make the explanation "
            "again."
        ) from None
    return from_dict(data, source=str(path))


def from_dict(data: Any, *, source: str = "The data") -> ExplanationData:
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
    with replacing(path) as file:
        file.write(text.encode())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)  # what anybody else would have made


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


def _read(data: Mapping[str, Any]) -> ExplanationData:
    read, diagnostics = data["surrogate_scores"], data["diagnostics"]
    figures: dict[str, Any] = {k: math.nan if v is None else v for k, v in diagnostics.items()}
    figures |= {k: tuple(diagnostics[k]) for k in ("notes", "warnings")}
    question = read.get("question")
    scores = Scores(
        masks=np.array([[z == "1" for z in mask] for mask in read["masks"]], dtype=bool),
        logprob=_unpack(read["logprob"]),
        kl=None if read["kl"] is None else _unpack(read["kl"]),
        distances={RopeSpace(**d["space"]): _unpack(d["values"]) for d in read["distances"]},
        tokens=np.array(read["tokens"], dtype=np.int64),
        tokens_run=int(read["tokens_run"]),
        seconds=0.0,
        exact=np.array([e == "1" for e in read.get("exact", "")], dtype=bool),
        question=None
        if question is None
        else QuestionScores(_unpack(question["logprob"]), _unpack(question["kl"])),
        alternative=None if (other := read.get("alternative")) is None else _unpack(other),
    )
    prompt = data["prompt"]
    explanation = ExplanationData(
        prompt=Prompt(
            prompt["text"],
            tuple(Message(**message) for message in prompt["messages"]),
            tuple((int(a), int(b)) for a, b in prompt["parts"]),
            prompt["kind"],
            tuple(Origin(**origin) for origin in prompt.get("origins", ())),
        ),
        output=data["output"],
        features=tuple(Feature(**feature) for feature in data["features"]),
        normalized_weights=np.array(data["normalized_weights"], dtype=float),
        weights=np.array(data["weights"], dtype=float),
        token_weights=_unpack(data["token_weights"]),
        output_spans=tuple((int(a), int(b)) for a, b in data["output_spans"]),
        span=(int(data["span"][0]), int(data["span"][1])),
        surrogate_scores=scores,
        cost=Cost(int(data["cost"]["masks"]), int(data["cost"]["tokens"])),
        diagnostics=Diagnostics(**figures),
        config=dict(data["config"]),
        intervals=None if (ends := data.get("intervals")) is None else np.array(ends, dtype=float),
        trust=None if (trust := data.get("trust")) is None else _trust(**trust),
        interactions=tuple(Interaction(**entry) for entry in data.get("interactions", ())),
        members=tuple(_read(member) for member in data.get("members", ())),
        also=None if (also := data.get("also")) is None else _read(also),
    )
    n, tokens = len(explanation.features), len(explanation.output_spans)
    shapes = {
        "normalized_weights": (explanation.normalized_weights.shape, (n,)),
        "weights": (explanation.weights.shape, (n,)),
        "token_weights": (explanation.token_weights.shape, (n, tokens)),
        "masks": (scores.masks.shape[1:], (n,)),
        "logprob": (scores.logprob.shape, (len(scores.masks), tokens)),
        "tokens": (scores.tokens.shape, (len(scores.masks),)),
        "exact": (scores.exact.shape, (len(scores.masks),)),
    }
    if explanation.intervals is not None:
        shapes["intervals"] = (explanation.intervals.shape, (n, 2))
    if scores.question is not None:
        for name in ("logprob", "kl"):
            shape = getattr(scores.question, name).shape
            shapes[f"question {name}"] = (shape, (len(scores.masks), scores.question.logprob.shape[1]))
    if scores.alternative is not None:
        shapes["alternative"] = (scores.alternative.shape[:1], (len(scores.masks),))
    for pair in explanation.interactions:
        if not (0 <= pair.first < n and 0 <= pair.second < n):
            raise ValueError(f"there is no feature {max(pair.first, pair.second)}")
    for member in explanation.members:
        shapes["members"] = (member.weights.shape, (n,))
    if scores.kl is not None:
        shapes["kl"] = (scores.kl.shape, scores.logprob.shape)
    for distance in scores.distances.values():
        shapes["distances"] = (distance.shape, (len(scores.masks),))
    for name, (came, expected) in shapes.items():
        if came != expected:
            raise ValueError(f"{name} has the shape {came}, expected {expected}")
    _check(explanation)
    return explanation


def _check(e: ExplanationData) -> None:
    """Refuse what no explanation holds, and what would fail only when somebody looks at it."""
    text, output = e.prompt.text, e.output
    told = (text, output, e.prompt.kind, *e.diagnostics.notes, *e.diagnostics.warnings)
    named = [part for origin in e.prompt.origins for part in (origin.source, origin.page)]
    for words in (*told, *named, *(f.text for f in e.features), *(m.role for m in e.prompt.messages)):
        if not isinstance(words, str):
            raise TypeError(f"{words!r} is no text")
    inside: list[tuple[Any, Any]] = [(f.start, f.end) for f in e.features]
    inside += [(m.start, m.end) for m in e.prompt.messages] + list(e.prompt.parts)
    for spans, length in ((inside, len(text)), ([*e.output_spans, e.span], len(output))):
        for start, end in spans:
            if not (_is_whole(start) and _is_whole(end) and 0 <= start <= end <= length):
                raise ValueError(f"{start!r} to {end!r} is no part of a text of {length} characters")
    for feature in e.features:
        if not _is_whole(feature.part) or not 0 <= feature.part < max(1, len(e.prompt.parts)):
            raise ValueError(f"there is no part {feature.part!r}")
    for array in (e.normalized_weights, e.weights, e.token_weights, e.intervals):
        if array is not None and not np.isfinite(array).all():
            raise ValueError("a share is no finite number")
    figures = e.diagnostics
    numbers = (figures.r2, figures.effective_samples, figures.logprob_full, figures.logprob_empty)
    effects = (pair.effect for pair in e.interactions)
    for number in (*numbers, figures.masks_requested, figures.masks_scored, *effects):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{number!r} is no number")
    for name in ("target", "kernel", "regressor", "surrogate"):
        if not isinstance(e.config[name], Mapping):
            raise TypeError(f"{name} is {e.config[name]!r}")
    json.dumps(
        [e.config, *map(asdict, e.surrogate_scores.distances)], allow_nan=False
    )  # or it is no JSON


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
