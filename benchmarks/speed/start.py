"""Time of the first explanation of a new process, and of the second one in it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.store import Row
from ropelime.errors import ModelError

METHOD = "demo's example"

# Runs in a process of its own, and gets the time at which that was started.
_CODE = """
import json, sys, time
began = time.perf_counter()
from ropelime import example, explain, load_surrogate
imported = time.perf_counter()
name, device, dtype, started = json.load(sys.stdin)
def once():
    start = time.perf_counter()
    model = load_surrogate(name, device=device, dtype=dtype)
    made = explain(
        context=example.CONTEXT, question=example.QUESTION, output=example.ANSWER,
        surrogate=model, progress=False,
    )
    return made, time.perf_counter() - start
made, first = once()
since = time.time() - started
again, second = once()
print(json.dumps({
    "import": imported - began, "first": first, "since": since, "second": second,
    "features": len(made.features), "prompts": made.cost.masks, "run": made.cost.tokens,
}))
"""


def in_new_process(code: str, given: Any, what: str, env: Mapping[str, str] | None = None) -> Any:
    """What a program prints last, as JSON, in a process of its own.

    Args:
        code: The program.
        given: Its input, passed as JSON: it may be longer than an argument.
        what: What it does, for the error.
        env: The environment of the process, if another one.
    """
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, check=False, env=env
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ModelError(f"{what} failed: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, device: str | None, dtype: str | None, rounds: int) -> Row:
    """Start some processes and take medians.

    Args:
        name: The surrogate, which must be on disk already.
        device: Where it runs.
        dtype: Its dtype.
        rounds: Number of processes.
    """
    seen: list[Row] = []
    for _ in range(rounds):
        given = [name, device, dtype, time.time()]
        seen.append(in_new_process(_CODE, given, "An explanation in a process of its own"))
    times = ("import", "first", "since", "second")
    medians = {key: round(statistics.median(row[key] for row in seen), 4) for key in times}
    return {"method": METHOD, **seen[-1], **medians, "rounds": [round(r["since"], 4) for r in seen]}
