"""A bounded pool of requests that can be cancelled at any time.

A thread that waits for a server cannot be interrupted, and an event loop cannot be started where one
is running already, as in a notebook. So requests are coroutines in a loop in a background thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_BEAT = 0.25  # seconds without a result after which stream() lets its caller look around


class Pool:
    """Runs coroutines, at most ``size`` at once; closing it cancels those that run or wait."""

    def __init__(self, size: int, *, cleanup: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Start the thread; ``cleanup``, as of a client that they share, is awaited at the very end."""
        self._cleanup = cleanup
        self._slots = asyncio.Semaphore(size)
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a program that ends does not wait for a server.
        self._thread = threading.Thread(target=self._run, name="ropelime-requests", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        """Call and await a function as soon as there is room for it; those that came first go first."""
        return asyncio.run_coroutine_threadsafe(self._bounded(function), self._loop)

    def stream(
        self, *functions: Callable[[Callable[[T], None]], Awaitable[None]]
    ) -> Generator[T | None, None, None]:
        """Yield what functions put out by the function that they get, as it arrives.

        None is yielded when all of it has been taken, and then now and then until more arrives. The
        first error is raised.
        """
        arrived: queue.SimpleQueue[T | Future[None]] = queue.SimpleQueue()
        for function in functions:
            self.submit(partial(function, arrived.put)).add_done_callback(arrived.put)
        left = len(functions)
        wait = _BEAT
        while left:
            try:
                item = arrived.get(block=wait > 0, timeout=wait)
            except queue.Empty:
                yield None
                wait = _BEAT
                continue
            wait = 0.0
            if isinstance(item, Future):
                item.result()
                left -= 1
            else:
                yield item

    def close(self) -> None:
        """Cancel what runs or waits, and wait for its end, which is soon."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _bounded(self, function: Callable[[], Awaitable[T]]) -> T:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            async with self._slots:
                return await function()
        finally:
            self._tasks.discard(task)

    async def _serve(self) -> None:
        await self._closing.wait()
        # Our own tasks alone: each cancels those that its libraries have started, in their order.
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._cleanup is not None:
            await self._cleanup()
