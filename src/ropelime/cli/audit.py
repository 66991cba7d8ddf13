"""``ropelime audit``: check the citations that an answer carries."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ropelime.audit import FAIL_ON, audit
from ropelime.cli.shared import (
    add_options,
    add_prompt,
    method,
    prompt_arguments,
    text_of,
    writable,
)
from ropelime.errors import RopeLimeError
from ropelime.progress import note
from ropelime.results.audit import WORDED
from ropelime.text.annotated import is_message
from ropelime.text.display import plain
from ropelime.views.sentences import marks_sentence

HELP = "check the citations that an answer carries"
DESCRIPTION = (
    "Check each citation in an answer against the documents that its statement rests on: confirmed, "
    "refuted (another document is the source), unsupported (none is) or unknown (no such document)."
)
EPILOG = """\
The answer is text with marks, such as [1], [1, 3], [^1], 【1†source】, ¹ or Markdown links, or the
JSON of a message or response of OpenAI's or Anthropic's API, with citations as objects. [1] is the
first document. Documents are the files of --context; in --prompt and --messages, passages that
begin with their number ([1] ...), document blocks, or results of tools.

A mark is about the sentence that it stands in or behind, or about the span that the API's object gives.
Sentences that rest on a document and have no mark are listed as uncited.

exit codes: 0 nothing of --fail-on, 1 something of it, 2 the answer could not be checked

examples:
  ropelime audit --context docs/*.txt --question "Who built it?" --output @answer.md
  ropelime audit --messages chat.json --output @response.json --html audit.html --json audit.json
  ropelime audit --context docs/*.txt --output @answer.md --fail-on refuted unsupported unknown uncited
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the input, what fails, the files and the options."""
    add = add_prompt(parser, "what to check", "the answer with its marks")
    text = "number of the first document (default 1)"
    add("--count-from", type=int, default=1, metavar="N", help=text)
    add = parser.add_argument_group("result").add_argument
    text = f"what makes the exit code 1: {', '.join(WORDED)} (default {' '.join(FAIL_ON)})"
    add("--fail-on", nargs="*", default=FAIL_ON, choices=list(WORDED), metavar="WHAT", help=text)
    add("--json", type=writable, metavar="FILE", help="write the audit as JSON")
    add("--html", type=writable, metavar="FILE", help="write a self-contained HTML page")
    add("--quiet", action="store_true", help="print only what fails")
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    """Check, show, write; returns the exit code."""
    try:
        result = audit(
            **prompt_arguments(options),
            output=_answer(text_of("--output", options.output) or ""),
            count_from=options.count_from,
            fail_on=options.fail_on,
            **method(options),
        )
        if options.json:
            result.save(options.json)
        if options.html:
            result.to_html(options.html)
    except RopeLimeError as error:  # 1 means that a mark is wrong
        note(f"ropelime: {error}")
        return 2
    if not options.quiet:
        from ropelime.views.tables import show_audit

        show_audit(result)
        for warning in result.explanation.diagnostics.warnings:
            note(f"! {plain(warning)}")
        for path in filter(None, (options.json, options.html)):
            print(f"Written to {path}")
    elif not result.ok:
        note(f"ropelime: {marks_sentence(result)}")
    return 0 if result.ok else 1


def _answer(text: str) -> Any:
    """The answer as text, or as the data of an API where it is that."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return data if is_message(data) else text
    return text
