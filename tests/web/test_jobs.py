"""The queue: in order, bounded, cancelled when nobody waits, and never stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ropelime.errors import InputError
from ropelime.web.jobs import Busy, Job, Jobs
from web_server import until

Make = Callable[..., Jobs[Any]]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Jobs[Any]] = []

    def new(work: Callable[[Job, Any], None], **options: Any) -> Jobs[Any]:
        chosen = {"waiting": 4, "streams": 2, "patience": 30.0, "grace": 0.1, **options}
        made.append(Jobs(work, **chosen))
        return made[-1]

    yield new
    for jobs in made:
        jobs.close()


class Clock:
    """The clock of the queue, which moves when a test says so."""

    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("ropelime.web.jobs.time", made)
    return made


class Gate:
    """Work that continues step by step until the gate opens."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.order: list[str] = []
        self.steps = 0

    def __call__(self, job: Job, request: str) -> None:
        self.order.append(request)
        while not self.open.wait(0.01):
            job.report(1, 2)
            self.steps += 1
        job.report(2, 2)

    def goes_on(self) -> None:
        """Wait until a whole step was done from now on."""
        begun = self.steps
        until(lambda: self.steps > begun + 1)


def test_jobs_are_done_in_order(make: Make) -> None:
    gate = Gate()
    jobs = make(gate)
    asked = [jobs.submit(name) for name in "abc"]
    until(lambda: asked[0].state == "running")
    assert [jobs.ahead(job) for job in asked] == [0, 1, 2]
    gate.open.set()
    until(lambda: all(job.over for job in asked))
    assert gate.order == ["a", "b", "c"]
    assert [(job.state, job.done, job.total, job.error) for job in asked] == [("done", 2, 2, None)] * 3


def test_a_full_queue_refuses_and_goes_on_when_there_is_room(make: Make) -> None:
    gate = Gate()
    jobs = make(gate, waiting=2)
    running = jobs.submit("a")
    until(lambda: running.state == "running")
    waiting = [jobs.submit(name) for name in "bc"]
    with pytest.raises(Busy, match="2 explanations are waiting already"):
        jobs.submit("d")
    jobs.cancel(waiting[0])
    assert waiting[0].state == "cancelled"
    last = jobs.submit("e")
    gate.open.set()
    until(lambda: last.over)
    assert gate.order == ["a", "c", "e"]


def test_a_running_job_is_cancelled(make: Make) -> None:
    gate = Gate()
    jobs = make(gate)
    job, after = jobs.submit("a"), jobs.submit("b")
    until(lambda: job.state == "running")
    jobs.cancel(job)
    until(lambda: job.over)
    assert (job.state, job.error) == ("cancelled", "Cancelled.")
    gate.open.set()
    until(lambda: after.over)
    jobs.cancel(after)
    assert after.state == "done", "what is over stays as it is"


def test_a_job_dies_with_its_stream(make: Make, clock: Clock) -> None:
    gate = Gate()
    jobs = make(gate, patience=60.0, grace=0.05)
    job = jobs.submit("a")
    until(lambda: job.state == "running")
    with jobs.watch(job):
        clock.now += 61.0
        gate.goes_on()
        assert job.state == "running"
    gate.goes_on()
    assert job.state == "running", "there is a moment to come back"
    clock.now += 0.1
    until(lambda: job.over)
    assert (job.state, job.error) == ("cancelled", "Its client has gone.")


def test_a_job_dies_when_nobody_asks_about_it(make: Make, clock: Clock) -> None:
    gate = Gate()
    jobs = make(gate, patience=0.3)
    asked, forgotten = jobs.submit("a"), jobs.submit("b")
    until(lambda: asked.state == "running")
    for _ in range(6):
        clock.now += 0.1
        assert jobs.find(asked.id) is asked
    gate.goes_on()
    assert asked.state == "running"
    clock.now += 0.4
    until(lambda: asked.over and forgotten.over)
    assert [(job.state, job.error) for job in (asked, forgotten)] == [
        ("cancelled", "Its client has gone.")
    ] * 2


def test_who_has_gone_leaves_the_queue_to_others(make: Make, clock: Clock) -> None:
    gate = Gate()
    jobs = make(gate, waiting=1, patience=0.1)
    running = jobs.submit("a")
    until(lambda: running.state == "running")
    with jobs.watch(running):
        gone = jobs.submit("b")
        clock.now += 0.2
        after = jobs.submit("c")
        assert gone.state == "cancelled"
        with jobs.watch(after):
            gate.open.set()
            until(lambda: after.over)
    assert gate.order == ["a", "c"]


