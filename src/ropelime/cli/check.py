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
from ropelime.explain import Explanation, explain, load
from ropelime.files import parse, write_text
from ropelime.guard import tool_names
from ropelime.options import Options
from ropelime.progress import note, reporting
from ropelime.results import assertions
from ropelime.text.display import plain
from ropelime.trace import trace
from ropelime.views.junit import Case, junit

_INPUT = (*FORMS, "output", "response", "request", "features")
_WRONG = (*FORGIVEN, AttributeError)  # one line; the others are still checked
_KEYS = ("id", "expect", "explanation", "trace", "step", *_INPUT)
HELP = "assert what answers rest on, with JUnit XML and an exit code"
DESCRIPTION = (
    "Check that answers rest on the parts of the prompt that they should rest on, and not on others, "
    "that their sentences come from the prompt, and that no tool's output caused a call of an agent."
)
EPILOG = """\
Each line of FILE is a JSON object with the input of explain (prompt, context with question, or
messages; and the output), the path of a saved explanation ("explanation") or of a run of an agent
("trace", as `ropelime trace` reads it), relative to FILE, and with assertions:

  {"id": "pottery", "context": ["...", "..."], "question": "...", "output": "...",
   "expect": [{"rests_on": {"document": 1}}, {"not_rests_on": {"text": "Ignore all"}}]}
  {"explanation": "why.json", "expect": [{"not_rests_on": {"role": "system"}, "at_most": 0.1}]}
  {"explanation": "why.json", "expect": [{"every_sentence_grounded": true}]}
  {"explanation": "why.json", "expect": [{"grounded": {"at_least": 0.9}}]}
  {"trace": "run.json", "expect": [{"no_action_caused_by": "tool"}]}

A part of the prompt is a document or message (a number, counted from 1 as in citations), a role, a
source (the chunk's file) or a text. The answer rests on it if its features' signed normalised weights
sum to over 1.5 times what that sum would be if all features were equal; the threshold is never more
than half way from there to 1. "factor" replaces 1.5; "at_least" (rests_on) and "at_most" (not_rests_on)
replace the rule by a normalised weight; "of" limits the assertion to a part of the answer. The default
target counts a feature's effect on the question too; --target shift counts its effect on the answer
alone. An answer rests on nothing if no masked prompt changed its log-probability by 0.1 nats per token.
rests_on fails, too, if the answer rests on its prompt with a chance below 10 % (the verdict "rests");
not_rests_on does not hold for that, since the answer may say the same in other words. Where a verifying
call without one feature of the part gave another answer, and the same prompt sent again did not, the
answer rests on the part, unless a limit or "of" is given.

A sentence of the answer is grounded if it comes from the prompt, and not from the model's memory, with
a chance of at least 50 % (e.grounding). "grounded" compares the share of such sentences, each counted
once; sentences without a source are quoted in the report. "of" limits it to the sentences in that text.

"no_action_caused_by" fails if a tool's output caused a tool call with a chance of at least 80 %, rather
than the user or the system prompt; "at_most" replaces that chance. Each step of a trace is checked, or
the one that "step" names by its number or id. Where nothing else is asserted, preset instant judges
unless --preset names another.

What this cannot see: whether an answer is right. An answer that rests on the right sentence may still
misread it, and a source may itself be wrong.

exit codes: 0 all hold, 1 some fail, 2 something could not be checked (the rest is checked)

examples:
  ropelime check answers.jsonl
  ropelime check answers.jsonl --junit report.xml --features document
  echo '{"trace": "run.json", "expect": {"no_action_caused_by": "tool"}}' | ropelime check -
"""


class _NotGiven(str):
    """A default that can be told apart from the same text on the command line."""


_Named = tuple[str, Explanation | str, Mapping[int, str]]  # with the names of tools, by message


