"""The method, top to bottom: text, features, masks, readings, weights, fit, explanation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelime import adapters
from ropelime import prompt as prompts
from ropelime._version import __version__
from ropelime.attribution import Recipe
from ropelime.errors import InputError
from ropelime.explanation import Cost, Explanation, build
from ropelime.kernels import Kernel
from ropelime.progress import Option, note, reporting
from ropelime.prompt import Prompt, Span
from ropelime.regression import Regressor, check_readings
from ropelime.samplers import Sampler, resolve_sampler
from ropelime.strategies import describe, unknown
from ropelime.surrogate import Removal, Surrogate, check_only_output, resolve_surrogate
from ropelime.targets import Target

_CHEAP = (
    "Readings are cheap: the removed features were hidden from what follows the last one, but the kept "
    "ones had seen them. Masks that cut into the very end of the prompt were read exactly."
)
_NOT_CHEAP = "{} no cheap readings of this prompt: every masked prompt was read exactly."
_QUESTION = (
    "A feature counts for what it does to the answer and{} for what it does to the question before it. "
    "For the answer alone: target='shift'."
)
READINGS = ("exact", "cheap")


@dataclass(frozen=True)
class Preset:
    """Strategies that go together.

    Attributes:
        readings: How masks are read where nothing else was asked for.
        sampler: Which masks.
        target: What the fit explains.
        kernel: How much each reading counts.
        regressor: How to fit.
    """

    readings: str
    sampler: str
    target: str
    kernel: str
    regressor: str


PRESETS = {
    # Which parts would a person cite for this answer? Every feature is hidden once.
    "evidence": Preset("cheap", "leave-one-out", "evidence", "uniform", "wls"),
    # Which parts foretell the probability of the answer when others go too? Random halves.
    "faithful": Preset("exact", "hadamard:64", "nll", "uniform", "bayes-ridge"),
    # The paper to the letter: Sparse-K at its best setting for the number of features.
    "paper": Preset("exact", "sparse-k-best", "kl", "rope-rwmd", "wls"),
}


def explain(
    prompt: str | None = None,
    output: str | None = None,
    *,
    context: Sequence[str | Mapping[str, Any] | Any] | None = None,
    question: str | None = None,
    messages: Sequence[Mapping[str, Any] | Any] | None = None,
    response: Any = None,
    request: Mapping[str, Any] | None = None,
    features: str | Sequence[Span] = "sentence",
    surrogate: str | Surrogate | Any = "smollm2",
    sampler: str | Sampler | None = None,
    target: str | Target | None = None,
    kernel: str | Kernel | None = None,
    regressor: str | Regressor | None = None,
    removal: str | Removal = "delete",
    readings: str | None = None,
    budget: int | None = None,
    seed: int = 0,
    progress: Option = "auto",
    preset: str = "evidence",
) -> Explanation:
    """Explain which parts of a prompt carried an output that some model gave.

    Pass exactly one of ``prompt``, ``context`` (with a ``question``), ``messages`` and ``response``.

    Args:
        prompt: The prompt as one text.
        output: The answer to explain, as the model gave it.
        context: Retrieved chunks; they are the features, the question is not. Each is a text, a mapping
            with ``text``, ``source`` and ``page``, or a document of LangChain or LlamaIndex.
        question: What was asked about the context.
        messages: Chat messages, each with ``role`` and ``content`` or ``tool_calls``.
        response: What another library gave back, which holds the output too: an OpenAI response (with
            its ``request``), the result of a LangChain retrieval chain, a LlamaIndex response (with the
            ``question``).
        request: The keyword arguments that an OpenAI response was asked with.
        features: ``"token"``, ``"word"``, ``"sentence"``, ``"paragraph"``, ``"document"`` (each chunk),
            ``"message"`` (each message; each tool call by itself), or a list of (start, end) in the
            text of the prompt.
        surrogate: The open model that reads the answer: a short name (see ``ropelime models``), a
            directory, a ``.gguf`` file, a hub id, ``"http://HOST:8000/v1#MODEL"`` for a model behind a
            vLLM server, a function of masks, or an object.
        sampler: Which masks to read; see :mod:`ropelime.samplers`.
        target: What the fit explains; see :mod:`ropelime.targets`.
        kernel: How much each reading counts; see :mod:`ropelime.kernels`.
        regressor: How to fit; see :mod:`ropelime.regression`.
        removal: ``"delete"`` closes the gap of a removed feature, ``"in-place"`` leaves the others at
            their positions, ``"placeholder:TEXT"`` puts a text there.
        readings: ``"exact"`` runs the surrogate over every masked prompt. ``"cheap"`` runs the prompt
            once and, for each mask, only what follows its last feature, with the removed features
            hidden: fewer tokens, but what is kept has already seen what is removed. The preset decides
            if not given.
        budget: How many masks to read, on top of the full and the empty prompt; the sampler decides
            if not given.
        seed: Seed of the masks.
        progress: ``"auto"``, True, False, or a function of (done, total).
        preset: Which question to answer, where strategies are not given. ``"evidence"``: which parts
            would a person cite for this answer? ``"faithful"``: which parts foretell how likely the
            answer is when others are removed too? ``"paper"``: the method of the paper.
    """
    start = time.perf_counter()
    if response is not None or request is not None:
        given_too = {"prompt": prompt, "output": output, "context": context, "messages": messages}
        output, said = _from_response(response, request, question, given_too)
        context, question, messages = (said.get(k) for k in ("context", "question", "messages"))
    asked = read_prompt(prompt, context, question, messages)
    answer = prompts.check_text("output", output)
    given = {"sampler": sampler, "target": target, "kernel": kernel, "regressor": regressor}
    masker, recipe = strategies(preset, given)  # a wrong name is refused before a model is loaded
    removed = Removal.of(removal)
    _check_readings(readings, removed)
    _check_numbers(budget, seed)

    model = resolve_surrogate(surrogate, say=None if progress is False else note)
    check_suits(model, recipe, readings)
    scorer = model.prepare(asked, features, answer, removal=removed)
    n = len(scorer.features)
    cheap = (readings or PRESETS[preset].readings) == "cheap"
    notes = [_CHEAP] if cheap else []
    if cheap and readings is None and removed.how != "delete":
        cheap, notes = False, [_NOT_CHEAP.format(f"With removal={str(removed)!r} there are")]
    elif cheap and readings is None and not scorer.looks_back:
        cheap, notes = False, [_NOT_CHEAP.format("The surrogate has")]
    asked_too = recipe.target.reads_question and scorer.has_question
    if asked_too:
        share = getattr(recipe.target, "question", 1.0)
        notes.append(_QUESTION.format(", as much," if share == 1 else f", times {share:g},"))

    drawn = masker.sample(n, budget=budget, rng=np.random.default_rng(seed))
    masks = np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool), drawn.masks])
    check_readings(recipe.regressor, len(drawn.masks) + 1)  # before any is paid for
    with reporting(progress, "Reading masked prompts") as report:
        passes = scorer.score(
            masks,
            kl=recipe.target.needs_kl,
            spaces=[recipe.kernel.space] if recipe.kernel.space else [],
            cheap=cheap,
            asked=asked_too,
            progress=report,
        )

    config = {
        "ropelime": __version__,
        "preset": preset,
        "features": features if isinstance(features, str) else "spans",
        "surrogate": model.describe(),
        "sampler": describe(masker),
        **recipe.describe(),
        "unit": recipe.target.unit,
        "removal": str(removed),
        "readings": "cheap" if cheap else "exact",
        "budget": budget,
        "seed": seed,
    }
    return build(
        asked,
        answer,
        scorer.features,
        scorer.output_spans,
        passes,
        recipe,
        config,
        span=(0, len(answer)),
        cost=Cost(len(np.unique(masks, axis=0)), passes.scored, time.perf_counter() - start),
        asked=drawn.asked,
        notes=tuple(filter(None, (drawn.note, passes.note, *notes))),
    )


def strategies(preset: str, given: Mapping[str, object]) -> tuple[Sampler, Recipe]:
    """The strategies that were given, and the preset's for those that were not (None).

    Args:
        preset: Name of the preset.
        given: ``sampler``, ``target``, ``kernel`` and ``regressor``, each a name, an object or None.
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    chosen: dict[str, object] = {
        name: getattr(PRESETS[preset], name) if strategy is None else strategy
        for name, strategy in given.items()
    }
    recipe = Recipe.of(chosen["target"], chosen["kernel"], chosen["regressor"])
    return resolve_sampler(chosen["sampler"]), recipe


