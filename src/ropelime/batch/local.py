"""The local engine: one process, one model, with the masked prompts of many lines in one batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ropelime.batch.lines import BatchPlan
from ropelime.batch.work import Done, Item, Settings, Worker
from ropelime.surrogate import Surrogate


def run(
    plan: BatchPlan,
    settings: Settings,
    write: Callable[[Done], None],
    *,
    models: Sequence[Surrogate] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Explain every line of a plan.

    Args:
        plan: The lines.
        settings: How to explain them.
        write: Called with the rows of each group when it is done.
        models: The surrogates; those of the settings are loaded if not given.
        say: Called with a line of text for each slow step of loading.
    """
    worker = Worker(settings, settings.load(say) if models is None else models)
    ahead = 1 if settings.answering else 0  # the next group is answered while one is explained
    begun: deque[list[Item]] = deque()
    try:
        for group in plan.groups:
            begun.append(worker.begin(group.read(plan.path)))
            if len(begun) > ahead:
                write(worker.finish(begun.popleft()))
        while begun:
            write(worker.finish(begun.popleft()))
    finally:
        worker.close()
