"""Results files of ``python -m benchmarks speed``, and sums over their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.names import RETIRED
from benchmarks.store import Row, read
from ropelime.errors import InputError

# Every section of the page, and a command that makes results for it.
COMMANDS = {
    "contest": "python -m benchmarks speed --data hotpot_dev_distractor_v1.json",
    "shape": "python -m benchmarks speed --shape qwen3-8b --device cuda",
    "scaling": "python -m benchmarks speed --scaling",
    "start": "python -m benchmarks speed --start",
}


@dataclass(frozen=True)
class Speed:
    """One results file.

    Attributes:
        path: The file.
        header: Its header.
        rows: The rows of its complete examples.
    """

    path: Path
    header: Row
    rows: list[Row]

    @property
    def section(self) -> str:
        """Its section of the page."""
        return str(self.header["kind"])

    @property
    def device(self) -> str:
        """The GPU, or the CPU with its threads."""
        machine = self.header["machine"]
        if "gpu" in machine:
            return str(machine["gpu"])
        return f"{self.processor}, {machine['threads']} of {machine['cores']} cores"

    @property
    def processor(self) -> str:
        """The CPU, and whether it has AMX."""
        machine = self.header["machine"]
        return f"{machine['cpu']} with AMX" if machine.get("tiles") else str(machine["cpu"])

    @property
    def on_gpu(self) -> bool:
        """Whether it was measured on a GPU."""
        return bool(self.header["surrogate"]["device"] == "cuda")

    def of(self, method: str, **known: Any) -> list[Row]:
        """The rows of a method that have these values."""
        return [
            row
            for row in self.rows
            if row["method"] == method and all(row.get(k) == v for k, v in known.items())
        ]


def load(path: Path) -> Speed:
    """Read a results file without retired methods and without incomplete examples."""
    header, rows = read(path)
    if header.get("kind") not in COMMANDS:
        raise InputError(f"{path} holds speed of an unknown kind, {header.get('kind')!r}.")
    retired = [method for method in header["methods"] if method in RETIRED]
    header["methods"] = [method for method in header["methods"] if method not in retired]
    header["retired"] = retired
    rows = [row for row in rows if row["method"] not in retired]
    count: dict[str, int] = {}
    for row in rows:
        count[row["example"]] = count.get(row["example"], 0) + 1
    whole = [row for row in rows if count[row["example"]] == len(header["methods"])]
    return Speed(path, header, whole)


@dataclass(frozen=True)
class Sum:
    """The sum over some rows of one method.

    Attributes:
        prompts: Masked prompts.
        tokens: Their tokens, with the answer.
        run: Tokens that went through the model.
        seconds: How long that took.
        memory: Peak memory, in bytes.
        roofline: Seconds at the machine's own matrix rate.
    """

    prompts: int
    tokens: int
    run: int
    seconds: float
    memory: int
    roofline: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def of_roofline(self) -> float:
        """Fraction of the roofline that is reached."""
        return self.roofline / self.seconds


def total(rows: Sequence[Row]) -> Sum | None:
    """The sum over rows; None where one of them was not measured."""
    if not rows or any("seconds" not in row for row in rows):
        return None
    return Sum(
        sum(row["prompts"] for row in rows),
        sum(row["tokens"] for row in rows),
        sum(row["run"] for row in rows),
        sum(row["seconds"] for row in rows),
        max(row["memory"] for row in rows),
        sum(row["roofline"] for row in rows),
    )
