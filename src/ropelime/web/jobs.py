"""A queue of explanations to make: one at a time, in order, and none for a client that has gone."""

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

_KEEP = 256  # finished jobs that can still be asked about


class Cancelled(Exception):
    """Raised in the middle of the work of a job that nobody wants any more."""


class Busy(RopeLimeError):
    """The server has as much to do as it takes on; the same request may be accepted later."""


@dataclasses.dataclass(eq=False)
class Job:
    """One explanation that is asked for.

    Attributes:
        id: Its name, and that of the explanation in the history once it is done.
        state: Where it stands.
        stage: What is being done, in words.
        done: Work that is done, in units of its own.
        total: Work in all; 0 while that is not known.
        error: Why it failed or was cancelled.
        field: The field of the request that was the reason, if one was.
        expires: When it is given up unless somebody asks about it before.
        watchers: Open progress streams; it is not given up while there is one.
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
        """Whether nothing will change any more."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def abandoned(self) -> bool:
        """Whether whoever asked for it has gone."""
        return not self.watchers and time.monotonic() > self.expires

    @property
    def seconds(self) -> float:
        """How long it has been worked on."""
        return 0.0 if self.started is None else (self.ended or time.monotonic()) - self.started

    def report(self, done: int, total: int) -> None:
        """Note how far the work is; raises :class:`Cancelled` where nobody wants it any more."""
        self.done, self.total = done, total
        self.check()

    def check(self) -> None:
        """Raise :class:`Cancelled` where nobody wants the job any more."""
        if self.unwanted.is_set() or self.abandoned:
            raise Cancelled


class Jobs(Generic[R]):
    """Jobs in the order in which they came, worked on by one thread."""

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
            work: Does one job, and calls its ``report`` or ``check`` often.
            waiting: How many jobs may wait.
            streams: How many progress streams may be open.
            patience: Seconds after which a job is given up that nobody asks about.
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
        """Put a job at the end of the queue, or refuse it if that is full."""
        with self._changed:
            for job, _ in list(self._queue):  # who has gone leaves the queue to others
                if job.abandoned:
                    self._drop(job)
            if self.closed or len(self._queue) >= self._most:
                raise Busy(
                    "The server is shutting down."
                    if self.closed
                    else f"{self._most} explanations are waiting already. Try again in a while."
                )
            job = Job(secrets.token_hex(16), expires=time.monotonic() + self._patience)
            self._queue.append((job, request))
            self._jobs[job.id] = job
            for old in [j for j in self._jobs.values() if j.over][:-_KEEP]:
                del self._jobs[old.id]
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ropelime-jobs", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return job

    def find(self, name: str) -> Job | None:
        """The job of that name; asking for it shows that somebody still wants it."""
        with self._changed:
            job = self._jobs.get(name)
            if job is not None:
                job.expires = max(job.expires, time.monotonic() + self._patience)
            return job

    def ahead(self, job: Job) -> int:
        """How many jobs must be done before this one starts."""
        with self._changed:
            running = sum(j.state == "running" for j in self._jobs.values())
            names = [j.id for j, _ in self._queue]
            return names.index(job.id) + running if job.id in names else 0

    def cancel(self, job: Job) -> None:
        """Stop a job: at once while it waits, soon while it runs, not at all when it is over."""
        with self._changed:
            job.unwanted.set()
            if job.state == "queued":
                self._drop(job)

    @contextmanager
    def watch(self, job: Job) -> Iterator[None]:
        """Keep a job wanted while a stream is open; when the last one closes, little time is left."""
        with self._changed:
            if self._watched >= self._streams:
                raise Busy(f"{self._streams} progress streams are open already. Ask without one.")
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
        """Take jobs, also after having been closed."""
        with self._changed:
            self.closed = False

    def close(self, timeout: float = 10.0) -> None:
        """Take no more jobs and stop those that are there."""
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
        self._end(job, "cancelled", "Cancelled." if job.unwanted.is_set() else "Nobody waited for it.")

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
                why = "Cancelled." if job.unwanted.is_set() else "Nobody waited for it."
                self._end(job, "cancelled", why)
            except RopeLimeError as error:
                self._end(job, "failed", str(error), getattr(error, "field", None) or None)
            except Exception:  # the queue goes on, whatever one prompt does to a model
                note(traceback.format_exc())
                self._end(job, "failed", "The server could not do it; its log says why.")
            else:
                self._end(job, "done")
            del job, request  # a prompt may be large, and the next one may be long in coming

    def _end(self, job: Job, state: State, error: str | None = None, field: str | None = None) -> None:
        with self._changed:
            job.error, job.field, job.ended = error, field, time.monotonic()
            job.state = state
