"""``ropelime explain``: explain an answer from files or text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ropelime.cli.shared import add_options, add_output, chunks, emit, messages, method, read
from ropelime.explain import explain
from ropelime.progress import note

HELP = "explain an answer"
DESCRIPTION = "Explain which parts of a prompt an answer depends on."
EPILOG = """\
examples:
  ropelime explain --prompt prompt.txt --output "The answer."
  cat prompt.txt | ropelime explain --prompt - --output answer.txt --features word
  ropelime explain --context docs/*.txt --question "Who built it?" --output "Marta" --json why.json
  ropelime explain --prompt prompt.txt --output answer.txt --html why.html --cite
  ropelime explain --messages chat.json --output answer.txt --features message --preset paper
  ropelime explain --prompt prompt.txt --output answer.txt --preset faithful \\
    --surrogate http://localhost:8000/v1#Qwen/Qwen3-8B
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input and the options."""
    add = parser.add_argument_group("what to explain").add_argument
    add("--prompt", metavar="FILE|-", help="the prompt; - reads standard input")
    add("--context", nargs="+", metavar="FILE", help="retrieved chunks, one file each")
    add("--question", metavar="TEXT", help="the question about the context")
    add("--messages", metavar="FILE|-", help="chat messages as a JSON list")
    text = "the answer, or a file with it; - reads standard input"
    add("--output", required=True, metavar="FILE|TEXT", help=text)
    add_options(parser)
    add_output(parser)


def run(options: argparse.Namespace) -> None:
    """Explain, show, write."""
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