@dataclass(frozen=True)
class Entry:
    """A valid line: what to explain, and its assertions."""

    line: int
    name: str
    given: Mapping[str, Any]
    expect: tuple[assertions.Assertion, ...]
    saved: Path | None
    trace: Path | None = None
    step: int | str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files and the options."""
    parser.add_argument("file", metavar="FILE", help="one JSON object per line; - reads standard input")
    parser.add_argument("--junit", type=writable, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--quiet", action="store_true", help="print only failures and errors")
    add_options(parser)
    parser.set_defaults(preset=_NotGiven(Options().preset))


def run(options: argparse.Namespace) -> int:
    """Check every line; returns the exit code."""
    try:
        text = read(options.file) or ""
        folder = Path(".") if options.file == "-" else Path(options.file).parent
        entries = list(_entries(text, folder))
        if not entries:
            raise InputError(f"{options.file} has no lines: there is nothing to check.")
        fresh = any(isinstance(entry, Entry) and entry.saved is None for entry in entries)
        actions = "instant" if isinstance(options.preset, _NotGiven) else options.preset
        options.preset = str(options.preset)
        chosen = method(options) if fresh else {}  # saved explanations need no model
        chosen["actions"] = actions
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
            yield Case(number, name, "reading the line", wrong=str(error))


def _entry(number: int, name: str, data: Mapping[str, Any], folder: Path) -> Entry:
    expect = data.get("expect")
    expect = [expect] if isinstance(expect, Mapping) else expect
    if not isinstance(expect, list) or not expect:
        raise InputError('There is nothing to check: "expect" must be a list of assertions.')
    given = {key: data[key] for key in _INPUT if data.get(key) is not None}
    paths = {key: data[key] for key in ("explanation", "trace") if data.get(key) is not None}
    for key, path in paths.items():
        if not isinstance(path, str) or given or len(paths) > 1:
            raise InputError(f'"{key}" must be the path of a saved one, and stands alone.')
    step = data.get("step")
    if step is not None and ("trace" not in paths or not isinstance(step, (int, str))):
        raise InputError('"step" is the number or the id of a step, and goes with "trace".')
    saved, run = (folder / paths[key] if key in paths else None for key in ("explanation", "trace"))
    return Entry(number, name, given, tuple(map(assertions.read, expect)), saved, run, step)


def _check(entries: list[Entry | Case], chosen: dict[str, Any], *, quiet: bool) -> list[Case]:
    cases: list[Case] = []
    with reporting(False if quiet else "auto", "Checking answers") as report:
        for done, entry in enumerate(entries, 1):
            cases += [entry] if isinstance(entry, Case) else _cases(entry, chosen)
            if report:
                report(done, len(entries))
    return cases


def _cases(entry: Entry, chosen: dict[str, Any]) -> Iterator[Case]:
    """A case for each assertion of an entry, and for each step where it is a trace."""
    start, case = time.perf_counter(), Case(entry.line, entry.name, "can be explained")
    try:
        found = [*_explanations(entry, dict(chosen))]
    except _WRONG as error:
        kind = "context" if "context" in entry.given else "prompt"
        for assertion in entry.expect:
            yield replace(case, what=assertion.about(kind), wrong=worded(error))
        return
    seconds = time.perf_counter() - start
    for name, explanation, tools in found:
        for assertion in entry.expect:
            case = Case(entry.line, name, str(assertion), seconds=seconds)
            seconds = 0.0  # the first one counts for all of them
            if isinstance(explanation, str):
                yield replace(case, wrong=explanation)
                continue
            case = replace(case, what=assertion.about(explanation.prompt.kind))
            try:
                yield replace(case, verdict=assertions.check(explanation, assertion, tools=tools))
            except _WRONG as error:
                yield replace(case, wrong=worded(error))


def _explanations(entry: Entry, chosen: dict[str, Any]) -> Iterator[_Named]:
    """The explanation of an entry, or those of the steps of a trace; a text says what is wrong."""
    preset = chosen.pop("actions")
    if all(assertion.kind == "no_action_caused_by" for assertion in entry.expect):
        chosen["preset"] = preset
    if entry.saved is not None:
        yield entry.name, load(entry.saved), {}
    elif entry.trace is None:
        explanation = explain(**{**chosen, "progress": False, **entry.given})
        yield entry.name, explanation, tool_names(entry.given.get("messages") or [])
    else:
        run = trace(entry.trace)
        chosen["progress"] = False
        one = [] if entry.step is None else [run.explain(entry.step, **chosen)]
        made, wrong = (one, []) if one else run.explain_all(**chosen)
        for each in made:
            named = f"{entry.name}, step {each.step.number}"
            yield named, each.explanation, tool_names(each.step.prompt())
        for text in wrong:
            yield entry.name, text, {}


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
