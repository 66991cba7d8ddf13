"""An event loop in a thread of its own, whose work can be stopped at once.

A thread that waits for a server cannot be interrupted, and a loop cannot be started where one is
running already, as in a notebook. So the requests run in a loop in the background, and whoever wants
what they bring takes it out of a queue: an interruption there cancels them all.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_BEAT = 0.25  # seconds: how long nothing may come before the caller hears that


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def stream(
    work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]],
) -> Generator[T | None, None, None]:
    """What a coroutine puts out, as it comes; None where nothing came for a moment.

    Closing the iterator, or an exception in it, cancels the coroutine and waits for its end.

    Args:
        work: Makes the coroutine; it is given the function that puts something out.
    """
    came: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(work(came.put))

    def run() -> None:
        error: BaseException | None = None
        try:
            loop.run_until_complete(task)
        except BaseException as raised:
            error = raised
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            came.put(_End(error))

    thread = threading.Thread(target=run, name="ropelime-requests", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = came.get(timeout=_BEAT)
            except queue.Empty:
                yield None
                continue
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return
    finally:
        with suppress(RuntimeError):  # the loop is closed: the work is over
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


async def together(jobs: Iterator[Coroutine[Any, Any, None]], at_once: int) -> None:
    """Run coroutines, never more than some at once; the first that fails ends all of them."""

    async def work() -> None:
        for job in jobs:
            await job

    workers = [asyncio.ensure_future(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
