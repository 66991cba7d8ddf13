"""Every option of an explanation, declared and parsed once.

Python, the command line, batches and the web API all build :class:`Options`: a field below is the one
place where an option has its name, default, help text and parser.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypedDict, TypeVar

from ropelime.errors import InputError
from ropelime.method.attribution import Recipe
from ropelime.method.kernels import KERNELS, Kernel, resolve_kernel
from ropelime.method.regression import REGRESSORS, Regressor, resolve_regressor
from ropelime.method.samplers import SAMPLERS, NoMasks, Sampler, resolve_sampler
from ropelime.method.schedule import Budget, Schedule, if_redundant, if_unclear
from ropelime.method.targets import TARGETS, Target, resolve_target
from ropelime.registry import describe, spelled, unknown
from ropelime.surrogate.base import Ablation
from ropelime.text.features import GRANULARITIES
from ropelime.text.prompt import Span, check_text, naming_field

Granularity = Literal["token", "word", "sentence", "paragraph", "document", "message"]
PresetName = Literal["evidence", "instant", "faithful", "paper"]
Scoring = Literal["cached", "exact"]
SCORING: tuple[Scoring, ...] = ("exact", "cached")
_CONTRAST = "contrast"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Preset:
    """Strategies that go together.

    Attributes:
        scoring: How masks are scored where nothing else is requested.
        sampler: Which masks.
        target: What the fit explains.
        kernel: How much each mask counts.
        regressor: How to fit.
        exact_sampler: Which masks where cached scoring is not wanted or not supported.
        follow_up: Whether the first scores call for more, and of which kind.
    """

    scoring: Scoring
    sampler: str
    target: str
    kernel: str
    regressor: str
    exact_sampler: str
    follow_up: Any = None


PRESETS: Mapping[str, Preset] = {
    # What does each part do for this answer? Cached leave-one-out, and shared words.
    "evidence": Preset(
        scoring="cached",
        sampler="leave-one-out-first",
        target="evidence",
        kernel="uniform",
        regressor="wls",
        exact_sampler="leave-one-out-first",
        follow_up=if_redundant,
    ),
    # The same from one forward pass without any ablation: attention, and shared words.
    "instant": Preset(
        scoring="cached",
        sampler="none",
        target="instant",
        kernel="uniform",
        regressor="wls",
        exact_sampler="none",
    ),
    # Which parts predict the probability of the answer under ablations? Random-half masks.
    "faithful": Preset(
        scoring="cached",
        sampler="hadamard:128",
        target="nll",
        kernel="uniform",
        regressor="bayes-ridge",
        exact_sampler="hadamard:64",
        follow_up=if_unclear,
    ),
    # The paper to the letter: Sparse-K at its best setting for the number of features.
    "paper": Preset(
        scoring="exact",
        sampler="sparse-k-best",
        target="kl",
        kernel="rope-rwmd",
        regressor="wls",
        exact_sampler="sparse-k-best",
    ),
}


def _option(
    default: Any,
    parse: Callable[[Any], Any],
    json: Any,
    help: str,
    *,
    choices: Sequence[str] = (),
    **how: Any,
) -> Any:
    """A field with what the command line and the web API need to know about it.

    Args:
        default: Its default.
        parse: Turns what the caller gave into the value, or raises InputError; takes its own values
            too.
        json: Its type in JSON.
        help: What it does.
        choices: Values to offer; others are possible unless ``json`` lists the same.
        **how: More arguments for the command line's parser.
    """
    metadata = {"parse": parse, "json": json, "help": help, "choices": choices, "argument": how}
    return field(default=default, metadata=metadata)


def _strategy(known: Mapping[str, type], resolve: Callable[[object], Any], help: str) -> Any:
    shown = f"{help}: {spelled(known)}; parameters may be left out; the preset decides if not given"

    def parse(spec: Any) -> Any:
        return None if spec is None else resolve(spec)

    return _option(None, parse, str | None, shown, choices=tuple(known))


def _named(kind: str, known: Sequence[str]) -> Callable[[Any], Any]:
    def parse(name: Any) -> Any:
        if name is not None and name not in known:
            raise unknown(kind, name, known)
        return name

    return parse


def _features(spec: Any) -> Any:
    if isinstance(spec, str) and spec not in GRANULARITIES:
        raise unknown("features", spec, GRANULARITIES)
    return spec


def _seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed must be a whole number that is not negative, not {seed!r}.")
    return seed


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"interactions must be True or False, not {value!r}.")
    return value


def _instead_of(text: Any) -> Any:
    return text if text is None else check_text("instead_of", text)


class OptionKeywords(TypedDict, total=False):
    """The options as keyword arguments, for type checkers; :class:`Options` says what they mean."""

    features: Granularity | Sequence[Span]
    preset: PresetName
    sampler: str | Sampler | Mapping[str, Any] | None
    target: str | Target | Mapping[str, Any] | None
    kernel: str | Kernel | Mapping[str, Any] | None
    regressor: str | Regressor | Mapping[str, Any] | None
    ablation: str | Ablation
    scoring: Scoring | None
    budget: int | str | Budget
    seed: int
    also: PresetName | None
    instead_of: str | None
    interactions: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to explain, whatever the prompt. Names are resolved and mistakes refused when it is made."""

    features: Granularity | Sequence[Span] = _option(
        "sentence", _features, Granularity | list[list[int]],
        "what is removed and ranked: token, word, sentence, paragraph, document (each chunk), message "
        "(each message or tool call); in Python and JSON also a list of (start, end) in the prompt's "
        "text",
        choices=GRANULARITIES, metavar="KIND",
    )  # fmt: skip
    preset: PresetName = _option(
        "evidence", _named("preset", tuple(PRESETS)), PresetName,
        "how to explain; evidence: what each part does for the answer (leave-one-out, and the words "
        "that it shares with the answer); instant: the same in one pass (attention, and words); "
        "faithful: what predicts the answer's probability under ablations (random-half masks); paper: "
        "what the method of the paper gives (Sparse-K)",
        choices=tuple(PRESETS), metavar="NAME",
    )  # fmt: skip
    sampler: Any = _strategy(SAMPLERS, resolve_sampler, "which masks to score")
    target: Any = _strategy(TARGETS, resolve_target, "what the fit explains")
    kernel: Any = _strategy(KERNELS, resolve_kernel, "how much each mask counts")
    regressor: Any = _strategy(REGRESSORS, resolve_regressor, "how to fit")
    ablation: Any = _option(
        "delete", Ablation.of, str,
        "what replaces a removed feature: delete closes the gap, in-place keeps the positions of the "
        "rest, placeholder:TEXT inserts a text",
        choices=("delete", "in-place", "placeholder:[...]"), metavar="HOW",
    )  # fmt: skip
    scoring: Scoring | None = _option(
        None, _named("scoring", SCORING), Scoring | None,
        "exact runs the surrogate over every masked prompt; cached runs the prompt once and, for each "
        "mask, only what follows the last feature, with the removed features' KV cache hidden: fewer "
        "tokens, but kept features have attended to removed ones; the preset decides if not given",
        choices=SCORING, metavar="HOW",
    )  # fmt: skip
    budget: Any = _option(
        "auto", Budget.of, int | str,
        "how much to score besides the full prompt and the prompt with no feature: auto (the preset "
        "decides), a number of masks, '20000 tokens' or '5 seconds'; interactions come on top",
        choices=("auto",), metavar="LIMIT",
    )  # fmt: skip
    seed: int = _option(0, _seed, int, "seed of the masks", type=int)
    also: PresetName | None = _option(
        None, _named("preset", tuple(PRESETS)), PresetName | None,
        "a second preset to run in the same call; its explanation is e.also",
        choices=tuple(PRESETS), metavar="PRESET",
    )  # fmt: skip
    instead_of: str | None = _option(
        None, _instead_of, str | None,
        "another answer: weights then say what supports the output rather than this answer",
        metavar="TEXT",
    )  # fmt: skip
    interactions: bool = _option(
        False, _switch, bool,
        "look for pairs of features that only work together, or that are redundant: e.interactions",
        action="store_true",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            with naming_field(each.name):
                parsed = each.metadata["parse"](getattr(self, each.name))
            object.__setattr__(self, each.name, parsed)
        if self.scoring == "cached" and self.ablation.how != "delete":
            raise InputError(
                "Cached scoring hides features in the KV cache and cannot honour "
                f"ablation={str(self.ablation)!r}.",
                field="scoring",
            )
        target = describe(self.recipe.target)["name"]
        if (target == _CONTRAST) != (self.instead_of is not None):
            raise InputError(
                f"instead_of='another answer' and target={_CONTRAST!r} go together; "
                f"got target={target!r}.",
                field="instead_of",
            )
        sampler = self.sampler or resolve_sampler(PRESETS[self.preset].sampler)
        if isinstance(sampler, NoMasks) and self.recipe.target.needs_masks:
            raise InputError(
                f"target={target!r} is fitted to masks and sampler='none' draws none: with "
                "preset='instant', give a sampler too, such as 'leave-one-out', or use another preset.",
                field="sampler",
            )
        if self.also is not None:
            self.second()

    @classmethod
    def of(cls, given: Mapping[str, Any], *, caller: str = "explain") -> Options:
        """Parse the keyword arguments of a function; an unknown name is a TypeError."""
        known = [each.name for each in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")
        return cls(**given)

    @cached_property
    def recipe(self) -> Recipe:
        """The strategies that were given, and the preset's for those that were not."""
        preset = PRESETS[self.preset]
        target = preset.target if self.instead_of is None else _CONTRAST
        return Recipe.of(
            target if self.target is None else self.target,
            preset.kernel if self.kernel is None else self.kernel,
            preset.regressor if self.regressor is None else self.regressor,
        )

    def second(self) -> Options:
        """The same under the preset that ``also`` names."""
        assert self.also is not None
        return dataclasses.replace(self, preset=self.also, also=None)

    def schedule(self, *, cached: bool) -> Schedule:
        """Which masks to score: the preset's, or those of the sampler that was given.

        Args:
            cached: Whether they are scored from the KV cache.
        """
        preset = PRESETS[self.preset]
        common = {"recipe": self.recipe, "budget": self.budget, "cached": cached, "seed": self.seed}
        if self.sampler is not None:  # whoever chooses the masks gets those and no others
            return Schedule(sampler=self.sampler, **common)
        sampler = resolve_sampler(preset.sampler if cached else preset.exact_sampler)
        follow_up = preset.follow_up if cached == (preset.scoring == "cached") else None
        return Schedule(sampler=sampler, follow_up=follow_up, may_group=True, **common)

    def describe(self) -> dict[str, Any]:
        """The options as plain data, from which :meth:`of` builds them again."""
        plain = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        for name in ("sampler", "target", "kernel", "regressor"):
            plain[name] = plain[name] and describe(plain[name])
        return {**plain, "ablation": str(self.ablation), "budget": str(self.budget)}


def takes_options(function: F) -> F:
    """Show the options in the signature and the docstring of a function that takes them."""
    signature = inspect.signature(function)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in dataclasses.fields(Options)
    ]
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=[*kept, *options])  # type: ignore[attr-defined]
    lines = [
        textwrap.fill(
            f"{f.name}: {f.metadata['help'][0].upper()}{f.metadata['help'][1:]}.",
            width=100, initial_indent=" " * 4, subsequent_indent=" " * 8,
        )
        for f in dataclasses.fields(Options)
    ]  # fmt: skip
    # The entry of **options, with the lines that continue it; of a method, the text is indented deeper.
    before, after = re.split(
        r"    \*\*options:.*(?:\n {8}.*)*", inspect.cleandoc(function.__doc__ or "")
    )
    function.__doc__ = before + "\n".join(lines) + after
    return function
