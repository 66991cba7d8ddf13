"""Explanations as JSON: without loss, and validated when they are read."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.files import check_place, is_device, replacing
from ropelime.method.interactions import Interaction
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import QuestionScores, Scores
from ropelime.results.diagnostics import Diagnostics
from ropelime.results.explanation import Cost, ExplanationData
from ropelime.results.verdicts import VERDICTS, Trust, Verdict
from ropelime.results.verification import KINDS, Verified, VerifyingCall
from ropelime.text.features import Feature
from ropelime.text.prompt import Message, Origin, Prompt
from ropelime.typing import Floats, Masks

FORMAT = "ropelime.explanation"
VERSION = 2
# What JSON may hold for a field, by its annotation; a bool is none of these.
_TYPES: dict[Any, Any] = {"str": str, "Kind": str, "int": int, "float": (int, float)}


def to_dict(e: ExplanationData) -> dict[str, Any]:
    """Plain data; equal for equal seeds, as it holds no times."""
    scores, question = e.surrogate_scores, e.surrogate_scores.question
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
        "signals": {name: shares.tolist() for name, shares in e.signals.items()},
        "trust": None if e.trust is None else asdict(e.trust),
        "output_spans": [list(span) for span in e.output_spans],
        "span": list(e.span),
        "surrogate_scores": {
            "masks": [_digits(mask) for mask in scores.masks],
            "logprob": _pack(scores.logprob),
            "kl": _pack(scores.kl),
            "distances": [
                {"space": asdict(space), "values": _pack(values)}
                for space, values in scores.distances.items()
            ],
            "tokens": scores.tokens.tolist(),
            "exact": _digits(scores.exact),
            "question": question and {"logprob": _pack(question.logprob), "kl": _pack(question.kl)},
            "alternative": _pack(scores.alternative),
            "attention": _pack(scores.attention),
            "tokens_run": scores.tokens_run,
        },
        "cost": {"masks": e.cost.masks, "tokens": e.cost.tokens},
        # JSON has no NaN: an undefined figure is null.
        "diagnostics": {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(e.diagnostics).items()
        },
        "interactions": [asdict(interaction) for interaction in e.interactions],
        "members": [to_dict(member) for member in e.members],
        "also": None if e.also is None else to_dict(e.also),
        "verified": None if e.verified is None else asdict(e.verified),
        "config": dict(e.config),
    }


def load(path: str | os.PathLike[str]) -> ExplanationData:
    """Load an explanation that :meth:`Explanation.save` wrote."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:  # not UTF-8, or an impossible file name
        raise InputError(f"{path} cannot be read: {error}.") from None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not complete JSON ({error}). It may be truncated; make the explanation again."
        ) from None
    return from_dict(data, source=str(path))


