"""``ropelime explain``: explain an answer from files or text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from ropelime.cli.shared import add_options, add_output, chunks, emit, messages, method, read
from ropelime.progress import note

_EPILOG = """\
examples:
  ropelime explain --prompt prompt.txt --output "The answer."
  cat prompt.txt | ropelime explain --prompt - --output answer.txt --features word
  ropelime explain --context docs/*.txt --question "Who built it?" --output "Marta" --json why.json
  ropelime explain --prompt prompt.txt --output answer.txt --html why.html --cite
  ropelime explain --messages chat.json --output answer.txt --features message --preset paper
  ropelime explain --prompt prompt.txt --output answer.txt --preset faithful \\
    --surrogate http://localhost:8000/v1#Qwen/Qwen3-8B
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain",
        help="explain an answer",
        description="Explain which parts of a prompt an answer depends on.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_argument_group("what to explain")
    source.add_argument("--prompt", metavar="FILE|-", help="the prompt; - reads standard input")
    source.add_argument("--context", nargs="+", metavar="FILE", help="retrieved chunks, one file each")
    source.add_argument("--question", metavar="TEXT", help="the question about the context")
    source.add_argument("--messages", metavar="FILE|-", help="chat messages as a JSON list")
    source.add_argument(
        "--output",
        required=True,
        metavar="FILE|TEXT",
        help="the answer, or a file with it; - reads standard input",
    )
    add_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Explain, show, write."""
    from ropelime.explain import explain

    explanation = explain(
        prompt=read(options.prompt),
        output=_text_or_file(options.output),
        context=chunks(options.context),
        question=options.question,
        messages=messages(options.messages),
        **method(options),
    )
    emit(explanation, options)


def _text_or_file(value: str) -> str:
    try:
        is_file = value == "-" or Path(value).is_file()
    except (OSError, ValueError):  # too long for a file name, or not one at all
        is_file = False
    if is_file:
        return (read(value) or "").rstrip("\n")
    if re.fullmatch(r"\S+\.(txt|md|json)", value):
        note(f"ropelime: there is no file {value}; taken as the text of the answer")
    return value
