"""Progress: the pace that it shows, and the tokens in all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import rich.progress

import ropelime
from conftest import byte_level, tiny_model
from ropelime import ModelError, progress
from ropelime.explain import explain_many
from ropelime.method.scores import Scores
from ropelime.options import Options
from ropelime.steps import Task
from ropelime.surrogate.base import Ablation, Progress, Scorer, ScoreRequest, Surrogate
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import Feature
from ropelime.text.prompt import Prompt, from_text


class Clock:
    """Time that passes when a test sets it."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def test_lines_after_a_resume(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    report = progress.lines("bench")
    clock.now += 1000  # opening the file does not count for the pace
    report(400, 410)
    clock.now += 60
    report(401, 410)
    assert capsys.readouterr().err == "bench: 401 of 410, about 9 min left\n"


def test_the_bar_after_a_resume(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[rich.progress.Progress] = []

    class Bar(rich.progress.Progress):
        def __init__(self, *columns: Any, **options: Any) -> None:
            super().__init__(*columns, **options, get_time=clock)
            bars.append(self)

    monkeypatch.setattr(rich.progress, "Progress", Bar)
    with progress.reporting(True, "bench") as report:
        assert report is not None
        for done in (400, 401, 402):
            report(done, 410)
            clock.now += 10
        (task,) = bars[0].tasks
        assert (task.completed, task.total) == (402, 410)
        assert task.time_remaining == 80


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"interactions": True},
        {"interactions": True, "budget": 12, "preset": "paper"},
        {"instead_of": "It was a dog.", "scoring": "exact"},
        {"also": "paper", "features": "word"},
    ],
)
@pytest.mark.parametrize("models", [1, 2])
def test_all_tokens_are_known_from_the_first_report(models: int, options: dict[str, Any]) -> None:
    surrogates = [
        LocalSurrogate(tiny_model(name).model, byte_level("chatml"), name=name)
        for name in ("llama", "qwen3")[:models]
    ]
    seen: list[tuple[int, int]] = []
    ropelime.explain(
        "The cat sat on the mat. The dog lay by the door. It rained. Who sat on the mat?",
        "It was the cat.", surrogate=surrogates, progress=lambda *now: seen.append(now), **options,
    )  # fmt: skip
    dones = [done for done, _ in seen]
    assert dones == sorted(dones)
    assert dones[0] == 0
    assert dones[-1] == seen[-1][1]
    assert all(0.85 < total / dones[-1] < 1.15 for _, total in seen)


class Crowded(Surrogate):
    """A model that scores one prompt after the other, and fails on the way where there are several."""

    name = "crowded"

    def __init__(self, until: float) -> None:
        self.until = until  # the part that is done by then
        self.model = LocalSurrogate(tiny_model("llama").model, byte_level("chatml"), name="llama")

    def prepare(
        self, prompt: Prompt, features: tuple[Feature, ...], output: str, *, ablation: Ablation
    ) -> Scorer:
        return self.model.prepare(prompt, features, output, ablation=ablation)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def score_all(
        self, requests: Sequence[ScoreRequest], *, progress: Progress | None = None
    ) -> list[Scores]:
        assert progress is not None
        report = progress

        def fail(done: int, total: int) -> None:
            if len(requests) > 1 and done >= self.until * total:
                raise ModelError("Out of memory.")
            report(done, total)

        return super().score_all(requests, progress=fail)


@pytest.mark.parametrize("until", [0.0, 0.5])
def test_nothing_to_come_is_forgotten_after_a_call_that_failed(until: float) -> None:
    prompt = from_text("The cat sat on the mat. The dog lay by the door. Who sat on the mat?")
    options = Options(preset="evidence", interactions=True)
    tasks = [Task(prompt, output, options) for output in ("The cat.", "It was the cat.", "A cat.")]
    seen: list[tuple[int, int]] = []
    explain_many(
        tasks,
        [Crowded(until)],
        progress=lambda *now: seen.append(now),
        forgive=(ModelError,),
    )
    parts = [done / total for done, total in seen]
    assert parts[-1] == 1
    assert all(after >= 0.9 * before for before, after in pairwise(parts)), "pairs are an estimate"
    assert all(0.9 < total / seen[-1][1] < 1.1 for _, total in seen)


def test_a_note_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress.note("model \x1b[31m of a file\nsecond line")
    assert capsys.readouterr().err == "model \ufffd[31m of a file\nsecond line\n"
