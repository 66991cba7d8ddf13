"""``ropelime ask``: call a model once, and explain its answer."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ropelime.ask import ask
from ropelime.cli import shared
from ropelime.progress import note
from ropelime.text.display import plain

HELP = "call a model once and explain its answer"
DESCRIPTION = (
    "Call an answering model exactly once, and explain which parts of the prompt its answer depends "
    "on. Answers are cached, so the same call is not paid for twice. With --verify the model is called "
    "a few times more, with parts of the prompt removed."
)
EPILOG = """\
The API key is read from OPENAI_API_KEY and never stored. A local server may need none. The answer is
streamed to standard error; the explanation goes to standard output.

examples:
  ropelime ask "Who built it?" --context docs/*.txt --model gpt-4o-mini
  ropelime ask "Who built it?" --context docs/*.txt --model gpt-4o-mini --cite --html why.html
  ropelime ask "Who built it?" --context docs/*.txt --model gpt-4o-mini --stream
  ropelime ask "Who built it?" --context docs/*.txt --model gpt-4o-mini --verify 4
  ropelime ask --messages chat.json --model gpt-4o-mini --features message
  ropelime ask "Why?" --model qwen3 --base-url http://localhost:8000/v1 --sampling temperature=0
  ropelime ask "Why?" --model gpt-4o-mini --features word --price-in 0.15 --price-out 0.6
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input, the answering model and the options."""
    add = parser.add_argument_group("what to ask", shared.TEXTS).add_argument
    text = "the prompt, or the question about the context"
    add("question", nargs="?", metavar="TEXT", help=text)
    add("--context", nargs="+", metavar="FILE", help="retrieved chunks, one file each")
    add("--messages", metavar="FILE|-", help="chat messages as a JSON list, in place of a question")
    shared.add_answering(parser, required=True)
    shared.add_verifying(parser)
    add = parser.add_mutually_exclusive_group().add_argument
    add("--stream", action="store_true", help=shared.STREAM)
    add("--no-stream", action="store_true", help="show the answer only when it is complete")
    shared.add_options(parser)
    shared.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Call the model, explain its answer, show and write the explanation."""
    question = shared.text_of("the question", options.question)
    given: dict[str, Any] = {
        "context": shared.chunks(options.context),
        "messages": shared.messages(options.messages),
        **shared.answering(options),
        "verify": options.verify,
        "max_cost": options.max_cost,
        "on_answer": None if options.quiet else lambda answer: note(f"\nropelime: {_worded(answer)}"),
        **shared.method(options),
    }
    if options.stream:
        explanation = shared.follow(ask(question, stream=True, **given), options)
    else:
        given["stream"] = False if options.no_stream else None
        explanation = ask(question, on_text=None if options.quiet else _show, **given)
    shared.emit(explanation, options)
    return shared.unverified(explanation)


def _show(text: str) -> None:
    """Print a piece of the answer, with control characters escaped."""
    sys.stderr.write(plain(text))
    sys.stderr.flush()


def _worded(answer: dict[str, Any]) -> str:
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
