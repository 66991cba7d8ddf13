"""``ropelime demo``: explain the built-in example."""

from __future__ import annotations

import argparse
from typing import Any

from ropelime.cli.shared import add_options, add_output, emit, method


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="explain a built-in example",
        description="Explain a built-in retrieval example of fifteen sentences.",
    )
    add_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Explain the example."""
    from ropelime import example
    from ropelime.explain import explain

    explanation = explain(
        context=example.CONTEXT, question=example.QUESTION, output=example.ANSWER, **method(options)
    )
    emit(explanation, options)
