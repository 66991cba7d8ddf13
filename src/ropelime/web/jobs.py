"""A queue of explanations: one at a time, in order, and cancelled when the client has gone."""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(eq=False)
class Job:
    """One requested explanation; :class:`ropelime.web.schema.JobView` describes what clients see."""

    id: str
    expires: float  # it is cancelled then, unless its state is queried before
    state: State = "queued"
    stage: str = "waiting"
    done: int = 0
    total: int = 0
    error: str | None = None
    field: str | None = None
    watchers: int = 0  # open progress streams; it does not expire while there is one
    started: float | None = None
    ended: float | None = None
    unwanted: bool = False

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
        """How long it has been running, or ran, in tenths."""
        return round((self.ended or time.monotonic()) - self.started, 1) if self.started else 0.0

    def report(self, done: int, total: int) -> None:
        """Record progress; raises :class:`Cancelled` if the job was cancelled or abandoned."""
        self.done, self.total = done, total
        self.check()

    def check(self) -> None:
        """Raise :class:`Cancelled` if the job was cancelled or abandoned."""
        if self.unwanted or self.abandoned:
            raise Cancelled


@dataclass(eq=False)
class Jobs(Generic[R]):
    """A first-in first-out queue of jobs with one worker thread, which starts with the first job."""

    work: Callable[[Job, R], None]  # runs one job, and calls its ``report`` or ``check`` often
    waiting: int  # how many jobs may wait
    streams: int  # how many progress streams may be open
    patience: float  # seconds without a query after which a job is cancelled
    grace: float  # the same after the last of its progress streams was closed
    closed: bool = False

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: dict[Job, R] = {}
        self._jobs: dict[str, Job] = {}
        self._watched = 0
        self._thread: threading.Thread | None = None

    def submit(self, request: R) -> Job:
        """Append a job to the queue, or refuse it if that is full."""
        with self._changed:
            for gone in [job for job in self._queue if job.abandoned]:  # they make room
                self._drop(gone)
            if self.closed:
                raise Busy("The server is shutting down.")
            if len(self._queue) >= self.waiting:
                raise Busy(f"{self.waiting} explanations are waiting already. Try again later.")
            job = Job(secrets.token_hex(16), expires=time.monotonic() + self.patience)
            self._queue[job] = request
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
                job.expires = max(job.expires, time.monotonic() + self.patience)
            return job

    def ahead(self, job: Job) -> int:
        """How many jobs run before this one starts."""
        with self._changed:
            running = sum(j.state == "running" for j in self._jobs.values())
            return list(self._queue).index(job) + running if job in self._queue else 0

    def cancel(self, job: Job) -> None:
        """Cancel a job: at once while it waits, soon while it runs; no effect when it has ended."""
        with self._changed:
            job.unwanted = True
            if job.state == "queued":
                self._drop(job)

    @contextmanager
    def watch(self, job: Job) -> Iterator[None]:
        """Keep a job alive while a stream is open, and for a grace period after the last one."""
        with self._changed:
            if self._watched >= self.streams:
                raise Busy(f"{self.streams} progress streams are open already. Poll the job instead.")
            self._watched += 1
            job.watchers += 1
        try:
            yield
        finally:
            with self._changed:
                self._watched -= 1
                job.watchers -= 1
                job.expires = time.monotonic() + self.grace

    def close(self) -> None:
        """Accept no more jobs and cancel all."""
        with self._changed:
            self.closed = True
            for job in self._jobs.values():
                self.cancel(job)
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(10.0)

    def _drop(self, job: Job) -> None:
        del self._queue[job]
        self._end(job, "cancelled", _why_cancelled(job))

    def _next(self) -> tuple[Job, R] | None:
        with self._changed:
            while not self.closed:
                job = next(iter(self._queue), None)
                if job is None:
                    self._changed.wait()
                elif job.abandoned:
                    self._drop(job)
                else:
                    job.state, job.started = "running", time.monotonic()
                    return job, self._queue.pop(job)
            return None

    def _loop(self) -> None:
        while (entry := self._next()) is not None:
            job, request = entry
            del entry
            try:
                self.work(job, request)
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
    return "Cancelled." if job.unwanted else "Its client has gone."
