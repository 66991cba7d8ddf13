"""A batch on this machine: one process, one model, the rows of many lines packed together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ropelime.batch.lines import Plan
from ropelime.batch.work import Done, Item, Settings, Worker
from ropelime.surrogate import Surrogate


def run(
    plan: Plan,
    settings: Settings,
    write: Callable[[Done], None],
    *,
    models: Sequence[Surrogate] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Explain every line of a plan.

    Args:
        plan: The lines.
        settings: What to do.
        write: Called with the rows of each group when it is done.
        models: The models; those that the settings name are loaded if not given.
        say: Called with a line for each step of loading that takes a while.
    """
    worker = Worker(settings, settings.load(say) if models is None else models)
    ahead = 1 if settings.answering else 0  # while a group is explained, the next one is asked about
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