def test_streams_are_bounded(make: Make) -> None:
    jobs = make(Gate(), streams=1)
    job = jobs.submit("a")
    with jobs.watch(job), pytest.raises(Busy, match="1 progress streams"), jobs.watch(job):
        pass
    with jobs.watch(job):
        assert job.watchers == 1


class Panic(BaseException):
    """As pyo3 raises it where a tokenizer written in Rust panics."""


def test_a_failure_says_why_and_the_queue_goes_on(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    def work(job: Job, request: BaseException | None) -> None:
        if request:
            raise request

    jobs = make(work, waiting=5)
    raised = [InputError("too long"), MemoryError("secret"), Panic("secret"), SystemExit(3), None]
    asked = [jobs.submit(error) for error in raised]
    until(lambda: all(job.over for job in asked))
    assert [job.state for job in asked] == ["failed"] * 4 + ["done"]
    assert asked[0].error == "too long"
    assert all("Internal error" in str(job.error) for job in asked[1:4])
    assert "MemoryError: secret" in caplog.text
    assert "Panic: secret" in caplog.text


class Deaf:
    """Work that never looks whether it has to stop."""

    def __init__(self, patience: float = 0.0) -> None:
        self.patience = patience
        self.after = False

    def __call__(self, job: Job, request: Any) -> None:
        job.patience = self.patience
        if request is not None:
            job.start_clock(request)
        end = time.monotonic() + 60  # longer than any test waits for it
        while time.monotonic() < end:
            try:
                time.sleep(0.01)
            except Exception:  # as libraries do; the order to stop is not one
                self.after = True
        self.after = True


def test_work_that_does_not_look_is_interrupted(make: Make) -> None:
    deaf = Deaf()
    jobs = make(deaf, patience=30.0)
    job = jobs.submit(None)
    until(lambda: job.state == "running")
    jobs.cancel(job)
    until(lambda: job.over)
    assert (job.state, job.error, deaf.after) == ("cancelled", "Cancelled.", False)
    late = jobs.submit(0)
    until(lambda: late.over)
    assert late.state == "failed"
    assert "stopped after 0 seconds, the limit" in str(late.error)
    assert not deaf.after


def test_deaf_work_ends_with_its_client(make: Make, clock: Clock) -> None:
    deaf = Deaf()
    jobs = make(deaf, patience=0.3)
    job, other = jobs.submit(None), jobs.submit(None)
    until(lambda: job.state == "running")
    with jobs.watch(other):
        clock.now += 0.4
        until(lambda: job.over)
        assert (job.state, job.error) == ("cancelled", "Its client has gone.")
        until(lambda: other.state == "running")
    assert not deaf.after


def test_nothing_is_interrupted_while_it_saves(make: Make) -> None:
    saved: list[bool] = []

    def work(job: Job, request: Any) -> None:
        job.patience = 0.0
        jobs.settle(job)
        until(lambda: job.unwanted)
        time.sleep(0.6)  # longer than a look
        saved.append(True)

    jobs = make(work)
    for _ in range(2):
        job = jobs.submit(None)
        until(lambda job=job: job.state == "running")
        jobs.cancel(job)
        until(lambda job=job: job.over)
        assert job.state == "done"
    assert saved == [True, True]


def test_interruptions_never_reach_the_next_job(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled at many moments, one job after the other: the queue survives all of them."""
    monkeypatch.setattr("ropelime.web.jobs._LOOK", 0.001)

    def work(job: Job, request: int) -> None:
        job.patience = 0.0
        end = time.monotonic() + request / 1000
        while time.monotonic() < end:
            pass

    jobs = make(work, waiting=100, patience=60.0)
    asked = [jobs.submit(number) for number in range(80)]
    for job in asked[::2]:
        until(lambda job=job: job.state != "queued")
        jobs.cancel(job)
    until(lambda: all(job.over for job in asked), 40)
    assert {job.state for job in asked[1::2]} == {"done"}
    assert jobs._thread is not None
    assert jobs._thread.is_alive()


def test_finished_jobs_are_forgotten_in_time(make: Make) -> None:
    jobs = make(lambda job, request: None, waiting=1000)
    asked = [jobs.submit(None) for _ in range(300)]
    until(lambda: all(job.over for job in asked))
    last = jobs.submit(None)
    assert jobs.find(asked[0].id) is None
    assert jobs.find(asked[-1].id) is asked[-1]
    assert jobs.find(last.id) is last


def test_closing_stops_everything(make: Make) -> None:
    jobs = make(Gate())
    asked = [jobs.submit(name) for name in "ab"]
    until(lambda: asked[0].state == "running")
    jobs.close()
    assert [job.state for job in asked] == ["cancelled", "cancelled"]
    with pytest.raises(Busy, match="shutting down"):
        jobs.submit("c")
