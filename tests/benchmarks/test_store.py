"""Results files: nothing is lost, nothing is written twice, nothing is mixed."""

from __future__ import annotations

import json
import lzma
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.store import Store, compress, decompress, read, rewrite, rows
from ropelime.errors import InputError

SETTINGS = {"bench": "toy", "seed": 0, "surrogate": {"name": "tiny"}, "context": None}
METHODS = ["a", "b"]
EXAMPLES = ["one", "zwei", "drei ü"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def lines(example: str) -> list[dict[str, Any]]:
    return [{"example": example, "method": m, "iou": 0.5, "auroc": None} for m in METHODS]


def go_on(path: Path, **settings: Any) -> Store:
    """What a run does: write the examples that are not there."""
    store = Store(path, {**SETTINGS, **settings}, METHODS)
    for example in EXAMPLES:
        if example not in store.done:
            store.add(example, lines(example))
    return store


def test_what_is_written_is_read(path: Path) -> None:
    store = go_on(path)
    assert store.done == set(EXAMPLES)
    header, found = read(path)
    assert header == {"ropelime-results": 1, **SETTINGS, "methods": METHODS}
    assert found == [row for example in EXAMPLES for row in lines(example)]


def test_a_second_run_changes_nothing(path: Path) -> None:
    go_on(path)
    before = path.read_bytes()
    assert Store(path, SETTINGS, METHODS).done == set(EXAMPLES)
    go_on(path)
    assert path.read_bytes() == before


def test_a_file_cut_anywhere_becomes_the_whole_file(path: Path) -> None:
    go_on(path)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):  # in the header, in a line, between the lines of an example
        path.write_bytes(whole[:cut])
        complete = max(0, (sum(end <= cut for end in ends) - 1) // len(METHODS))
        assert Store(path, SETTINGS, METHODS).done == set(EXAMPLES[:complete])
        if cut % 7 == 0 or cut in ends:
            go_on(path)
            assert path.read_bytes() == whole


def test_reading_leaves_out_a_line_that_was_cut(path: Path) -> None:
    go_on(path)
    path.write_bytes(path.read_bytes()[:-3])
    assert len(read(path)[1]) == len(EXAMPLES) * len(METHODS) - 1


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"seed": 1}, "seed"),
        ({"surrogate": {"name": "other"}}, "surrogate"),
        ({"limit": 3}, "limit"),
        ({"context": "all", "seed": 2}, "context, seed"),
    ],
)
def test_other_settings_are_refused_by_name(path: Path, changed: dict[str, Any], key: str) -> None:
    go_on(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=rf"other settings \({key}\).*name another file"):
        go_on(path, **changed)
    assert path.read_bytes() == before


def test_another_command_and_other_versions_are_not_refused(path: Path) -> None:
    go_on(path, command="one", versions={"python": "3.11"})
    before = path.read_bytes()
    go_on(path, command="two", versions={"python": "3.12"})
    assert path.read_bytes() == before


def test_other_methods_are_refused(path: Path) -> None:
    go_on(path)
    with pytest.raises(InputError, match=r"other settings \(methods\)"):
        Store(path, SETTINGS, [*METHODS, "c"])


