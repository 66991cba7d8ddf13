"""The local engine: one process, one model, with the masked prompts of many lines in one batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing

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
    """Explain every line of a plan; the surrogates are loaded from the settings if not given."""
    ahead = 1 if settings.answering else 0  # the next group is answered while one is explained
    begun: deque[list[Item]] = deque()
    with closing(Worker(settings, settings.load(say) if models is None else models)) as worker:
        for group in plan.groups:
            begun.append(worker.begin(group.read(plan.path)))
            if len(begun) > ahead:
                write(worker.finish(begun.popleft()))
        while begun:
            write(worker.finish(begun.popleft()))
