"""Several studies at once: what they want to read next is read in one run of the surrogate."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from ropelime.method.rounds import Order
from ropelime.method.scores import Scores
from ropelime.progress import Callback
from ropelime.results.ensemble import combine
from ropelime.results.explanation import Explanation
from ropelime.study import Choices, Study
from ropelime.surrogate import Surrogate
from ropelime.text.prompt import Prompt

Steps = Generator[Order, Scores, Explanation]
Errors = tuple[type[Exception], ...]


@dataclass(frozen=True)
class Task:
    """A prompt and an answer that is to be explained.

    Attributes:
        prompt: The prompt.
        output: The answer.
        choices: How to explain it.
        also: Another preset to explain it by.
    """

    prompt: Prompt
    output: str
    choices: Choices
    also: str | None = None

    def studies(self, models: Sequence[Surrogate]) -> list[Study]:
        """One for each model, and again for the other preset."""
        ways = [self.choices]
        if self.also is not None:
            ways.append(replace(self.choices, preset=self.also))
        return [Study(self.prompt, self.output, model, way) for way in ways for model in models]


def explained(
    tasks: Sequence[Task],
    models: Sequence[Surrogate],
    *,
    progress: Callback | None = None,
    forgive: Errors = (),
) -> list[Explanation | Exception]:
    """Explain tasks, each by every model, joined where there are several.

    Args:
        tasks: The tasks.
        models: The models.
        progress: Called with the tokens done and in all, in each run of a model.
        forgive: Errors that end the task that they are about and no other. They are given back in the
            place of its explanation; all others are raised.
    """
    begun: list[list[Study] | Exception] = []
    for task in tasks:
        try:
            begun.append(task.studies(models))
        except forgive as error:
            begun.append(error)
    studies = [study for own in begun if isinstance(own, list) for study in own]
    read = iter(run([(s, s.steps()) for s in studies], progress=progress, forgive=forgive))
    found: list[Explanation | Exception] = []
    for own in begun:
        if isinstance(own, Exception):
            found.append(own)
            continue
        try:
            found.append(_joined([next(read) for _ in own], len(models)))
        except forgive as error:
            found.append(error)
    return found


def _joined(members: Sequence[Explanation | Exception], each: int) -> Explanation:
    """The explanation of one task: the first preset's models, then those of the other one."""
    whole = [member for member in members if isinstance(member, Explanation)]
    for member in members:
        if isinstance(member, Exception):
            raise member
    first, *others = [combine(some) if each > 1 else some[0] for some in _parts(whole, each)]
    return replace(first, also=others[0]) if others else first


def _parts(whole: list[Explanation], size: int) -> list[list[Explanation]]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


@dataclass
class Run:
    """A study that is under way.

    Attributes:
        study: The study.
        steps: What it asks for, step by step.
        order: What it waits for; None when it is over.
        found: Its explanation, or why there is none.
    """

    study: Study
    steps: Steps
    order: Order | None = None
    found: Explanation | Exception | None = None


def run(
    under_way: Sequence[tuple[Study, Steps]],
    *,
    progress: Callback | None = None,
    forgive: Errors = (),
) -> list[Explanation | Exception]:
    """Read what the studies ask for until each has its explanation.

    Args:
        under_way: The studies and their steps.
        progress: Called with the tokens done and in all, in each run of the surrogate.
        forgive: Errors that end the study that they are about and no other. They are given back in
            the place of its explanation; all others are raised.
    """
    runs = [Run(study, steps) for study, steps in under_way]
    for one in runs:
        _go_on(one, None, forgive)
    while waiting := [one for one in runs if one.order is not None]:
        models = {id(one.study.surrogate) for one in waiting}
        for model in sorted(models):
            some = [one for one in waiting if id(one.study.surrogate) == model]
            for one, scores in zip(some, _read(some, progress, forgive), strict=True):
                if isinstance(scores, Exception):
                    one.order, one.found = None, scores
                else:
                    _go_on(one, scores, forgive)
    return [one.found for one in runs if one.found is not None]


def _go_on(one: Run, scores: Scores | None, forgive: Errors) -> None:
    """Hand a study what it waited for."""
    try:
        one.order = next(one.steps) if scores is None else one.steps.send(scores)
    except StopIteration as stop:
        one.order, one.found = None, stop.value
    except forgive as error:
        one.order, one.found = None, error


def _read(some: Sequence[Run], progress: Callback | None, forgive: Errors) -> list[Scores | Exception]:
    """What studies of one model wait for: packed together, or one by one where that fails."""
    requests = [one.study.requests(one.order) for one in some if one.order is not None]
    surrogate = some[0].study.surrogate
    try:
        read = iter(surrogate.score_all([r for own in requests for r in own], progress=progress))
    except forgive as error:
        if len(some) == 1:
            return [error]
        return [scores for one in some for scores in _read([one], progress, forgive)]
    return [Study.joined([next(read) for _ in own]) for own in requests]
