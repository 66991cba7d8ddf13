"""The method, top to bottom: text, features, masks, readings, weights, fit, explanation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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
from ropelime.surrogate import Removal, Surrogate, resolve_surrogate
from ropelime.targets import Target

_CHEAP = (
    "Readings are cheap: the removed features were hidden from what follows the last one, but the kept "
    "ones had seen them. Only the full prompt, and masks that cut into its very end, were read exactly."
)
FEW = 16  # up to so many features half of them may go at once, see the ablation in docs/results.md


def paper(n: int) -> dict[str, str]:
    """The paper to the letter: Sparse-K at its best setting for the number of features."""
    return {
        "sampler": "sparse-k-best",
        "target": "kl",
        "kernel": "rope-rwmd",
        "regressor": "wls",
    }


def default(n: int) -> dict[str, str]:
    """What measured best: random halves for few features, single ones and small sets for many."""
    if n <= FEW:
        return paper(n) | {"sampler": "bernoulli:64"}
    return {
        "sampler": "mixed:one-at-a-time+sparse-k/sqrt/M/kept/64",
        "target": "nll",
        "kernel": "rope-rwmd",
        "regressor": "ridge",
    }


READINGS = ("exact", "cheap")
PRESETS: dict[str, Callable[[int], dict[str, str]]] = {"default": default, "paper": paper}


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
    readings: str = "exact",
    budget: int | None = None,
    seed: int = 0,
    progress: Option = "auto",
    preset: str = "default",
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
            directory, a ``.gguf`` file, a hub id, a function of masks, or an object.
        sampler: Which masks to read; see :mod:`ropelime.samplers`.
        target: What the fit explains; see :mod:`ropelime.targets`.
        kernel: How much each reading counts; see :mod:`ropelime.kernels`.
        regressor: How to fit; see :mod:`ropelime.regression`.
        removal: ``"delete"`` closes the gap of a removed feature, ``"in-place"`` leaves the others at
            their positions, ``"placeholder:TEXT"`` puts a text there.
        readings: ``"exact"`` runs the surrogate over every masked prompt. ``"cheap"`` runs the prompt
            once and, for each mask, only what follows its last feature, with the removed features
            hidden: fewer tokens, but what is kept has already seen what is removed.
        budget: How many masks to read, on top of the full and the empty prompt; the sampler decides
            if not given.
        seed: Seed of the masks.
        progress: ``"auto"``, True, False, or a function of (done, total).
        preset: Where the strategies come from that are not given: ``"default"`` or ``"paper"``.
    """
    start = time.perf_counter()
    if response is not None or request is not None:
        given_too = {"prompt": prompt, "output": output, "context": context, "messages": messages}
        output, said = _from_response(response, request, question, given_too)
        context, question, messages = (said.get(k) for k in ("context", "question", "messages"))
    asked = read_prompt(prompt, context, question, messages)
    answer = prompts.check_text("output", output)
    given = {"sampler": sampler, "target": target, "kernel": kernel, "regressor": regressor}
    strategies(preset, given, 2)  # a wrong name is refused before a model is loaded
    removed = Removal.of(removal)
    if readings not in READINGS:
        raise unknown("readings", readings, READINGS)
    if readings == "cheap" and removed.how != "delete":
        raise InputError(f"Cheap readings hide features and cannot honour removal={str(removed)!r}.")
    _check_numbers(budget, seed)

    model = resolve_surrogate(surrogate, say=None if progress is False else note)
    scorer = model.prepare(asked, features, answer, removal=removed)
    n = len(scorer.features)
    masker, recipe = strategies(preset, given, n)

    drawn = masker.sample(n, budget=budget, rng=np.random.default_rng(seed))
    masks = np.concatenate([np.ones((1, n), bool), np.zeros((1, n), bool), drawn.masks])
    check_readings(recipe.regressor, len(drawn.masks) + 1)  # before any is paid for
    with reporting(progress, "Reading masked prompts") as report:
        spaces = [recipe.kernel.space] if recipe.kernel.space else []
        passes = scorer.score(
            masks,
            kl=recipe.target.needs_kl,
            spaces=spaces,
            cheap=readings == "cheap",
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
        "readings": readings,
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
        notes=tuple(filter(None, (drawn.note, passes.note, _CHEAP if readings == "cheap" else ""))),
    )


def strategies(preset: str, given: Mapping[str, object], n: int) -> tuple[Sampler, Recipe]:
    """The strategies that were given, and the preset's for those that were not (None).

    Args:
        preset: Name of the preset.
        given: ``sampler``, ``target``, ``kernel`` and ``regressor``, each a name, an object or None.
        n: The number of features.
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    chosen: dict[str, object] = {
        **PRESETS[preset](n),
        **{name: strategy for name, strategy in given.items() if strategy is not None},
    }
    recipe = Recipe.of(chosen["target"], chosen["kernel"], chosen["regressor"])
    return resolve_sampler(chosen["sampler"]), recipe


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
