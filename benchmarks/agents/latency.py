"""What it takes to ask who decided: the time of ``guard``, and the tokens of a run as a whole.

Times are compared within one process, round after round: that of ``guard`` with that of one plain
forward pass over prompt and action, and with that of a default explanation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import pages
from benchmarks.hardware import Hardware
from benchmarks.names import EVIDENCE, INSTANT
from benchmarks.pages import number
from benchmarks.store import Row, Store
from ropelime import guard, trace
from ropelime.explain import explain
from ropelime.surrogate import Ablation
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, from_messages

LATENCY, ROUND, RUN = "latency", "round", "run"
SENTENCES, CHARACTERS, STEPS = 75, 3000, 20
_WORDS = ("river", "garden", "window", "letter", "market", "winter", "bridge", "paper", "morning")

Messages = Sequence[dict[str, Any]]


def holds(header: Row) -> bool:
    """Whether a results file is of this kind."""
    return header.get("kind") == LATENCY


def context(sentences: int = SENTENCES, characters: int = CHARACTERS) -> str:
    """So many different sentences that have so many characters together."""
    rng = np.random.default_rng(0)
    size = characters // sentences - 1
    found = []
    for i in range(sentences):
        text = f"Note {i} says"
        while len(text) < size:
            text += f" {rng.choice(_WORDS)}"
        head, _, last = text[: size - 1].rpartition(" ")
        # A single letter before the stop would be taken for an abbreviation.
        found.append(f"{head} {last}." if len(last) > 2 else f"{head}{'s' * (len(last) + 1)}.")
    text = " ".join(found)
    return text + "." * (characters - len(text))


def guarded() -> tuple[Messages, dict[str, Any]]:
    """The messages of an agent with one long result of a tool, and the call that it wants to make."""
    call = {"id": "c1", "type": "function", "function": {"name": "read_notes", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a helpful assistant with tools."},
        {"role": "user", "content": "Read my notes and send the seventh to Ann."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": context(), "tool_call_id": "c1"},
    ]
    arguments = {"to": "ann@example.com", "body": "Note 7 says river garden window."}
    return messages, {"name": "send_mail", "arguments": arguments}


def run_of(steps: int = STEPS) -> Messages:
    """The messages of a run: a request, then calls and results in turn, so many."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a helpful assistant with tools."},
        {"role": "user", "content": "Look at every page and tell me which one speaks of a bridge."},
    ]
    for i in range(steps):
        function = {"name": "open_page", "arguments": json.dumps({"page": i})}
        call = {"id": f"c{i}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        text = context(8, 320).replace("Note", f"Page {i}, line")
        messages.append({"role": "tool", "content": text, "tool_call_id": f"c{i}"})
    return messages


def measure(surrogate: LocalSurrogate, store: Store, *, rounds: int) -> None:
    """Time rounds of ``guard`` beside a plain forward pass, then count the tokens of a whole run.

    A default explanation takes far longer: it is timed in the first round alone.
    """
    hardware = Hardware(surrogate)
    messages, action = guarded()
    text = json.dumps(action)
    ways: dict[str, Callable[[], object]] = {
        "guard": lambda: guard(messages, action, surrogate=surrogate),
        "forward": lambda: forward(surrogate, messages, text),
        "explain": lambda: explain(messages=messages, output=text, surrogate=surrogate, progress=False),
    }
    for way in ways.values():  # the first call is not timed
        way()
    for i in range(rounds):
        if (name := f"{ROUND}-{i}") not in store.done:
            took = {
                way: hardware.measure(run) for way, run in ways.items() if not i or way != "explain"
            }
            row: Row = {"example": name, "method": LATENCY}
            row["seconds"] = {way: round(each.seconds, 5) for way, each in took.items()}
            row["processor"] = {way: round(each.processor, 5) for way, each in took.items()}
            row["tokens"] = {way: each.tokens for way, each in took.items()}
            store.add(name, [row])
    if RUN not in store.done:
        store.add(RUN, [{"example": RUN, "method": LATENCY, **whole_run(surrogate, hardware)}])


def forward(surrogate: LocalSurrogate, messages: Messages, output: str) -> int:
    """One plain forward pass over prompt and output, as transformers runs it; returns its tokens."""
    ids = torch.as_tensor(_ids(surrogate, from_messages(messages), output), device=surrogate.device)
    with surrogate.lock, torch.inference_mode():
        surrogate.model(input_ids=ids[None], use_cache=False)
    return len(ids)


def whole_run(surrogate: LocalSurrogate, hardware: Hardware) -> Row:
    """The tokens of explaining every step of a run, beside those of its longest step times steps."""
    run = trace(run_of())
    steps = [(from_messages(step.prompt()), step.output) for step in run.model_steps]
    lengths = [len(_ids(surrogate, prompt, output)) for prompt, output in steps]
    found = {
        preset: hardware.measure(partial(run.explain_all, surrogate=surrogate, preset=preset)).tokens
        for preset in (INSTANT, EVIDENCE)
    }
    return {"steps": len(steps), "longest": max(lengths), "all": sum(lengths), "tokens": found}


def _ids(surrogate: LocalSurrogate, prompt: Prompt, output: str) -> Any:
    features = split(prompt, "sentence", token_spans=surrogate.token_spans)
    scorer = surrogate.prepare(prompt, features, output, ablation=Ablation())
    return scorer.tokenized.sequence(0, np.ones(len(features), dtype=bool)).ids


def table(files: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """What was measured, a line for each results file."""
    if not files:
        return pages.no_results("python -m benchmarks agents --latency")
    lines = []
    for header, rows in files:
        timed = [row for row in rows if "seconds" in row]
        over = {
            way: np.median(
                [
                    row["seconds"]["guard"] / row["seconds"][way]
                    for row in timed
                    if way in row["seconds"]
                ]
            )
            for way in ("forward", "explain")
        }
        best, work = (min(row[of]["guard"] for row in timed) for of in ("seconds", "processor"))
        used = {
            preset: tokens / (row["longest"] * row["steps"])
            for row in rows
            if row["example"] == RUN
            for preset, tokens in row["tokens"].items()
        }
        machine = header["machine"]
        lines.append(
            [
                f"{header['surrogate']['name']}, {machine.get('gpu') or machine['cpu']}",
                number(best, ".2f"),
                number(work, ".2f"),
                number(float(over["forward"]), ".2f"),
                number(float(over["explain"]), ".2f"),
                *(number(used.get(preset), ".2f") for preset in (INSTANT, EVIDENCE)),
            ]
        )
    head = ["surrogate, machine", "guard, seconds", "CPU seconds"]
    head += ["over a forward pass", "over `explain`"]
    return pages.table([*head, "tokens of a run, instant", "evidence"], lines)