def check_suits(surrogate: Surrogate, recipe: Recipe, readings: str | None) -> None:
    """Refuse strategies that the surrogate has no readings for, before any are made."""
    if getattr(surrogate, "only_output", False):
        check_only_output(
            kl=recipe.target.needs_kl, spaces=recipe.kernel.space is not None, cheap=readings == "cheap"
        )


def _check_readings(readings: str | None, removal: Removal) -> None:
    if readings is not None and readings not in READINGS:
        raise unknown("readings", readings, READINGS)
    if readings == "cheap" and removal.how != "delete":
        raise InputError(f"Cheap readings hide features and cannot honour removal={str(removal)!r}.")


def _from_response(
    response: Any,
    request: Mapping[str, Any] | None,
    question: str | None,
    others: Mapping[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """The answer of another library, and the arguments that say what it was asked."""
    if response is None:
        raise InputError("request goes with response=...; pass messages=[...] otherwise.")
    if names := [name for name, value in others.items() if value is not None]:
        raise InputError(f"response holds the prompt and the output; {' and '.join(names)} came too.")
    said = adapters.arguments(response, request, question)
    return said.pop("output"), said


def read_prompt(
    prompt: str | None,
    context: Sequence[Any] | None,
    question: str | None,
    messages: Sequence[Any] | None,
) -> Prompt:
    """The prompt out of exactly one of its three forms."""
    given = {"prompt": prompt, "context": context, "messages": messages}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        came = " and ".join(names) if names else "none of them"
        raise InputError(f"Pass exactly one of prompt, context and messages; got {came}.")
    if question is not None and context is None:
        raise InputError("question goes with context=[...]; put it into the prompt otherwise.")
    if prompt is not None:
        return prompts.from_text(prompt)
    if context is not None:
        return prompts.from_context(adapters.chunks(context), question)
    return prompts.from_messages(adapters.messages(messages))


def _check_numbers(budget: int | None, seed: int) -> None:
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise InputError(f"budget must be a whole number of masks, not {budget!r}.")
    if budget is not None and budget < 1:
        raise InputError(f"budget must be at least 1, not {budget}.")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed must be a whole number that is not negative, not {seed!r}.")
