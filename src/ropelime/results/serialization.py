"""Explanations as JSON: without loss, and validated when they are read."""

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
from ropelime.method.interactions import Interaction
from ropelime.method.rope import RopeSpace
from ropelime.method.scores import QuestionScores, Scores
from ropelime.results.diagnostics import Diagnostics
from ropelime.results.explanation import Cost, ExplanationData
from ropelime.results.validation import check, check_plain
from ropelime.results.verdicts import Trust, Verdict
from ropelime.results.verification import Verified, VerifyingCall
from ropelime.text.features import Feature
from ropelime.text.prompt import Message, Origin, Prompt
from ropelime.typing import Floats, Masks

FORMAT = "ropelime.explanation"
VERSION = 2


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
        check_plain(data)
        return _read(data)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{source} is damaged: {type(error).__name__}: {error}.") from None


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
    check(explanation)
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
