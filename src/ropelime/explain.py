"""The one call: a prompt and an answer in, an explanation out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ropelime import together
from ropelime.errors import InputError
from ropelime.method.attribution import Recipe
from ropelime.method.kernels import Kernel
from ropelime.method.regression import Regressor
from ropelime.method.samplers import Sampler
from ropelime.method.targets import Target
from ropelime.progress import Option, note, reporting
from ropelime.results.ensemble import combine
from ropelime.results.explanation import Explanation
from ropelime.study import Choices, Study, check_suits
from ropelime.surrogate import Ablation, Surrogate, resolve_surrogate, resolve_surrogates
from ropelime.text import integrations as adapters
from ropelime.text import prompt as prompts
from ropelime.text.prompt import Prompt, Span

_READING = "Reading masked prompts"


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
    surrogate: str | Surrogate | Any | Sequence[Any] = "smollm2",
    sampler: str | Sampler | None = None,
    target: str | Target | None = None,
    kernel: str | Kernel | None = None,
    regressor: str | Regressor | None = None,
    ablation: str | Ablation = "delete",
    scoring: str | None = None,
    budget: int | str = "auto",
    seed: int = 0,
    progress: Option = "auto",
    preset: str = "evidence",
    also: str | None = None,
    instead_of: str | None = None,
    interactions: bool = False,
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
            vLLM server, a function of masks, or an object. With a list of them each explains by itself;
            the shares are averaged, and ``e.members`` and the trust say how far they agree.
        sampler: Which masks to read; see :mod:`ropelime.method.samplers`.
        target: What the fit explains; see :mod:`ropelime.method.targets`.
        kernel: How much each reading counts; see :mod:`ropelime.method.kernels`.
        regressor: How to fit; see :mod:`ropelime.method.regression`.
        ablation: ``"delete"`` closes the gap of a removed feature, ``"in-place"`` leaves the others at
            their positions, ``"placeholder:TEXT"`` puts a text there.
        scoring: ``"exact"`` runs the surrogate over every masked prompt. ``"cheap"`` runs the prompt
            once and, for each mask, only what follows its last feature, with the removed features
            hidden: fewer tokens, but what is kept has already seen what is removed. The preset decides
            if not given.
        budget: How much to read, on top of the full and the empty prompt. ``"auto"`` stops when the
            readings have settled it. A number of masks, ``"20000 tokens"`` or ``"5 seconds"`` is kept
            to instead; what interactions read comes on top.
        seed: Seed of the masks.
        progress: ``"auto"``, True, False, or a function of (done, total).
        preset: Which question to answer, where strategies are not given. ``"evidence"``: which parts
            would a person cite for this answer? ``"faithful"``: which parts foretell how likely the
            answer is when others are removed too? ``"paper"``: the method of the paper.
        also: Another preset to answer in the same call; its explanation is ``e.also``.
        instead_of: Another answer: why was it not that one? Weights then say what speaks for the
            output and against this.
        interactions: Whether to look for pairs of features that only work together, or of which either
            will do: ``e.interactions``.
    """
    if response is not None or request is not None:
        given_too = {"prompt": prompt, "output": output, "context": context, "messages": messages}
        output, said = _from_response(response, request, question, given_too)
        context, question, messages = (said.get(k) for k in ("context", "question", "messages"))
    asked = read_prompt(prompt, context, question, messages)
    answer = prompts.check_text("output", output)
    if instead_of is not None:
        prompts.check_text("instead_of", instead_of)
    choices = Choices(  # what is wrong is refused before a model is loaded
        features=features,
        sampler=sampler,
        target=target,
        kernel=kernel,
        regressor=regressor,
        ablation=ablation,
        scoring=scoring,
        budget=budget,
        seed=seed,
        preset=preset,
        interactions=interactions,
        instead_of=instead_of,
    )
    if also is not None:
        dataclasses.replace(choices, preset=also)
    say = None if progress is False else note
    models = resolve_surrogates(surrogate, say=say)
    check_suits(models, choices, also)
    task = together.Task(asked, answer, choices, also)
    with reporting(progress, _READING) as report:
        (found,) = together.explained([task], models, progress=report)
    assert isinstance(found, Explanation)
    return found


def extend(
    explanation: Explanation, more: int, *, surrogate: Any = None, progress: Option = "auto"
) -> Explanation:
    """The same explanation out of more readings.

    Args:
        explanation: Of a whole answer, made here or loaded.
        more: How many masks to read on top; the one of another preset stays as it is.
        surrogate: The model that it was made with; loaded by its name if not given.
        progress: As in :func:`explain`.
    """
    if isinstance(more, bool) or not isinstance(more, int) or more < 1:
        raise InputError(f"extend() takes a whole number of masks of at least 1, not {more!r}.")
    if explanation.members:
        given = surrogate if isinstance(surrogate, (list, tuple)) else [surrogate]
        if len(given) == 1:
            given = given * len(explanation.members)
        if len(given) != len(explanation.members):
            raise InputError(
                f"{len(explanation.members)} surrogates made it, and {len(given)} were given to go on."
            )
        each = zip(explanation.members, given, strict=True)
        joined = combine([extend(m, more, surrogate=s, progress=progress) for m, s in each])
        return dataclasses.replace(joined, also=explanation.also)
    if explanation.span != (0, len(explanation.output)):
        raise InputError("This explains a part of the answer; extend that of the whole answer.")
    config = explanation.config
    if "masks" not in config:
        raise InputError("This was saved by an older release and cannot be extended; make it again.")
    known = dict(config["surrogate"])
    model = resolve_surrogate(known["name"] if surrogate is None else surrogate)
    here = model.describe()
    if different := [k for k in ("name", "architecture", "dtype") if here.get(k) != known.get(k)]:
        says = ", ".join(f"{k} {known.get(k)!r} and not {here.get(k)!r}" for k in different)
        raise InputError(f"It was made by a surrogate with {says}; pass that one as surrogate=...")
    recipe = explanation.recipe or Recipe.of(*(config[k] for k in ("target", "kernel", "regressor")))
    spans = tuple((feature.start, feature.end) for feature in explanation.features)
    choices = Choices(
        features=spans if config["features"] == "spans" else config["features"],
        sampler=config["sampler"],
        target=recipe.target,
        kernel=recipe.kernel,
        regressor=recipe.regressor,
        ablation=config["ablation"],
        scoring=config["scoring"],
        seed=config["seed"],
        preset=config["preset"],
        instead_of=config["instead_of"],
    )
    with reporting(progress, _READING) as report:
        study = Study(explanation.prompt, explanation.output, model, choices)
        (found,) = together.run([(study, study.steps(explanation, more))], progress=report)
    assert isinstance(found, Explanation)
    kept = {name: config[name] for name in ("budget", "interactions", "answer") if name in config}
    return dataclasses.replace(found, config={**found.config, **kept}, also=explanation.also)


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
    return prompts.from_messages(adapters.as_messages(messages))
