"""A queue of explanations: one at a time, in order, and cancelled when the client has gone.

Work that calls :meth:`Job.report` or :meth:`Job.check` stops there. Work that does not, such as cutting
a long text, is interrupted from outside: an exception is raised in its thread.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ropelime.errors import RopeLimeError
from ropelime.web import memory

State = Literal["queued", "running", "done", "failed", "cancelled"]
R = TypeVar("R")

_KEPT = 256  # finished jobs whose state can still be queried
_LOOK = 0.25  # seconds between two looks at a running job
_LOG = logging.getLogger(__name__)


class Stopped(BaseException):
    """Raised within the work of a job that was cancelled, abandoned or has used up its time.

    It is not an Exception: no library takes it for an error of its own and continues.
    """


class Outcome(NamedTuple):
    """How a job ended."""

    state: State
    error: str | None = None
    field: str | None = None


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
    sentences: list[Any] = dataclasses.field(default_factory=list)  # of the answer, ranked at once
    watchers: int = 0  # open progress streams; it does not expire while there is one
    started: float | None = None
    ended: float | None = None
    unwanted: bool = False
    limit: int = 0  # seconds that it may take, from when the clock was started
    deadline: float = math.inf
    patience: float = math.inf  # seconds before work that does not look whether to stop is interrupted
    stopped: Outcome | None = None  # why it is being stopped

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

    def start_clock(self, limit: int) -> None:
        """Let it take at most ``limit`` seconds from now on."""
        self.limit, self.deadline = limit, time.monotonic() + limit

    def report(self, done: int, total: int) -> None:
        """Record progress; raises :class:`Stopped` if the job has to stop."""
        self.done, self.total = done, total
        self.check()

    def check(self) -> None:
        """Raise :class:`Stopped` if the job was cancelled or abandoned, or if its time is up."""
        if self.must_stop():
            raise Stopped

    def must_stop(self) -> bool:
        """Whether it has to stop; the first reason is recorded."""
        if self.stopped is None:
            if self.unwanted:
                self.stopped = Outcome("cancelled", "Cancelled.")
            elif self.abandoned:
                self.stopped = Outcome("cancelled", "Its client has gone.")
            elif time.monotonic() > self.deadline:
                self.stopped = Outcome(
                    "failed",
                    f"It was stopped after {self.limit:,} seconds, the limit of this server. Choose "
                    "larger features, a smaller budget or cached scoring.",
                )
        return self.stopped is not None


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
        self._running: Job | None = None
        self._raising = threading.Lock()  # while an exception is raised in the thread, or prevented

    def make_room(self) -> None:
        """Drop the jobs whose clients have gone; raises :class:`Busy` if the queue is full even so."""
        with self._changed:
            for gone in [job for job in self._queue if job.abandoned]:
                self._drop(gone)
            if self.closed:
                raise Busy("The server is shutting down.")
            if len(self._queue) >= self.waiting:
                raise Busy(f"{self.waiting} explanations are waiting already. Try again later.")

    def submit(self, request: R) -> Job:
        """Append a job to the queue, or refuse it if that is full."""
        with self._changed:
            self.make_room()
            job = Job(secrets.token_hex(16), expires=time.monotonic() + self.patience)
            self._queue[job] = request
            self._jobs[job.id] = job
            for old in [j for j in self._jobs.values() if j.over][:-_KEPT]:
                del self._jobs[old.id]
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ropelime-jobs", daemon=True)
                self._thread.start()
                threading.Thread(target=self._watch_over, name="ropelime-watch", daemon=True).start()
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

    def settle(self, job: Job) -> None:
        """Interrupt the work of a job no more, as it is about to save what it has made."""
        while True:
            try:
                with self._raising:
                    job.patience = math.inf
                # One that was raised and has not arrived yet arrives in this loop. Taking it back
                # would leave the interpreter looking for it, and hang a traced thread (Python 3.11).
                for _ in range(100):
                    pass
                return
            except Stopped:  # it arrived here
                continue

    def _drop(self, job: Job) -> None:
        del self._queue[job]
        job.must_stop()
        self._end(job, job.stopped or Outcome("cancelled"))

    def _next(self) -> tuple[Job, R] | None:
        with self._changed:
            self._running = None
            while not self.closed:
                job = next(iter(self._queue), None)
                if job is None:
                    self._changed.wait()
                elif job.abandoned:
                    self._drop(job)
                else:
                    job.state, job.started, self._running = "running", time.monotonic(), job
                    self._changed.notify_all()
                    return job, self._queue.pop(job)
            return None

    def _loop(self) -> None:
        while (entry := self._next()) is not None:
            job, request = entry
            del entry
            self._end(job, self._outcome(job, request))
            del job, request  # a prompt may be large, and the next job may come much later
            memory.release()

    def _outcome(self, job: Job, request: R) -> Outcome:
        """Run a job; whatever is raised, the queue continues."""
        try:
            try:
                self.work(job, request)
            finally:
                self.settle(job)
        except Stopped:
            self.settle(job)  # in case it was raised before the first line of the other
            return job.stopped or Outcome("cancelled", "Cancelled.")
        except RopeLimeError as error:
            return Outcome("failed", str(error), getattr(error, "field", None) or None)
        except BaseException:  # a tokenizer that panics raises one that is not an Exception
            _LOG.exception("A job has failed.")
            return Outcome("failed", "Internal error; the server's log has the details.")
        return Outcome("done")

    def _watch_over(self) -> None:
        """Interrupt a job that has to stop and does not look."""
        since: dict[Job, float] = {}  # when the running job had to stop, or was last interrupted
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.closed or self._running is not None)
                job = self._running
            if job is None:
                return  # closed, and nothing runs
            if job.must_stop():
                now = time.monotonic()
                since = {job: since.get(job, now)}
                with self._raising:
                    if now - since[job] >= job.patience:
                        since[job] = now
                        self._raise(Stopped)
            time.sleep(_LOOK)

    def _raise(self, error: type[BaseException]) -> None:
        """Raise an error in the worker's thread at its next Python instruction."""
        assert self._thread is not None
        ident = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(error))

    def _end(self, job: Job, outcome: Outcome) -> None:
        with self._changed:
            job.error, job.field, job.ended = outcome.error, outcome.field, time.monotonic()
            job.state = outcome.state
