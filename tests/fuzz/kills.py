"""``python -m fuzz.kills --kills 50 [--engine ray]``: kill ``ropelime batch`` again and again.

However often it is killed, and whenever, the same command continues it. In the end every line has one
row, and the rows are those of a run that was never killed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from web_server import tiny_folder

LINES = 400
_EARLY = 0.3  # of the kills come before the first row of their run: while it starts, loads or reads


@dataclass(frozen=True)
class Batch:
    """A batch with a tiny model, as a user starts it."""

    source: Path
    target: Path
    engine: str

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "ropelime", "batch", str(self.source), str(self.target)]
        command += ["--surrogate", str(tiny_folder()), "--features", "word", "--engine", self.engine]
        command += ["--together", "4", "--quiet"]
        pipe = subprocess.PIPE
        # A session of its own, so that the workers of Ray can be killed with it.
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def size(self) -> int:
        return self.target.stat().st_size if self.target.exists() else 0

    def lines(self) -> list[bytes]:
        """Its header and its complete rows."""
        return self.target.read_bytes().split(b"\n")[:-1] if self.target.exists() else []


def write_input(path: Path) -> None:
    """Lines of all kinds, some of which cannot be explained."""
    with path.open("w", encoding="utf-8") as file:
        for i in range(LINES):
            words = " ".join(f"w{i}{letter}" for letter in "abcdef"[: 2 + i % 5])
            line = {"id": f"n{i}", "prompt": words, "output": "yes"}
            file.write("not JSON\n" if i % 50 == 7 else json.dumps(line) + "\n")


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a run with all that it has started."""
    process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run(kills: int, engine: str, seed: int, folder: Path) -> tuple[int, int]:
    """Kill a batch so many times; returns how many kills came in the middle, and how many rounds."""
    rng = Random(f"kills {engine} {seed}")
    source = folder / "in.jsonl"
    write_input(source)
    whole = Batch(source, folder / "whole.jsonl", engine)
    begun = time.monotonic()
    finish(whole)
    usual = time.monotonic() - begun
    expected = whole.lines()
    batch = Batch(source, folder / "out.jsonl", engine)
    done = middle = rounds = 0
    while done < kills:
        if len(batch.lines()) == len(expected):
            check(batch, expected)
            batch.target.unlink()
            rounds += 1
        before = batch.lines()
        process = batch.start()
        wait(process, batch, rng, usual)
        kill(process)
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, process.stderr
            continue  # it had ended before
        done += 1
        after = batch.lines()
        assert after[: len(before)] == before, "rows that were there are gone"
        middle += len(before) < len(after) < len(expected)
    finish(batch)
    check(batch, expected)
    return middle, rounds + 1


def wait(process: subprocess.Popen[str], batch: Batch, rng: Random, usual: float) -> None:
    """Wait until it is time to kill a run."""
    if rng.random() < _EARLY:
        time.sleep(rng.uniform(0, usual))
        return
    size, rows = batch.size(), rng.randrange(1, 30)
    while process.poll() is None and batch.size() < size + 200 * rows:
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.05))


def finish(batch: Batch) -> None:
    """Run a batch to its end."""
    process = batch.start()
    _, said = process.communicate()
    assert process.returncode == 0, said
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def check(batch: Batch, expected: list[bytes]) -> None:
    """Nothing is lost, doubled or different; with one worker not even the order."""
    found = batch.lines()
    if batch.engine == "ray":
        found, expected = sorted(found), sorted(expected)
    assert found == expected, "the rows are not those of a run that was never killed"
    assert len({json.loads(row).get("id") for row in found[1:]}) == LINES


def main() -> None:
    """Kill, check and count."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        middle, rounds = run(options.kills, options.engine, options.seed, Path(folder))
    print(
        f"{options.engine}: {options.kills} kills, {middle} of them between two rows; {rounds} batches "
        f"of {LINES} lines came out whole: nothing lost, doubled or different"
    )


if __name__ == "__main__":
    main()
