"""Speed of several checkouts of this package, by turns on the same machine: before and after a change.

The mean and the median width of the intervals that a default explanation gives can be compared, too.

Rows have the form of :mod:`benchmarks.speed.accelerators`; a configuration is a checkout.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.data.example import Example
from benchmarks.speed.start import in_new_process
from ropelime.errors import InputError

DISTURBED = 0.10  # of the cores, used by other processes while a task ran

# Runs in a process of its own, with one of the checkouts as its package.
_CODE = """
import inspect, json, statistics, sys, time
import psutil, torch
from ropelime import explain, load_surrogate
task = json.load(sys.stdin)
for prompt in [task["prompt"], *task["widths"]]:
    prompt["features"] = [tuple(span) for span in prompt["features"]]
words = inspect.signature(explain).parameters
exact = {"preset": "faithful", "sampler": "hadamard:64"}
exact["scoring" if "scoring" in words else "readings"] = "exact"
model = load_surrogate(task["surrogate"], device=task["device"], dtype=task["dtype"])
gpu = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else None
cores = len(psutil.Process().cpu_affinity())

def busy():
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait

def run(**options):
    mine, all_, start = psutil.Process().cpu_times(), busy(), time.perf_counter()
    e = explain(**task["prompt"], surrogate=model, progress=False, **options)
    seconds = time.perf_counter() - start
    now = psutil.Process().cpu_times()
    others = busy() - all_ - (now.user + now.system - mine.user - mine.system)
    return {"seconds": round(seconds, 4), "tokens": e.cost.tokens, "others": others / seconds / cores}

def widths(prompt):
    ends = explain(**prompt, surrogate=model, progress=False).normalized_intervals
    return (ends[:, 1] - ends[:, 0]).tolist()

run()  # the first one in a process also initialises libraries
rows = [{"task": "default", **run()} for _ in range(task["repeats"])]
found = [widths(prompt) for prompt in task["widths"]]
if found:
    mean = statistics.mean(map(statistics.mean, found))
    median = statistics.mean(map(statistics.median, found))
    rows[0] |= {"width": round(mean, 5), "median_width": round(median, 5), "prompts": len(found)}
rows += [{"task": "exact", **run(**exact)}]
known = {"torch": torch.__version__.split("+")[0], "threads": torch.get_num_threads(), "gpu": gpu,
         "dtype": str(model.model.dtype).removeprefix("torch.")}
print(json.dumps([{**row, **known} for row in rows]))
"""


def checkouts(given: Sequence[str]) -> dict[str, Path]:
    """The folders with the package, by name.

    Args:
        given: ``NAME=FOLDER`` for each checkout.
    """
    found = {}
    for each in given:
        name, _, folder = each.partition("=")
        path = Path(folder).resolve() / "src"
        if not folder or not (path / "ropelime").is_dir():
            raise InputError(
                f"{each!r} must be NAME=FOLDER, where FOLDER is a checkout with src/ropelime."
            )
        found[name] = path
    return found


def measure(
    found: Mapping[str, Path],
    examples: Sequence[Example],
    results: Path,
    *,
    rounds: int,
    known: Mapping[str, Any],
    surrogate: str,
    device: str | None,
    dtype: str | None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Time a default explanation and 64 exact masks, each checkout in turn, round after round.

    Args:
        found: The checkouts.
        examples: Prompts with their answers: the first is timed, and the intervals of all are compared
            if there are several.
        results: The file that rows are appended to, as they come.
        rounds: Processes of each checkout.
        known: What every row says.
        surrogate: Name of the surrogate.
        device: Where it runs.
        dtype: Its dtype.
        progress: Called with the processes done and in all.
    """
    prompts = [{"prompt": e.prompt, "output": e.answer, "features": e.spans} for e in examples]
    task: dict[str, Any] = {
        "prompt": prompts[0], "surrogate": surrogate, "device": device, "dtype": dtype, "repeats": 3,
    }  # fmt: skip
    total, more = rounds * len(found), [p for p in [os.environ.get("PYTHONPATH")] if p]
    for number in range(total):
        if progress:
            progress(number, total)
        turn, which = divmod(number, len(found))
        name = list(found)[which]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(found[name]), *more])}
        task["widths"] = prompts if turn == 0 and len(prompts) > 1 else []
        for row in in_new_process(_CODE, task, f"An explanation by {name}", env):
            disturbed = row["others"] > DISTURBED
            line = {"configuration": name, "round": turn + 1, **known, **row, "disturbed": disturbed}
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    if progress:
        progress(total, total)
