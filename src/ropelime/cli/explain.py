"""``ropelime explain``: explain an answer from files or text."""

from __future__ import annotations

import argparse

from ropelime.cli.shared import (
    STREAM,
    add_options,
    add_output,
    add_prompt,
    emit,
    follow,
    method,
    prompt_arguments,
    text_of,
)
from ropelime.explain import explain

HELP = "explain an answer"
DESCRIPTION = "Explain which parts of a prompt an answer depends on."
EPILOG = """\
examples:
  ropelime explain --prompt @prompt.txt --output "The answer."
  cat prompt.txt | ropelime explain --prompt - --output @answer.txt --features word
  ropelime explain --context docs/*.txt --question "Who built it?" --output "Marta" --json why.json
  ropelime explain --prompt @prompt.txt --output @answer.txt --html why.html --cite
  ropelime explain --messages chat.json --output @answer.txt --features message --preset paper
  ropelime explain --prompt @prompt.txt --output @answer.txt --preset faithful \\
    --surrogate http://localhost:8000/v1#Qwen/Qwen3-8B
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input and the options."""
    add = add_prompt(parser, "what to explain", "the answer")
    add("--stream", action="store_true", help=STREAM)
    add_options(parser)
    add_output(parser)


def run(options: argparse.Namespace) -> None:
    """Explain, show, write."""
    output = text_of("--output", options.output)
    given = {"output": output, **prompt_arguments(options), **method(options)}
    explained = follow(explain(stream=True, **given), options) if options.stream else explain(**given)
    emit(explained, options)
