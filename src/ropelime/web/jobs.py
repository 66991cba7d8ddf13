"""A queue of explanations: one at a time, in order, and cancelled when the client has gone."""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Literal, TypeVar

from ropelime.errors import RopeLimeError
from ropelime.progress import note

State = Literal["queued", "running", "done", "failed", "cancelled"]
R = TypeVar("R")

_KEPT = 256  # finished jobs whose state can still be queried


class Cancelled(Exception):
    """Raised within the work of a job that was cancelled."""


class Busy(RopeLimeError):
    """The queue is full; the same request may be accepted later."""


@dataclasses.dataclass(eq=False)
class Job:
    """One requested explanation.

    Attributes:
        id: Its name, and that of the explanation in the history once it is done.
        state: Queued, running or how it ended.
        stage: What it is doing, in words.
        done: Finished work, in arbitrary units.
        total: All work; 0 while that is not known.
        error: Why it failed or was cancelled.
        field: The field of the request that caused the error, if one did.
        expires: When it is cancelled unless its state is queried before.
        watchers: Open progress streams; it does not expire while there is one.
        started: When its work began.
        ended: When its work ended.
    """

    id: str
    state: State = "queued"
    stage: str = "waiting"
    done: int = 0
    total: int = 0
    error: str | None = None
    field: str | None = None
    expires: float = 0.0
    watchers: int = 0
    started: float | None = None
    ended: float | None = None
    unwanted: threading.Event = dataclasses.field(default_factory=threading.Event, repr=False)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def abandoned(self) -> bool:
        """Whether its client has gone."""
        return not self.watchers and time.monotonic() > self.expires

    @property
    def seconds(self) -> float:
        """How long it has been running, or ran."""
        return 0.0 if self.started is None else (self.ended or time.monotonic()) - self.started

    def report(self, done: int, total: int) -> None:
        """Record progress; raises :class:`Cancelled` if the job was cancelled or abandoned."""
        self.done, self.total = done, total
        self.check()

    def check(self) -> None:
        """Raise :class:`Cancelled` if the job was cancelled or abandoned."""
        if self.unwanted.is_set() or self.abandoned:
            raise Cancelled


class Jobs(Generic[R]):
    """A first-in first-out queue of jobs with one worker thread."""

    def __init__(
        self,
        work: Callable[[Job, R], None],
        *,
        waiting: int,
        streams: int,
        patience: float,
        grace: float,
    ) -> None:
        """Make an empty queue; its thread starts with the first job.

        Args:
            work: Runs one job, and calls its ``report`` or ``check`` often.
            waiting: How many jobs may wait.
            streams: How many progress streams may be open.
            patience: Seconds without a query after which a job is cancelled.
            grace: The same after the last of its progress streams was closed.
        """
        self._work = work
        self._most, self._streams = waiting, streams
        self._patience, self._grace = patience, grace
        self._changed = threading.Condition()
        self._queue: deque[tuple[Job, R]] = deque()
        self._jobs: dict[str, Job] = {}
        self._watched = 0
        self._thread: threading.Thread | None = None
        self.closed = False

    def submit(self, request: R) -> Job:
        """Append a job to the queue, or refuse it if that is full."""
        with self._changed:
            for job, _ in list(self._queue):  # abandoned jobs make room
                if job.abandoned:
                    self._drop(job)
            if self.closed or len(self._queue) >= self._most:
                raise Busy(
                    "The server is shutting down."
                    if self.closed
                    else f"{self._most} explanations are waiting already. Try again later."
                )
            job = Job(secrets.token_hex(16), expires=time.monotonic() + self._patience)
            self._queue.append((job, request))
            self._jobs[job.id] = job
            for old in [j for j in self._jobs.values() if j.over][:-_KEPT]:
                del self._jobs[old.id]
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ropelime-jobs", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return job

    def find(self, name: str) -> Job | None:
        """The job of that name; a query renews its expiry."""
        with self._changed:
            job = self._jobs.get(name)
            if job is not None:
                job.expires = max(job.expires, time.monotonic() + self._patience)
            return job

    def ahead(self, job: Job) -> int:
        """How many jobs run before this one starts."""
        with self._changed:
            running = sum(j.state == "running" for j in self._jobs.values())
            names = [j.id for j, _ in self._queue]
            return names.index(job.id) + running if job.id in names else 0

    def cancel(self, job: Job) -> None:
        """Cancel a job: at once while it waits, soon while it runs; no effect when it has ended."""
        with self._changed:
            job.unwanted.set()
            if job.state == "queued":
                self._drop(job)

    @contextmanager
    def watch(self, job: Job) -> Iterator[None]:
        """Keep a job alive while a stream is open, and for a grace period after the last one."""
        with self._changed:
            if self._watched >= self._streams:
                raise Busy(f"{self._streams} progress streams are open already. Poll the job instead.")
            self._watched += 1
            job.watchers += 1
        try:
            yield
        finally:
            with self._changed:
                self._watched -= 1
                job.watchers -= 1
                job.expires = time.monotonic() + self._grace

    def open(self) -> None:
        """Accept jobs, also after a close."""
        with self._changed:
            self.closed = False

    def close(self, timeout: float = 10.0) -> None:
        """Accept no more jobs and cancel all."""
        with self._changed:
            self.closed = True
            for job in list(self._jobs.values()):
                if not job.over:
                    self.cancel(job)
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout)

    def _drop(self, job: Job) -> None:
        self._queue = deque(entry for entry in self._queue if entry[0] is not job)
        self._end(job, "cancelled", _why_cancelled(job))

    def _next(self) -> tuple[Job, R] | None:
        with self._changed:
            while True:
                while not self._queue and not self.closed:
                    self._changed.wait()
                if self.closed:
                    return None
                job, request = self._queue[0]
                if job.abandoned:
                    self._drop(job)
                    continue
                self._queue.popleft()
                job.state, job.started = "running", time.monotonic()
                return job, request

    def _loop(self) -> None:
        while (entry := self._next()) is not None:
            job, request = entry
            del entry
            try:
                self._work(job, request)
            except Cancelled:
                self._end(job, "cancelled", _why_cancelled(job))
            except RopeLimeError as error:
                self._end(job, "failed", str(error), getattr(error, "field", None) or None)
            except Exception:  # one job must not stop the queue
                note(traceback.format_exc())
                self._end(job, "failed", "Internal error; the server's log has the details.")
            else:
                self._end(job, "done")
            del job, request  # a prompt may be large, and the next job may come much later

    def _end(self, job: Job, state: State, error: str | None = None, field: str | None = None) -> None:
        with self._changed:
            job.error, job.field, job.ended = error, field, time.monotonic()
            job.state = state


def _why_cancelled(job: Job) -> str:
    return "Cancelled." if job.unwanted.is_set() else "Its client has gone."
