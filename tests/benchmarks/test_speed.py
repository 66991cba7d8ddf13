"""``python -m benchmarks speed``: the roofline, the rows, the contenders, resuming, and the page."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from bench_toy import sized, write_hotpotqa
from benchmarks import data, report
from benchmarks.cli import main
from benchmarks.hardware import Hardware, Measured, Size
from benchmarks.loop import Loop
from benchmarks.shapes import SHAPES, random_scorer, random_surrogate
from benchmarks.speed import contest, measure, names, peers, run, summary
from benchmarks.store import read
from conftest import byte_level, tiny_model
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.prompt import from_text
from scoring import prepare

METHODS = list(names.CONTENDERS)

Capture = pytest.CaptureFixture[str]
Make = Callable[..., LocalSurrogate]
Speed = Callable[..., int]
MODULES = ("context_cite", "captum", "shapiq")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and small data."""
    folder = tmp_path_factory.mktemp("speed")
    tiny_model("llama", max_position_embeddings=1024).model.save_pretrained(folder / "tiny")
    byte_level("chatml").save_pretrained(folder / "tiny")
    write_hotpotqa(folder / "hotpot.json", [sized("four", 4), sized("six", 6), sized("two", 2)])
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix rate that is known and takes no time."""
    monkeypatch.setattr(Hardware, "rate", lambda self: 1e9)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the peers."""
    monkeypatch.setattr(peers, "find_spec", lambda name: None)


