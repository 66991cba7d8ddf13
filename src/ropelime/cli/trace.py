"""``ropelime trace``: the steps of an agent's run, as another tool has stored it."""

from __future__ import annotations

import argparse
import json

from ropelime.cli.shared import writable
from ropelime.files import write_text
from ropelime.progress import note
from ropelime.text.display import plain
from ropelime.trace import trace
from ropelime.traces.records import trace_dict

HELP = "list the steps of an agent's run"
DESCRIPTION = (
    "List the steps of a run that another tool has stored: calls of models and tools, retrievals and "
    "agents, with their number, their time and the beginning of their output."
)
EPILOG = """\
The form is recognised by its shape: OpenInference and OpenTelemetry GenAI spans (OTLP/JSON, Phoenix),
exports of Langfuse and LangSmith, Inspect logs (JSON or .eval), runs of AgentDojo and tau-bench, and
messages of OpenAI, Anthropic or Gemini. JSON and JSON lines, also compressed by gzip. What cannot be
read is named, and the rest is listed.

examples:
  ropelime trace run.json
  ropelime trace spans.jsonl.gz --json steps.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and the results."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a trace, a log, or a list of messages")
    add = parser.add_argument_group("result").add_argument
    add("--json", type=writable, metavar="FILE", help="write the steps with their messages as JSON")
    add("--quiet", action="store_true", help="print nothing but errors")


def run(options: argparse.Namespace) -> None:
    """Read, write, list."""
    found = trace(options.file)
    if options.json:
        write_text(options.json, json.dumps(trace_dict(found), ensure_ascii=False, indent=1) + "\n")
    for problem in found.problems:
        note(f"ropelime: {plain(problem)}")
    if options.quiet:
        return
    from ropelime.views.tables import show_trace

    show_trace(found)
    if options.json:
        print(f"Written to {options.json}")
