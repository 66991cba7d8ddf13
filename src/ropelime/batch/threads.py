"""Threads that ask, and that nobody waits for when the program ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Threads that call functions.

    Those of ``concurrent.futures`` are waited for: a program that was interrupted would hang until the
    last server has answered, with all that is tried again.
    """

    def __init__(self, count: int) -> None:
        """Take the number of threads."""
        self._todo: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"ropelime-{n}", daemon=True) for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call a function as soon as a thread is free."""
        future: Future[T] = Future()
        self._todo.put((future, function))
        return future

    def close(self) -> None:
        """Begin nothing more."""
        with suppress(queue.Empty):
            while True:
                if (waiting := self._todo.get_nowait()) is not None:
                    waiting[0].cancel()
        for _ in self._threads:
            self._todo.put(None)

    def _work(self) -> None:
        while (item := self._todo.get()) is not None:
            future, function = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