@pytest.fixture
def speed(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Speed:
    monkeypatch.chdir(tmp_path)

    def command(*more: str) -> int:
        model = ["--surrogate", str(place / "tiny"), "--dtype", "float32", "--device", "cpu"]
        return main(["speed", "--data", str(place / "hotpot.json"), *model, *more])

    return command


def examples(place: Path, limit: int = 2) -> list[data.Example]:
    return data.hotpotqa(place / "hotpot.json", context="all", limit=limit)


class TestRoofline:
    def test_weights_of_the_linear_layers(self) -> None:
        size = Size.of(tiny_model("llama").model)
        layer = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 64  # q, k and v, o, and the three of the MLP
        assert size == Size(linear=3 * layer, head=640 * 32, layers=3, width=32)

    @pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma2"])
    def test_no_embedding_is_counted(self, name: str) -> None:
        model = tiny_model(name).model
        size = Size.of(model)
        matrices = {
            n: w
            for n, w in model.named_parameters()
            if w.ndim == 2 and "emb" not in n and "wte" not in n
        }
        linear = sum(w.numel() for n, w in matrices.items() if "head" not in n and "wpe" not in n)
        assert size.linear == linear
        assert size.head == model.get_output_embeddings().weight.numel()

    def test_operations_of_two_prompts(self) -> None:
        size = Size(linear=1000, head=500, layers=2, width=8)
        first = 2 * 1000 * 10 + 2 * 4 * 8 * 10 * 10 / 2 + 2 * 500 * 3
        second = 2 * 1000 * 4 + 2 * 4 * 8 * 4 * 4 / 2 + 2 * 500 * 3
        assert size.operations([11, 5], 3) == first + second

    def test_the_shapes_are_those_of_the_models(self) -> None:
        billions = {"smollm2-135m": 0.1345, "qwen3-0.6b": 0.596, "llama-1b": 1.236, "qwen3-8b": 8.19}
        for name, expected in billions.items():
            shape = SHAPES[name]
            attention = shape.hidden * shape.head * 2 * (shape.heads + shape.groups)
            layer = attention + 3 * shape.hidden * shape.inner
            tables = shape.vocabulary * shape.hidden * (1 if shape.tied else 2)
            assert (shape.layers * layer + tables) / 1e9 == pytest.approx(expected, rel=0.002)


class TestHardware:
    def test_what_a_run_takes(self, tiny: Make) -> None:
        surrogate = tiny("llama")
        made = random_scorer(surrogate, features=4, tokens=5)
        masks = np.array([[1, 1, 1, 1], [1, 0, 0, 1]], dtype=bool)
        loop = Loop(surrogate.model, made, everywhere=True)
        found = Hardware(surrogate).measure(lambda: loop.score(masks))
        full = 16 + 4 * 5 + 16 + 16
        assert found.calls == ((1, full), (1, full - 10))
        assert found.tokens == 2 * full - 10
        assert found.seconds > 0
        assert found.processor > 0

    def test_memory_is_seen(self, tiny: Make) -> None:
        found = Hardware(tiny("llama")).measure(lambda: torch.ones(50_000_000))
        assert found.memory > 150_000_000

    def test_the_rate_is_measured(self, tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.undo()
        monkeypatch.setattr("benchmarks.hardware._CPU_MATRIX", 64)
        monkeypatch.setattr("benchmarks.hardware._AT_LEAST", 0.001)
        assert 1e6 < Hardware(tiny("llama")).rate() < 1e14

    def test_what_it_says_about_itself(self, tiny: Make) -> None:
        facts = Hardware(tiny("llama")).describe()
        assert facts["threads"] == torch.get_num_threads()
        assert facts["cpu"]


@pytest.mark.parametrize("everywhere", [True, False])
def test_the_loop_scores_as_our_engine_does(place: Path, tiny: Make, everywhere: bool) -> None:
    surrogate, example = tiny("llama"), examples(place)[0]
    made = prepare(surrogate, from_text(example.prompt), example.spans, "Paris")
    masks = contest.random_half(len(example.spans), 6)
    masks[0] = True
    ours = made.score(masks, kl=False)
    theirs = Loop(surrogate.model, made, everywhere=everywhere).score(masks)
    np.testing.assert_allclose(theirs, ours.logprob, atol=1e-5)


def test_all_contenders_get_the_same_text(place: Path) -> None:
    for example in examples(place, 3):
        before, sources, after = peers.pieces(example)
        assert before + "".join(sources) + after == example.prompt
        assert len(sources) == len(example.spans)
        for source, (start, end) in zip(sources, example.spans, strict=True):
            assert source.rstrip() == example.prompt[start:end].rstrip()


class TestAlternate:
    size = Size(linear=100, head=10, layers=1, width=2)

    def rows(self, tiny: Make, found: list[Any], **options: Any) -> list[dict[str, Any]]:
        hardware = Hardware(tiny("llama"))
        return measure.alternate(found, hardware, self.size, outputs=2, **options)

    @pytest.mark.slow
    def test_they_take_turns(self, tiny: Make) -> None:
        order: list[str] = []

        def work(name: str) -> Callable[[], list[int]]:
            return lambda: order.append(name) or [7, 9]  # type: ignore[func-returns-value]

        found = [measure.Run(name, work(name)) for name in "ab"]
        a, b = self.rows(tiny, found, rounds=3)
        assert order == list("ababab")
        assert (a["method"], b["method"]) == ("a", "b")
        assert (a["prompts"], a["tokens"], a["run"], len(a["rounds"])) == (2, 16, 0, 3)
        assert a["operations"] == self.size.operations([7, 9], 2)
        assert a["roofline"] == round(a["operations"] / 1e9, 5)
        assert a["seconds"] == sorted(a["rounds"])[1]

    def test_a_first_round_may_not_count(self, tiny: Make) -> None:
        count = []
        found = [measure.Run("a", lambda: count.append(1) or [3])]  # type: ignore[func-returns-value]
        assert len(self.rows(tiny, found, rounds=2, warm_up=True)[0]["rounds"]) == 2
        assert len(count) == 3

    def test_who_fails_is_not_hidden(self, tiny: Make, capsys: Capture) -> None:
        def fail() -> list[int]:
            print("a bar", file=sys.stderr)
            raise RuntimeError("no such thing\nsecond line")

        found = [
            measure.Run("bad", fail),
            measure.Absent("gone", "absent", "not installed"),
            measure.Run("good", lambda: [3]),
        ]
        bad, gone, good = self.rows(tiny, found, rounds=2)
        assert bad == {"method": "bad", "failed": "RuntimeError: no such thing"}
        assert gone == {"method": "gone", "absent": "not installed"}
        assert len(good["rounds"]) == 2
        assert capsys.readouterr() == ("", "")


class TestContest:
    @pytest.mark.slow
    def test_without_peers(self, speed: Speed, alone: None, tmp_path: Path, capsys: Capture) -> None:
        assert speed("--limit", "1", "--rounds", "2") == 0
        assert capsys.readouterr().out == "Written to results/speed-cpu.jsonl\n"
        header, rows = read(tmp_path / "results" / "speed-cpu.jsonl")
        assert header["bench"] == "speed"
        assert header["surrogate"]["name"] == "tiny", "no path of this machine"
        assert str(tmp_path) not in json.dumps(header)
        assert "--data hotpot.json" in header["command"]
        assert {"cpu", "cores", "threads"} <= set(header["machine"])
        assert len(rows) == 2 * len(METHODS)
        by = {(row["task"], row["method"]): row for row in rows}
        for task in names.TASKS:
            ours, loop = by[task, names.OURS], by[task, names.LOOP]
            assert ours["prompts"] == loop["prompts"] + 1, "and the full prompt"
            assert loop["run"] == loop["tokens"] < ours["tokens"]
            assert ours["run"] < ours["tokens"] - ours["prompts"]
            assert ours["ratio"] == pytest.approx(ours["roofline"] / ours["seconds"], rel=0.01)
        absent = by[names.RANDOM_HALF, names.CONTEXTCITE]["absent"]
        assert absent == "not installed: pip install 'ropelime[peers]'"
        assert by[names.LEAVE_ONE_OUT, names.CONTEXTCITE]["skipped"] == "draws its own masks"
        n = by[names.RANDOM_HALF, names.OURS]["features"]
        assert by[names.LEAVE_ONE_OUT, names.LOOP]["prompts"] == n

    @pytest.mark.slow
    def test_it_resumes(self, speed: Speed, alone: None, tmp_path: Path) -> None:
        results = tmp_path / "cut.jsonl"
        more = ["--limit", "2", "--rounds", "1", "--quiet", "--results", str(results)]
        assert speed(*more) == 0
        whole = results.read_bytes()
        lines = whole.splitlines(keepends=True)
        done = 1 + len(METHODS)
        results.write_bytes(b"".join(lines[: done + 2])[:-5])
        assert speed(*more) == 0
        again = results.read_bytes().splitlines(keepends=True)
        assert again[:done] == lines[:done], "what was measured stays"
        assert len(again) == len(lines)
        assert speed(*more) == 0
        assert results.read_bytes() == b"".join(again), "and is not measured again"

    @pytest.mark.slow
    def test_other_settings_are_not_mixed(
        self, speed: Speed, alone: None, tmp_path: Path, capsys: Capture
    ) -> None:
        more = ["--limit", "1", "--results", str(tmp_path / "one.jsonl"), "--rounds"]
        assert speed(*more, "1") == 0
        assert speed(*more, "2") == 1
        assert "was written with other settings (rounds)" in capsys.readouterr().err

    def test_a_peer_that_does_not_import(
        self, place: Path, tiny: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "nltk" else object())

        def broken(name: str) -> Any:
            raise ImportError(f"{name} needs another numpy")

        monkeypatch.setattr(peers, "import_module", broken)
        found = peers.captum_loo(tiny("llama"), examples(place)[0])
        assert isinstance(found, measure.Absent)
        assert (found.kind, found.reason) == ("failed", "ImportError: captum.attr needs another numpy")

    def test_shapiq_gets_a_game(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class KernelSHAP:
            def __init__(self, n: int) -> None:
                self.n = n

            def approximate(self, budget: int, game: Any) -> Any:
                return game(np.eye(self.n)[:budget])

        module = types.SimpleNamespace(KernelSHAP=KernelSHAP)
        monkeypatch.setattr(peers, "find_spec", lambda name: object() if name == "shapiq" else None)
        monkeypatch.setattr(peers, "import_module", lambda name: module)
        example = examples(place)[0]
        found = peers.shapiq(example, lambda masks: masks.astype(float)[:, :2])
        assert isinstance(found, peers.Single)
        assert found.run().tolist() == [1.0, 1.0] + [0.0] * (len(example.spans) - 2)  # type: ignore[attr-defined]
        assert found.lengths(Measured(1.0, 1.0, 0, ((1, 5), (1, 6)))) == [5, 6]

    @pytest.mark.filterwarnings("ignore")  # the peers warn about themselves
    def test_the_real_peers(self, speed: Speed, tmp_path: Path) -> None:
        for module in MODULES:
            if find_spec(module) is None:
                pytest.skip(f"{module} is not installed")
        assert speed("--limit", "1", "--rounds", "1", "--quiet") == 0
        _, rows = read(tmp_path / "results" / "speed-cpu.jsonl")
        assert not [row for row in rows if "failed" in row or "absent" in row]
        by = {(row["task"], row["method"]): row for row in rows}
        theirs, loop = by[names.RANDOM_HALF, names.CONTEXTCITE], by[names.RANDOM_HALF, names.LOOP]
        assert theirs["batch"] in peers.BATCHES
        assert theirs["prompts"] == contest.MASKS
        assert theirs["tokens"] == loop["tokens"], "the same masks, tokenised anew"
        captum, ours = (by[names.LEAVE_ONE_OUT, m] for m in (names.CAPTUM_LOO, names.OURS))
        assert captum["prompts"] == ours["prompts"]
        assert captum["tokens"] == ours["tokens"]


class TestShapes:
    def test_a_shape(self, speed: Speed, tmp_path: Path) -> None:
        small = ["--features", "6", "--feature-tokens", "4", "--rounds", "1", "--quiet"]
        assert speed("--shape", "tiny", *small) == 0
        header, rows = read(tmp_path / "results" / "speed-cpu-tiny.jsonl")
        assert header["surrogate"]["name"] == "tiny, random weights"
        assert "--shape tiny --features 6 --feature-tokens 4" in header["command"]
        ours, loop = rows
        assert ours["tokens"] == loop["tokens"]
        assert 0 < ours["scoring"] < ours["seconds"]

    def test_the_same_seed_gives_the_same_scores(self) -> None:
        masks = np.array([[1, 1, 1], [1, 0, 1]], dtype=bool)
        a, b = (
            random_scorer(
                random_surrogate("tiny", device="cpu", dtype="float32"), features=3, tokens=4
            ).score(masks, kl=False)
            for _ in range(2)
        )
        np.testing.assert_array_equal(a.logprob, b.logprob)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--shape", "qwen3-9b"], "Did you mean 'qwen3-8b'"),
            (["--shape", "tiny", "--device", "auto"], "Device 'auto' cannot be used"),
            (["--shape", "tiny", "--start"], "measured one at a time"),
            (["--rounds", "0"], "--rounds must be at least 1"),
            (["--shape", "tiny", "--feature-tokens", "0"], "--feature-tokens must be at least 1"),
        ],
    )
    def test_what_is_refused(
        self, speed: Speed, arguments: list[str], message: str, capsys: Capture
    ) -> None:
        assert speed(*arguments) == 1
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_scaling(tmp_path: Path) -> None:
    surrogate = random_surrogate("tiny", device="cpu", dtype="float32")
    file = tmp_path / "speed-cpu-scaling.jsonl"
    options: dict[str, Any] = {
        "rounds": 1,
        "seed": 0,
        "command": "it",
        "sizes": (6, 12),
        "counts": (4,),
    }
    run.run_scaling(surrogate, file, **options)
    _, rows = read(file)
    assert [row["example"] for row in rows[::3]] == ["6 features", "12 features", "4 masks"]
    measured = [row for row in rows if "skipped" not in row]
    assert len(measured) == 7
    assert rows[3]["length"] == 12 * run.FEATURE_TOKENS + 32
    assert [row["prompts"] for row in rows[3:6]] == [66, 14, 14]
    size = Size.of(surrogate.model)
    assert rows[5]["operations"] == size.work(rows[5]["run"], rows[5]["pairs"], 14 * 16)
    before = file.read_bytes()
    run.run_scaling(surrogate, file, **options)
    assert file.read_bytes() == before
    written = report.write([file], tmp_path / "docs")
    assert {path.name for path in written} == {"performance.md", "scaling.svg", "scaling.png"}
    assert "| 12 | 224 | √M kept | 66 |" in written[0].read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_first_explanation_of_a_process(speed: Speed, tmp_path: Path) -> None:
    assert speed("--start", "--rounds", "1", "--quiet") == 0
    _, (row,) = read(tmp_path / "results" / "speed-cpu-start.jsonl")
    assert row["features"] == 15
    assert 0 < row["second"] < row["first"] < row["since"]


class TestPage:
    header: ClassVar[dict[str, Any]] = {
        "ropelime-results": 1,
        "bench": "speed",
        "surrogate": {
            "name": "smollm2", "dtype": "bfloat16", "device": "cpu", "torch": "2", "transformers": "5",
        },
        "machine": {"cpu": "A chip", "cores": 2, "threads": 2},
        "rounds": 3,
        "command": "python -m benchmarks speed",
        "versions": {"ropelime": "0.1.0"},
        "date": "2026-01-01",
    }  # fmt: skip

    def figures(self, seconds: float, **more: Any) -> dict[str, Any]:
        known = {"prompts": 64, "tokens": 1000, "run": 800, "memory": 5_000_000, "rate": 1e12}
        return {**known, "seconds": seconds, "roofline": 1.6, **more}

    def contest(self, folder: Path, gpu: bool = False) -> Path:
        header = {**self.header, "kind": "contest", "methods": METHODS}
        if gpu:
            header["machine"] = {**self.header["machine"], "gpu": "A card"}
            header["surrogate"] = {**self.header["surrogate"], "device": "cuda"}
        seconds = {names.OURS: 2.0, names.LOOP: 3.0, names.CONTEXTCITE: 4.5, names.CAPTUM_LOO: 5.0}
        rows = []
        for task in names.TASKS:
            for method in METHODS:
                known = {"example": task, "prompt": "p", "task": task, "features": 38, "method": method}
                figures = {"failed": "ValueError: a | b"}
                if method in seconds:
                    figures = self.figures(seconds[method])
                elif method == names.SHAPIQ:
                    figures = {"skipped": "own"}
                rows.append({**known, **figures})
        rows.append({**rows[0], "example": "half done"})
        path = folder / f"speed-{'cuda' if gpu else 'cpu'}.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in [header, *rows]) + "\n")
        return path

    def test_tables(self, tmp_path: Path) -> None:
        (written,) = report.write([self.contest(tmp_path)], tmp_path / "docs")
        text = written.read_text(encoding="utf-8")
        assert "| ropelime | 64 | 1,000 | 800 | 2 | 500 | 5 MB | 80% | 1.00 × |" in text
        assert "| ContextCite | 64 | 1,000 | 800 | 4.5 | 222 | 5 MB | 36% | 2.25 × |" in text
        assert "| Captum ShapleyValueSampling | failed: ValueError: a \\| b |" in text
        assert "shapiq" not in text.split("## A whole explanation")[0].split("**64 random-half")[1]
        assert "| Captum FeatureAblation | 64 | 1,000 | 800 | 5 | 200 | 5 MB | 32% | 2.50 × |" in text
        assert f"No results yet. Run: `{summary.COMMANDS['start']}`" in text
        assert "Matrix rate: 1 Tflop/s." in text

    def test_a_task_that_is_not_measured_yet(self, tmp_path: Path) -> None:
        path = self.contest(tmp_path)
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[: 1 + len(METHODS)]))
        text = report.write([path], tmp_path / "docs")[0].read_text(encoding="utf-8")
        assert "**leave-one-out**\n\nNot measured." in text

    def test_gpus_come_after_cpus(self, tmp_path: Path) -> None:
        files = [self.contest(tmp_path, gpu=True), self.contest(tmp_path)]
        text = report.write(files, tmp_path / "docs")[0].read_text(encoding="utf-8")
        assert text.index("### A chip, 2 of 2 cores") < text.index("### A card")

    def test_the_shape_of_a_gpu(self, tmp_path: Path) -> None:
        header = {**self.header, "kind": "shape", "methods": [names.OURS, names.LOOP]}
        header |= {"features": 40, "feature-tokens": 33}
        header["surrogate"] = {**self.header["surrogate"], "device": "cuda", "name": "qwen3-8b, random"}
        rows = [
            {"example": "one", "method": method, **self.figures(seconds)}
            for method, seconds in ((names.OURS, 2.0), (names.LOOP, 24.0))
        ]
        file = tmp_path / "speed-cuda.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in [header, *rows]) + "\n")
        text = report.write([file], tmp_path)[0].read_text(encoding="utf-8")
        assert "40 features of 33 tokens. Matrix rate: 1 Tflop/s." in text
        assert "| ropelime | 64 | 1,000 | 800 | 2 | 500 | 5 MB | 80% | 1.00 × |" in text
        assert "| loop | 64 | 1,000 | 800 | 24 | 42 | 5 MB | 7% | 12.00 × |" in text

    def test_scaling(self, tmp_path: Path) -> None:
        header = {**self.header, "kind": "scaling", "methods": names.SCALED, "feature-tokens": 16}
        rows = [
            {
                "example": f"{n} features", "features": n, "masks": 64, "length": 16 * n, "pairs": 7,
                "method": method, **self.figures(seconds, operations=operations),
            }
            for n, seconds, operations in ((200, 2.0, 1e12), (2000, 20.0, 2e13))
            for method in names.SCALED
        ]  # fmt: skip
        file = tmp_path / "speed-scaling.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in [header, *rows]) + "\n")
        text = report.write([file], tmp_path)[0].read_text(encoding="utf-8")
        assert "| 200 | 3,200 | √M kept | 64 | 800 | 1 T | 2 s | 400 | 80.0% | 5 MB |" in text
        last = "| 2000 | 32,000 | leave-one-out, cached | 64 | 800 | 20 T | 20 s | 40 | 8.0% | 5 MB |"
        assert last in text
        assert "Memory against the number of masks" not in text

    def test_the_shape_and_the_start(self, tmp_path: Path) -> None:
        shape = {**self.header, "kind": "shape", "methods": [names.OURS, names.LOOP]}
        shape |= {"features": 40, "feature-tokens": 33}
        rows = [{"example": "one", "method": m, **self.figures(2.0)} for m in shape["methods"]]
        start = {**self.header, "kind": "start", "methods": ["demo"]}
        times = {"import": 0.1, "first": 3.0, "since": 4.0, "second": 1.6}
        one = {"example": "demo", "method": "demo", "features": 15, "prompts": 80, "run": 900, **times}
        files = []
        for name, lines in {"a": [shape, *rows], "b": [start, one]}.items():
            files.append(tmp_path / f"{name}.jsonl")
            files[-1].write_text("\n".join(json.dumps(line) for line in lines) + "\n")
        text = report.write(files, tmp_path)[0].read_text(encoding="utf-8")
        whole = text.split("## A whole explanation")[1].split("\n## ")[0]
        assert "| ropelime | 64 | 1,000 | 800 | 2 | 500 | 5 MB | 80% | 1.00 × |\n" in whole
        assert "| 15 | 80 | 900 | 0.1 s | 3 s | 4 s | 1.6 s |" in text

    @pytest.mark.parametrize("kind", ["contest", "shape"])
    def test_retired_methods_of_older_files_are_left_out(self, tmp_path: Path, kind: str) -> None:
        methods = [names.OURS, *names.RETIRED, names.LOOP]
        header = {**self.header, "kind": kind, "methods": methods, "features": 40, "feature-tokens": 33}
        known = {"example": "one", "prompt": "p", "task": names.RANDOM_HALF, "features": 38}
        rows = [{**known, "method": m, **self.figures(2.0, first=60.0)} for m in methods]
        file = tmp_path / "speed-cpu-compiled.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in [header, *rows]) + "\n")
        text = report.write([file], tmp_path)[0].read_text(encoding="utf-8")
        assert "| ropelime | 64 | 1,000 | 800 | 2 | 500 | 5 MB | 80% | 1.00 × |\n" in text
        assert "| loop | 64 | 1,000 | 800 | 2 | 500 | 5 MB | 80% | 1.00 × |\n" in text
        assert "2026-01-01; 'ropelime, compiled' and its option no longer exist.\n" in text
        assert "| ropelime, compiled |" not in text
        assert "first use" not in text
