"""What must hold of an explanation that was read from a file, so that every view can display it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from ropelime.results.explanation import ExplanationData
from ropelime.results.verdicts import VERDICTS
from ropelime.results.verification import KINDS, VerifyingCall
from ropelime.text.prompt import Kind

_DEEPEST = 64  # levels of lists and mappings: more exhaust the stack
_LARGEST = 1e100  # of a number: larger ones overflow where they are added or squared
# What JSON may hold for a field, by its annotation; a bool is none of these.
_TYPES: dict[Any, Any] = {"str": str, "Kind": str, "int": int, "float": (int, float)}
# The same for what views read in the config, where it is there.
_CONFIG: dict[str, Any] = {
    "unit": str,
    "preset": str,
    "features": str,
    "agreement": (int, float),
    "surrogates": list,
    "masks": Mapping,
}


def check_plain(data: Any) -> None:
    """Refuse data that JSON cannot hold as UTF-8 text, or that is nested too deeply."""
    level = [data]
    for _ in range(_DEEPEST):
        level = [each for held in level for each in _held(held)]
    if level:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    json.dumps(data, ensure_ascii=False, allow_nan=False).encode()


def _held(value: Any) -> Iterator[Any]:
    """The lists and mappings in a list or a mapping."""
    held = value.values() if isinstance(value, Mapping) else value
    return (each for each in held if isinstance(each, (Mapping, list, tuple)))


def check(e: ExplanationData) -> None:
    """Refuse what no explanation has, with an error that says what is wrong."""
    _check_types(e)
    _check_config(e.config)
    _check_shapes(e)
    _check_places(e)
    _check_numbers(e)
    for call in () if e.verified is None else e.verified.calls:
        _check_call(call, len(e.features))


def _check_types(e: ExplanationData) -> None:
    """Refuse values of another type, which would fail only when they are displayed."""
    prompt, figures = e.prompt, e.diagnostics
    entries: list[Any] = [prompt, *prompt.messages, *prompt.origins, *e.features, *e.interactions]
    entries.append(e.cost)
    if e.verified is not None:
        entries += [e.verified, *e.verified.calls]
    for trust in (e.trust, None if e.verified is None else e.verified.trust_before):
        entries += [] if trust is None else [trust, *trust.verdicts]
    for entry in (*entries, figures):
        for field in fields(entry):
            value, expected = getattr(entry, field.name), _TYPES.get(field.type)
            if expected and (isinstance(value, bool) or not isinstance(value, expected)):
                raise TypeError(f"{field.name} is {value!r}, expected {field.type}")
            if expected and expected is not str and abs(value) > _LARGEST:
                raise ValueError(f"{field.name} is too large a number")
    for text in (e.output, *figures.notes, *figures.warnings):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")


def _check_config(config: Mapping[str, Any]) -> None:
    for name in ("target", "kernel", "regressor", "surrogate"):
        if not isinstance(config[name], Mapping):
            raise TypeError(f"{name} is {config[name]!r}")
    for name, expected in _CONFIG.items():
        value = config.get(name, expected)
        if value is not expected and (isinstance(value, bool) or not isinstance(value, expected)):
            raise TypeError(f"{name} is {value!r}")
    if abs(config.get("agreement", 0)) > 1:
        raise ValueError(f"agreement is {config['agreement']!r}, expected -1 to 1")
    if not all(isinstance(model, Mapping) for model in config.get("surrogates", ())):
        raise TypeError(f"surrogates is {config['surrogates']!r}")
    for count in config.get("masks", {}).values():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise TypeError(f"masks is {config['masks']!r}")


def _check_shapes(e: ExplanationData) -> None:
    """Refuse arrays that do not fit together."""
    scores, n, tokens = e.surrogate_scores, len(e.features), len(e.output_spans)
    rows, question = len(scores.masks), scores.question
    alternative: Any = scores.alternative
    question_tokens = 0 if question is None else question.logprob.shape[1]
    if n < 2 or tokens < 1 or rows < 2 or len(e.members) == 1:
        counts = f"{n} features, {tokens} output tokens, {rows} masks, {len(e.members)} members"
        raise ValueError(f"{counts}: some are too few")
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


def _check_places(e: ExplanationData) -> None:
    """Refuse spans and indices that lead nowhere."""
    prompt, features = e.prompt, e.features
    if prompt.kind not in get_args(Kind):
        raise ValueError(f"{prompt.kind!r} is not one of {', '.join(get_args(Kind))}")
    if not prompt.messages:
        raise ValueError("the prompt has no messages")
    spans = [*((f.start, f.end) for f in features), *((m.start, m.end) for m in prompt.messages)]
    inside = [(span, len(prompt.text)) for span in (*spans, *prompt.parts)]
    inside += [(span, len(e.output)) for span in (*e.output_spans, e.span)]
    for (start, end), length in inside:
        if not 0 <= start <= end <= length:
            raise ValueError(f"{start} to {end} is not a span of a text of {length} characters")
    if any(f.text != prompt.text[f.start : f.end] for f in features):
        raise ValueError("a feature has another text than its span of the prompt")
    for what, places in (
        ("features", [(f.start, f.end) for f in features]),
        ("parts", prompt.parts),
        ("messages", [(m.start, m.end) for m in prompt.messages]),
    ):
        if any(before[1] > after[0] for before, after in pairwise(places)):
            raise ValueError(f"{what} overlap or are not in their order")
    parts = len(prompt.messages if prompt.kind == "messages" else prompt.parts)
    indices = [("part", f.part, parts) for f in features]
    indices += [("feature", i, len(features)) for p in e.interactions for i in (p.first, p.second)]
    for name, index, count in indices:
        if not 0 <= index < count:
            raise ValueError(f"there is no {name} {index}")


def _check_numbers(e: ExplanationData) -> None:
    """Refuse numbers that cannot be calculated with."""
    weights = (e.normalized_weights, e.weights, e.token_weights, e.intervals, *e.signals.values())
    for array in weights:
        if array is not None and not _usable(array):
            raise ValueError("a weight is not a finite number")
    if e.intervals is not None and (np.diff(e.intervals, axis=1) < 0).any():
        raise ValueError("an interval ends before it begins")
    if e.normalized_weights.min() < 0 or e.normalized_weights.max() > 1 + 1e-9:
        raise ValueError("a normalised weight is not between 0 and 1")
    scores = e.surrogate_scores
    for array in (scores.logprob, scores.kl, scores.alternative, scores.attention):
        if array is not None and not _usable(array):
            raise ValueError("a score is not a finite number")
    question = scores.question  # NaN where a mask removed a part of it
    known = [] if question is None else [question.logprob, question.kl]
    if not all(_usable(np.nan_to_num(array, posinf=np.inf, neginf=-np.inf)) for array in known):
        raise ValueError("a score of the question is not a finite number")
    logprobs = [*known[:1], *([] if scores.kl is None else [scores.logprob])]
    if any(np.nanmax(array, initial=0.0) > 1 for array in logprobs):  # a function may give any number
        raise ValueError("a log-probability of a model is above 0")
    for trust in (e.trust, None if e.verified is None else e.verified.trust_before):
        if trust is None:
            continue
        for value in (trust.value, *(verdict.probability for verdict in trust.verdicts)):
            if not 0 <= value <= 1:
                raise ValueError(f"trust is {value}, expected 0 to 1")
        if unknown := {verdict.name for verdict in trust.verdicts} - set(VERDICTS):
            raise ValueError(f"there is no verdict {unknown}")


def _usable(array: Any) -> bool:
    return bool((np.abs(array) <= _LARGEST).all())


def _check_call(call: VerifyingCall, n: int) -> None:
    """Refuse an outcome of a verifying call that cannot have been."""
    if call.kind not in KINDS:
        raise ValueError(f"{call.kind!r} is not one of {', '.join(KINDS)}")
    if not all(0 <= i < n for i in call.features):
        raise ValueError(f"a verifying call names one of the features {call.features}")
    if (call.kind == "again") is bool(call.features):
        raise ValueError(f"a verifying call of kind {call.kind} has features {call.features}")
    if (call.similarity is None) is not (call.changed is None):
        raise ValueError("a verifying call has a similarity and no outcome, or the other way round")
    for name, value in (("similarity", call.similarity), ("cost", call.cost)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= _LARGEST):
            raise ValueError(f"{name} of a verifying call is {value!r}")
    if not isinstance(call.cached, bool) or call.changed not in (None, True, False):
        raise TypeError("whether an answer changed or was cached is not a yes or a no")