def from_dict(data: Any, *, source: str = "The data") -> ExplanationData:
    """Build an explanation from the data of :meth:`Explanation.to_dict`."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise InputError(f"{source} is not a ropelime explanation (its format is not {FORMAT!r}).")
    if data.get("version") != VERSION:
        raise InputError(
            f"{source} has version {data.get('version')} of the format and this release reads "
            f"{VERSION}. Load it with the release that wrote it, or update: pip install -U ropelime."
        )
    try:
        return _read(data)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{source} is damaged: {type(error).__name__}: {error}.") from None


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    if is_device(path):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}.") from None
        return
    path = path.resolve()  # follow links
    check_place(path)
    with replacing(path) as file:
        file.write(text.encode())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)  # the permissions of any new file


def _pack(array: Floats | None) -> dict[str, Any] | None:
    if array is None:
        return None
    data = np.ascontiguousarray(array, dtype="<f8")
    return {"shape": list(array.shape), "float64": base64.b64encode(data.tobytes()).decode("ascii")}


def _unpack(entry: Mapping[str, Any]) -> Floats:
    data = np.frombuffer(base64.b64decode(entry["float64"], validate=True), dtype="<f8")
    return data.reshape(entry["shape"]).astype(np.float64)


def _digits(mask: Masks) -> str:
    return "".join(np.where(mask, "1", "0"))


def _bits(digits: str) -> list[bool]:
    return [digit == "1" for digit in digits]


def _read(data: Mapping[str, Any]) -> ExplanationData:
    figures: dict[str, Any] = {k: math.nan if v is None else v for k, v in data["diagnostics"].items()}
    figures |= {k: tuple(figures[k]) for k in ("notes", "warnings")}
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
        surrogate_scores=_read_scores(data["surrogate_scores"]),
        cost=Cost(int(data["cost"]["masks"]), int(data["cost"]["tokens"])),
        diagnostics=Diagnostics(**figures),
        config=dict(data["config"]),
        intervals=None if (ends := data.get("intervals")) is None else np.array(ends, dtype=float),
        trust=_read_trust(data.get("trust")),
        interactions=tuple(Interaction(**entry) for entry in data.get("interactions", ())),
        members=tuple(_read(member) for member in data.get("members", ())),
        also=None if (also := data.get("also")) is None else _read(also),
        signals={
            str(name): np.array(shares, dtype=float) for name, shares in data.get("signals", {}).items()
        },
        verified=None if (seen := data.get("verified")) is None else _read_verified(seen),
    )
    _check_types(explanation)
    _check_shapes(explanation)
    _check_values(explanation)
    _check_verified(explanation)
    return explanation


def _read_trust(data: Mapping[str, Any] | None) -> Trust | None:
    if data is None:
        return None
    return Trust(**{**data, "verdicts": tuple(Verdict(**each) for each in data.get("verdicts", ()))})


def _read_verified(data: Mapping[str, Any]) -> Verified:
    calls = [{**call, "features": tuple(map(int, call["features"]))} for call in data["calls"]]
    known = {
        "calls": tuple(VerifyingCall(**call) for call in calls),
        "sampling": dict(data["sampling"]),
        "trust_before": _read_trust(data["trust_before"]),
    }
    return Verified(**{**data, **known})


def _read_scores(data: Mapping[str, Any]) -> Scores:
    def optional(key: str) -> Floats | None:
        return None if data.get(key) is None else _unpack(data[key])

    question = data.get("question")
    return Scores(
        masks=np.array([_bits(mask) for mask in data["masks"]], dtype=bool),
        logprob=_unpack(data["logprob"]),
        kl=optional("kl"),
        distances={RopeSpace(**d["space"]): _unpack(d["values"]) for d in data["distances"]},
        tokens=np.array(data["tokens"], dtype=np.int64),
        tokens_run=int(data["tokens_run"]),
        seconds=0.0,
        exact=np.array(_bits(data.get("exact", "")), dtype=bool),
        question=question and QuestionScores(_unpack(question["logprob"]), _unpack(question["kl"])),
        alternative=optional("alternative"),
        attention=optional("attention"),
    )


def _check_shapes(e: ExplanationData) -> None:
    """Refuse arrays that do not fit together."""
    scores, n, tokens = e.surrogate_scores, len(e.features), len(e.output_spans)
    rows, question = len(scores.masks), scores.question
    alternative: Any = scores.alternative
    question_tokens = 0 if question is None else question.logprob.shape[1]
    expected: list[tuple[str, Any, tuple[int, ...]]] = [
        ("normalized_weights", e.normalized_weights, (n,)),
        ("weights", e.weights, (n,)),
        ("token_weights", e.token_weights, (n, tokens)),
        ("intervals", e.intervals, (n, 2)),
        ("masks", scores.masks, (rows, n)),
        ("attention", scores.attention, (tokens, n)),
        ("logprob", scores.logprob, (rows, tokens)),
        ("kl", scores.kl, (rows, tokens)),
        ("tokens", scores.tokens, (rows,)),
        ("exact", scores.exact, (rows,)),
        ("question logprob", question and question.logprob, (rows, question_tokens)),
        ("question kl", question and question.kl, (rows, question_tokens)),
        ("alternative", alternative, (rows, *np.shape(alternative)[-1:])),
        *(("distances", values, (rows,)) for values in scores.distances.values()),
        *(("members", member.weights, (n,)) for member in e.members),
        *((f"signal {name}", shares, (n,)) for name, shares in e.signals.items()),
    ]
    for name, array, shape in expected:
        if array is not None and array.shape != shape:
            raise ValueError(f"{name} has the shape {array.shape}, expected {shape}")


def _check_types(e: ExplanationData) -> None:
    """Refuse values of another type, which would fail only when they are displayed."""
    prompt, figures = e.prompt, e.diagnostics
    entries: list[Any] = [prompt, *prompt.messages, *prompt.origins, *e.features, *e.interactions]
    if e.verified is not None:
        entries += [e.verified, *e.verified.calls]
    for trust in filter(None, [e.trust, e.verified and e.verified.trust_before]):
        entries += [trust, *trust.verdicts]
    for entry in (*entries, figures):
        for field in fields(entry):
            value, expected = getattr(entry, field.name), _TYPES.get(field.type)
            if expected and (isinstance(value, bool) or not isinstance(value, expected)):
                raise TypeError(f"{field.name} is {value!r}, expected {field.type}")
    for text in (e.output, *figures.notes, *figures.warnings):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")
    for name in ("target", "kernel", "regressor", "surrogate"):
        if not isinstance(e.config[name], Mapping):
            raise TypeError(f"{name} is {e.config[name]!r}")
    # Raises where it is not plain JSON data.
    plain = [e.config, e.verified and dict(e.verified.sampling)]
    json.dumps([*plain, *map(asdict, e.surrogate_scores.distances)], allow_nan=False)


def _check_values(e: ExplanationData) -> None:
    """Refuse values that no explanation has."""
    spans = [*((f.start, f.end) for f in e.features), *((m.start, m.end) for m in e.prompt.messages)]
    inside = [(span, len(e.prompt.text)) for span in (*spans, *e.prompt.parts)]
    inside += [(span, len(e.output)) for span in (*e.output_spans, e.span)]
    for (start, end), length in inside:
        if not 0 <= start <= end <= length:
            raise ValueError(f"{start} to {end} is not a span of a text of {length} characters")
    indices = [("part", f.part, max(1, len(e.prompt.parts))) for f in e.features]
    indices += [("feature", i, len(e.features)) for p in e.interactions for i in (p.first, p.second)]
    for name, index, count in indices:
        if not 0 <= index < count:
            raise ValueError(f"there is no {name} {index}")
    weights = (e.normalized_weights, e.weights, e.token_weights, e.intervals, *e.signals.values())
    for array in weights:
        if array is not None and not np.isfinite(array).all():
            raise ValueError("a weight is not a finite number")
    for trust in (e.trust, None if e.verified is None else e.verified.trust_before):
        if trust is None:
            continue
        for value in (trust.value, *(verdict.probability for verdict in trust.verdicts)):
            if not 0 <= value <= 1:
                raise ValueError(f"trust is {value}, expected 0 to 1")
        if unknown := {verdict.name for verdict in trust.verdicts} - set(VERDICTS):
            raise ValueError(f"there is no verdict {unknown}")


def _check_verified(e: ExplanationData) -> None:
    """Refuse outcomes of verifying calls that cannot have been."""
    for call in () if e.verified is None else e.verified.calls:
        if call.kind not in KINDS:
            raise ValueError(f"{call.kind!r} is not one of {', '.join(KINDS)}")
        if not all(0 <= i < len(e.features) for i in call.features):
            raise ValueError(f"a verifying call names one of the features {call.features}")
        if (call.kind == "again") is bool(call.features):
            raise ValueError(f"a verifying call of kind {call.kind} has features {call.features}")
        if (call.similarity is None) is not (call.changed is None):
            raise ValueError("a verifying call has a similarity and no outcome, or the other way round")
        for name, value in (("similarity", call.similarity), ("cost", call.cost)):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 <= value < math.inf):
                raise ValueError(f"{name} of a verifying call is {value!r}")
        if not isinstance(call.cached, bool) or call.changed not in (None, True, False):
            raise TypeError("whether an answer changed or was cached is not a yes or a no")
