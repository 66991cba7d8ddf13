"""``ropelime trace``: the steps of an agent's run, and why it did what it did."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from ropelime.cli.shared import add_options, count, method, writable
from ropelime.errors import InputError, RopeLimeError
from ropelime.files import write_text
from ropelime.progress import note
from ropelime.results.decisions import Hop, origins
from ropelime.stepwise import ExplainedStep
from ropelime.text.display import plain
from ropelime.trace import Trace, trace
from ropelime.traces.annotations import annotation_lines, otlp_json
from ropelime.traces.records import trace_dict

HELP = "list the steps of an agent's run, and say why it did what it did"
DESCRIPTION = (
    "List the steps of a run that another tool has stored: calls of models and tools, retrievals and "
    "agents. With --step or --all, say who decided on what a model did: the user, or a tool's output."
)
EPILOG = """\
The form is recognised by its shape: OpenInference and OpenTelemetry GenAI spans (OTLP/JSON, Phoenix),
exports of Langfuse and LangSmith, Inspect logs (JSON or .eval), runs of AgentDojo and tau-bench, and
messages of OpenAI, Anthropic or Gemini. JSON and JSON lines, also compressed by gzip. What cannot be
read is named, and the rest is listed.

Steps that cannot be explained, such as those without a prompt in the file, are named with --all.

To fail in CI if a tool's output caused an action, see "no_action_caused_by" in `ropelime check --help`.

exit codes: 0, or 2 on an error

examples:
  ropelime trace run.json
  ropelime trace run.json --step 7 --html why.html
  ropelime trace run.json --step 7 --hops 3
  ropelime trace run.json --all --html run.html
  ropelime trace run.json --all --annotations results.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, the steps and the results."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a trace, a log, or a list of messages")
    group = parser.add_argument_group("what to explain").add_mutually_exclusive_group()
    group.add_argument("--step", metavar="STEP", help="one step, by its number or its id")
    group.add_argument("--all", action="store_true", help="every step of a model")
    text = "trace the actions of --step back through N steps before it"
    add("--hops", type=count, metavar="N", help=text)
    add = parser.add_argument_group("result").add_argument
    add("--json", type=writable, metavar="FILE", help="write the steps, or who decided, as JSON")
    text = "write a page: the explanation of --step, or else a timeline of the run"
    add("--html", type=writable, metavar="FILE", help=text)
    text = "write who decided as annotations of spans (JSON lines, for Phoenix)"
    add("--annotations", type=writable, metavar="FILE", help=text)
    text = "write who decided as OpenTelemetry spans with gen_ai.evaluation events (OTLP/JSON)"
    add("--otlp", type=writable, metavar="FILE", help=text)
    add("--quiet", action="store_true", help="print nothing but errors")
    add_options(parser, preset="instant")


def run(options: argparse.Namespace) -> int:
    """Read, explain, write, list; returns the exit code."""
    try:
        _run(options)
        return 0
    except RopeLimeError as error:
        note(f"ropelime: {error}")
        return 2


def _run(options: argparse.Namespace) -> None:
    explaining = options.step is not None or options.all
    _check(options, explaining)
    found = trace(options.file)
    for problem in found.problems:
        note(f"ropelime: {plain(problem)}")
    if not explaining:
        if options.json:
            _write_json(options.json, trace_dict(found))
        if options.html:
            found.to_html(options.html)
        if not options.quiet:
            _list(found, options)
        return
    chosen = {**method(options), "progress": False if options.quiet else "auto"}
    made = _explained(found, options, chosen)
    hops: tuple[Hop, ...] = ()
    if options.hops:
        hops = found.follow(made[0].step, hops=options.hops, **_without(chosen, "progress"))
    if not options.quiet:
        _show(made, hops)
    _write(found, made, hops, options)


def _check(options: argparse.Namespace, explaining: bool) -> None:
    for name in ("annotations", "otlp"):
        if getattr(options, name) and not explaining:
            raise InputError(f"--{name} needs --step or --all.")
    if options.hops and options.step is None:
        raise InputError("--hops needs --step.")


def _list(found: Trace, options: argparse.Namespace) -> None:
    from ropelime.views.tables import show_trace

    show_trace(found)
    _name_files(options, "json", "html")


def _explained(
    found: Trace, options: argparse.Namespace, chosen: dict[str, Any]
) -> list[ExplainedStep]:
    if options.step is not None:
        counted = options.step.isdecimal() and len(options.step) < 10
        return [found.explain(int(options.step) if counted else options.step, **chosen)]
    made, wrong = found.explain_all(**chosen)
    for line in wrong:
        note(f"ropelime: {line}")
    if not made:
        raise InputError(f"No step of {found.name} could be explained.")
    return made


def _show(made: list[ExplainedStep], hops: Sequence[Hop]) -> None:
    from ropelime.views.tables import show_decisions, show_hops

    for each in made:
        show_decisions(each.step, each.decisions)
    if hops:
        show_hops(hops)


def _write(
    found: Trace, made: list[ExplainedStep], hops: Sequence[Hop], options: argparse.Namespace
) -> None:
    results = [judged for each in made for judged in each.judged()]
    if options.json:
        data = [each.to_dict() for each in made]
        if hops:
            data[0] |= {"hops": [hop.to_dict() for hop in hops], "origins": origins(hops)}
        _write_json(options.json, data)
    if options.html and options.step is not None:
        made[0].explanation.to_html(options.html)
    elif options.html:
        found.to_html(options.html, explained=made)
    if options.annotations:
        write_text(options.annotations, annotation_lines(results))
    if options.otlp:
        write_text(options.otlp, otlp_json(results))
    if not options.quiet:
        _name_files(options, "json", "html", "annotations", "otlp")


def _name_files(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if path := getattr(options, name):
            print(f"Written to {path}")


def _write_json(path: Any, data: Any) -> None:
    write_text(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def _without(options: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != name}
