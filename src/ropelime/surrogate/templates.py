"""A chat template is a program of the model's author: it is stopped when it takes too long.

transformers runs it in a sandbox, where it cannot reach anything. It can still loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

from ropelime.errors import ModelError

_SECONDS = 5.0  # of computing for one prompt; the longest chats take a small part of it
_LINES = 50  # between two looks at the clock


class EndlessTemplateError(ModelError):
    """The chat template of a model does not come to an end."""


@contextmanager
def cut_off(seconds: float = _SECONDS) -> Iterator[None]:
    """Stop what this thread computes here, in Python, after some time.

    A trace function sees every line that runs, so a loop cannot escape it, and it works in any thread.
    Only the thread's own time counts: a busy machine is not a template's fault.
    """
    end, before, lines = time.thread_time() + seconds, sys.gettrace(), count(1)

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        if next(lines) % _LINES == 0 and time.thread_time() > end:
            raise EndlessTemplateError(
                f"The chat template of the surrogate was stopped after {seconds:g} seconds: it seems "
                "to loop. Choose another surrogate, or take the template out of its files."
            )
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def check_template(template: str) -> None:
    """Refuse powers: a single one can take for ever, and no line runs meanwhile."""
    from jinja2 import Environment, TemplateSyntaxError

    try:
        tokens = list(Environment().lex(template))
    except TemplateSyntaxError:
        return  # rendering says what is wrong
    if any(kind == "operator" and text == "**" for _, kind, text in tokens):
        raise ModelError(
            "The chat template of the surrogate computes powers (**), which can take for ever, and "
            "which no template needs. Choose another surrogate, or take the template out of its files."
        )
