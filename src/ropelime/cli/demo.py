"""``ropelime demo``: explain the built-in example."""

from __future__ import annotations

import argparse

from ropelime import example
from ropelime.cli.shared import add_options, add_output, emit, method
from ropelime.explain import explain

HELP = "explain a built-in example"
DESCRIPTION = "Explain a built-in retrieval example of fifteen sentences."
EPILOG = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_options(parser)
    add_output(parser)


def run(options: argparse.Namespace) -> None:
    """Explain the example."""
    explanation = explain(
        context=example.CONTEXT, question=example.QUESTION, output=example.ANSWER, **method(options)
    )
    emit(explanation, options)