@pytest.mark.parametrize(
    "content", ["text", "text\n", "{}\n", '{"ropelime-explanation": 1}\n', "[1]\n", "\n"]
)
def test_a_foreign_file_is_refused_and_left_alone(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(InputError, match=r"is not a ropelime results file\. Name another"):
        Store(path, SETTINGS, METHODS)
    assert path.read_text() == content
    if content.endswith("\n"):
        with pytest.raises(InputError, match="is not a ropelime results file"):
            read(path)


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.touch()
    go_on(path)
    assert len(read(path)[1]) == len(EXAMPLES) * len(METHODS)


def test_places_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        Store(tmp_path / "no" / "results.jsonl", SETTINGS, METHODS)
    with pytest.raises(InputError, match="is a folder"):
        Store(tmp_path, SETTINGS, METHODS)
    with pytest.raises(InputError, match="cannot be read"):
        read(tmp_path / "none")


def test_no_number_is_no_result(path: Path) -> None:
    store = Store(path, SETTINGS, METHODS)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        store.add("one", [{"example": "one", "method": "a", "iou": float("nan")}])
    assert path.read_bytes() == before


class TestCompression:
    def test_compressed_files_are_read_and_expanded(self, path: Path) -> None:
        go_on(path)
        before, found = path.read_bytes(), read(path)
        packed = compress(path)
        assert packed.name == "results.jsonl.xz"
        assert not path.exists()
        assert packed.stat().st_size < len(before)
        assert read(packed) == found
        assert rows(packed) == [found[0], *found[1]]
        assert decompress(packed) == path
        assert path.read_bytes() == before
        assert not packed.exists()

    def test_a_compressed_run_is_resumed_after_decompression(self, path: Path) -> None:
        store = Store(path, SETTINGS, METHODS)
        store.add("one", lines("one"))
        packed = compress(path)
        for name in (path, packed):
            with pytest.raises(InputError, match=r"cannot append to .*\.xz.*compress --undo"):
                Store(name, SETTINGS, METHODS)
        assert not path.exists()
        decompress(packed)
        assert go_on(path).done == set(EXAMPLES)

    def test_a_rewritten_file_can_be_read_by_whoever_could(self, path: Path) -> None:
        go_on(path)
        path.chmod(0o640)
        header, found = read(path)
        rewrite(path, [header, *found[:1]])
        assert read(path) == (header, found[:1])
        assert path.stat().st_mode & 0o777 == 0o640

    def test_nothing_is_overwritten(self, path: Path) -> None:
        go_on(path)
        packed = compress(path)
        go_on(path.with_name("other.jsonl")).path.rename(path)
        with pytest.raises(InputError, match=r"xz exists already"):
            compress(path)
        with pytest.raises(InputError, match=r"jsonl exists already"):
            decompress(packed)
        assert path.exists()
        assert packed.exists()
        assert go_on(path).done == set(EXAMPLES), "the plain file is the one to resume"

    def test_what_is_refused(self, path: Path) -> None:
        go_on(path)
        with pytest.raises(InputError, match="not compressed"):
            decompress(path)
        with pytest.raises(InputError, match="compressed already"):
            compress(compress(path))
        with pytest.raises(InputError, match="cannot be read"):
            compress(path)
        path.write_bytes(b'{"ropelime-results": 1}\n{"cut')
        with pytest.raises(InputError, match=r"results\.jsonl cannot be read.*Make the file again"):
            compress(path)
        assert path.exists()

    @pytest.mark.parametrize("content", [b"", b"{}\n", b"[1]\n"])
    def test_compressed_files_of_others_are_refused(self, path: Path, content: bytes) -> None:
        packed = path.with_name("other.jsonl.xz")
        packed.write_bytes(lzma.compress(content))
        with pytest.raises(InputError, match="is not a results file of ropelime"):
            read(packed)
        packed.write_bytes(b"plain text")
        with pytest.raises(InputError, match="cannot be read"):
            read(packed)


BENCH = """
import sys, time
import scipy.stats, sklearn.linear_model  # so that no time is spent on them later
from pathlib import Path
from bench_toy import example
from benchmarks.methods import method
from benchmarks.names import CHANCE
from benchmarks.runner import run
from benchmarks.store import Store
from ropelime.surrogate import FunctionSurrogate

def read(masks):
    time.sleep(0.01)
    return masks @ [0.5, 0.1, 0.9, 0.3, 0.2] - 3.0

methods = [method(s, s, "nll", "uniform", "ridge") for s in ("leave-one-out", "bernoulli:12")]
store = Store(Path(sys.argv[1]), {"seed": 3}, [*(m.name for m in methods), CHANCE])
examples = [example(f"example {i}") for i in range(24)]
run(examples, methods, FunctionSurrogate(read), store, seed=3,
    progress=lambda done, total: print(done, flush=True))
"""


def start(path: Path) -> subprocess.Popen[str]:
    folders = [str(Path(__file__).parents[1]), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", BENCH, path], stdout=subprocess.PIPE, text=True, env=env
    )


def without_seconds(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_was_not(tmp_path: Path) -> None:
    with start(tmp_path / "whole") as process:
        process.communicate()
    rng, killed = random.Random(0), 0
    for _ in range(40):
        with start(tmp_path / "killed") as process:
            assert process.stdout is not None
            process.stdout.readline()  # the first example has begun
            if killed < 5:
                time.sleep(rng.uniform(0.0, 0.3))
                process.send_signal(signal.SIGKILL)
            process.communicate()
        if process.returncode == 0:
            break
        killed += 1
    assert killed >= 2
    whole, again = without_seconds(tmp_path / "whole"), without_seconds(tmp_path / "killed")
    assert again == whole
    assert len(whole) == 1 + 24 * 3
    assert len({(row["example"], row["method"]) for row in again[1:]}) == 24 * 3
