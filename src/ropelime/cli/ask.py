"""``ropelime ask``: call a model once, and explain its answer."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ropelime.cli.shared import (
    add_answering,
    add_options,
    add_output,
    answering,
    chunks,
    emit,
    messages,
    method,
)
from ropelime.progress import note

_EPILOG = """\
The API key is read from OPENAI_API_KEY and never stored. A local server may need none. The answer is
streamed to standard error; the explanation goes to standard output.

examples:
  ropelime ask "Who built it?" --context docs/*.txt --model gpt-4o-mini
  ropelime ask "Who built it?" --context docs/*.txt --model gpt-4o-mini --cite --html why.html
  ropelime ask --messages chat.json --model gpt-4o-mini --features message
  ropelime ask "Why?" --model qwen3 --base-url http://localhost:8000/v1 --sampling temperature=0
  ropelime ask "Why?" --model gpt-4o-mini --features word --price-in 0.15 --price-out 0.6
"""


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "ask",
        help="call a model once and explain its answer",
        description="Call an answering model exactly once, and explain which parts of the prompt its "
        "answer depends on. Answers are cached, so the same call is not paid for twice.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", nargs="?", help="the prompt, or the question about the context")
    parser.add_argument("--context", nargs="+", metavar="FILE", help="retrieved chunks, one file each")
    parser.add_argument(
        "--messages", metavar="FILE|-", help="chat messages as a JSON list, in place of a question"
    )
    add_answering(parser, required=True)
    parser.add_argument(
        "--no-stream", action="store_true", help="show the answer only when it is complete"
    )
    add_options(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Call the model, explain its answer, show and write the explanation."""
    from ropelime.ask import ask

    explanation = ask(
        options.question,
        context=chunks(options.context),
        messages=messages(options.messages),
        **answering(options),
        stream=not options.no_stream and not options.quiet,
        on_text=None if options.quiet else _show,
        on_answer=None if options.quiet else lambda answer: note(f"\nropelime: {worded(answer)}"),
        **method(options),
    )
    emit(explanation, options)


def _show(text: str) -> None:
    """Print a piece of the answer, with control characters escaped."""
    from ropelime.text.display import plain

    sys.stderr.write(plain(text))
    sys.stderr.flush()


def worded(answer: dict[str, Any]) -> str:
    """What the call cost, in one line."""
    usage = answer["usage"]
    words = [f"{answer['model']} answered"]
    if answer["cached"]:
        words = [f"the answer of {answer['model']} came from the cache, at no cost"]
    elif answer["retries"]:
        words[0] += f" after {answer['retries']} failed {'try' if answer['retries'] == 1 else 'tries'}"
    if usage:
        words.append(
            f"{usage.get('prompt_tokens', '?')} tokens in, {usage.get('completion_tokens', '?')} out"
        )
    if answer["cost"] is not None:
        words.append(f"cost {answer['cost']:.6f}")
    return " · ".join(words)
