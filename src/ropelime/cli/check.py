"""``ropelime check``: assert what answers rest on, and that their sentences have a source, for CI."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropelime.batch.lines import FORMS
from ropelime.cli.shared import add_options, method, read, writable
from ropelime.errors import FORGIVEN, InputError, RopeLimeError, worded
from ropelime.explain import explain, load
from ropelime.files import parse, write_text
from ropelime.progress import note, reporting
from ropelime.results import assertions
from ropelime.text.display import plain
from ropelime.views.junit import Case, junit

_INPUT = (*FORMS, "output", "response", "request", "features")
_WRONG = (*FORGIVEN, AttributeError)  # one line; the others are still checked
_KEYS = ("id", "expect", "explanation", *_INPUT)
HELP = "assert what answers rest on, with JUnit XML and an exit code"
DESCRIPTION = (
    "Check that answers rest on the parts of the prompt that they should rest on, and not on others, "
    "and that their sentences come from the prompt."
)
EPILOG = """\
Each line of FILE is a JSON object with the input of explain (prompt, context with question, or
messages; and the output) or the path of a saved explanation ("explanation", relative to FILE), and with
assertions:

  {"id": "pottery", "context": ["...", "..."], "question": "...", "output": "...",
   "expect": [{"rests_on": {"document": 1}}, {"not_rests_on": {"text": "Ignore all"}}]}
  {"explanation": "why.json", "expect": [{"not_rests_on": {"role": "system"}, "at_most": 0.1}]}
  {"explanation": "why.json", "expect": [{"every_sentence_grounded": true}]}
  {"explanation": "why.json", "expect": [{"grounded": {"at_least": 0.9}}]}

A part of the prompt is a document or message (a number, counted from 1 as in citations), a role, a
source (the chunk's file) or a text. The answer rests on it if its features' signed normalised weights
sum to over 1.5 times what that sum would be if all features were equal; the threshold is never more
than half way from there to 1. "factor" replaces 1.5; "at_least" (rests_on) and "at_most" (not_rests_on)
replace the rule by a normalised weight; "of" limits the assertion to a part of the answer. The default
target counts a feature's effect on the question too; --target shift counts its effect on the answer
alone. An answer whose log-probability no masked prompt changed by 0.1 nats per token rests on nothing.

A sentence of the answer is grounded if it comes from the prompt, and not from the model's memory, with
a chance of at least 50 % (e.grounding). "grounded" compares the share of such sentences, each counted
once; sentences without a source are quoted in the report. "of" limits it to the sentences in that text.

What this cannot see: whether an answer is right. An answer that rests on the right sentence may still
misread it, and a source may itself be wrong.

exit codes: 0 all hold, 1 some fail, 2 something could not be checked (the rest is checked)

examples:
  ropelime check answers.jsonl
  ropelime check answers.jsonl --junit report.xml --features document
"""


@dataclass(frozen=True)
class Entry:
    """A valid line: what to explain, and its assertions."""

    line: int
    name: str
    given: Mapping[str, Any]
    expect: tuple[assertions.Assertion, ...]
    saved: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files and the options."""
    parser.add_argument("file", metavar="FILE", help="one JSON object per line; - reads standard input")
    parser.add_argument("--junit", type=writable, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--quiet", action="store_true", help="print only failures and errors")
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Check every line; returns the exit code."""
    try:
        text = read(options.file) or ""
        folder = Path(".") if options.file == "-" else Path(options.file).parent
        entries = list(_entries(text, folder))
        if not entries:
            raise InputError(f"{options.file} has no lines: there is nothing to check.")
        fresh = any(isinstance(entry, Entry) and entry.saved is None for entry in entries)
        chosen = method(options) if fresh else {}  # saved explanations need no model
        cases = _check(entries, chosen, quiet=options.quiet)
        if options.junit:
            write_text(options.junit, junit(options.file, cases))
    except RopeLimeError as error:  # 1 means that an assertion fails
        note(f"ropelime: {error}")
        return 2
    _show(cases, options)
    if any(case.verdict is None for case in cases):
        return 2
    return 1 if any(case.fails for case in cases) else 0


def _entries(text: str, folder: Path) -> Iterator[Entry | Case]:
    """The entry of each line, or a case with the error."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        name = f"line {number}"
        try:
            data = parse(line, _KEYS)
            name = str(data.get("id", name))
            yield _entry(number, name, data, folder)
        except InputError as error:
            yield Case(number, name, "can be read", wrong=str(error))


def _entry(number: int, name: str, data: Mapping[str, Any], folder: Path) -> Entry:
    expect = data.get("expect")
    expect = [expect] if isinstance(expect, Mapping) else expect
    if not isinstance(expect, list) or not expect:
        raise InputError('There is nothing to check: "expect" must be a list of assertions.')
    given = {key: data[key] for key in _INPUT if data.get(key) is not None}
    saved = data.get("explanation")
    if saved is not None and (not isinstance(saved, str) or given):
        raise InputError('"explanation" must be the path of a saved one, and stands alone.')
    path = None if saved is None else folder / saved
    return Entry(number, name, given, tuple(map(assertions.read, expect)), path)


def _check(entries: list[Entry | Case], chosen: dict[str, Any], *, quiet: bool) -> list[Case]:
    cases: list[Case] = []
    with reporting(False if quiet else "auto", "Checking answers") as report:
        for done, entry in enumerate(entries, 1):
            cases += [entry] if isinstance(entry, Case) else _cases(entry, chosen)
            if report:
                report(done, len(entries))
    return cases


def _cases(entry: Entry, chosen: dict[str, Any]) -> Iterator[Case]:
    """A case for each assertion of an entry."""
    start, explanation, wrong = time.perf_counter(), None, ""
    try:
        if entry.saved is None:
            explanation = explain(**{**chosen, "progress": False, **entry.given})
        else:
            explanation = load(entry.saved)
    except _WRONG as error:
        wrong = worded(error)
    seconds = time.perf_counter() - start
    for assertion in entry.expect:
        case = Case(entry.line, entry.name, str(assertion), wrong=wrong, seconds=seconds)
        seconds = 0.0  # the first one counts for all of them
        try:
            verdict = None if explanation is None else assertions.check(explanation, assertion)
            yield replace(case, verdict=verdict)
        except _WRONG as error:
            yield replace(case, wrong=worded(error))


def _show(cases: list[Case], options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for _ in range(5):
        table.add_column(overflow="fold")
    colours = {"holds": "green", "FAILS": "bold red", "ERROR": "bold yellow"}
    counts = dict.fromkeys(colours, 0)
    for case in cases:
        word = "ERROR" if case.verdict is None else "FAILS" if case.fails else "holds"
        what, why = plain(case.what), plain(case.verdict.why if case.verdict else case.wrong)
        counts[word] += 1
        cells = (f"{case.line}", plain(case.name), what, why)
        table.add_row(Text(word, style=colours[word]), *map(Text, cells))
        if word == "ERROR":
            note(f"ropelime: {options.file}, line {case.line}: {why}")
        elif word == "FAILS" and options.quiet:
            note(f"ropelime: {options.file}, line {case.line} fails: {what}: {why}")
    if options.quiet:
        return
    Console().print(table)
    holding, failing, wrong = counts.values()
    print(f"{len(cases)} checked: {holding} hold, {failing} fail, {wrong} could not be checked")
    if options.junit:
        print(f"Written to {options.junit}")
