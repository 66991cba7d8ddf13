"""A chat template is a program of the model's author: it may take so much time and memory, not more.

transformers runs it in a sandbox, where it cannot reach anything. It can still loop, and build texts of
any size.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from ropelime.errors import ModelError
from ropelime.surrogate.checkpoints import LOADING

_SECONDS = 5.0  # of computing for one prompt; the longest chats take a small part of it
_LINES = 50  # between two looks at the clock
_MEGABYTES = 512  # for one prompt, besides what the process holds already
_CURE = "Choose another surrogate, or take the template out of its files."


class GreedyTemplateError(ModelError):
    """The chat template of a model takes too much time or memory."""


@contextmanager
def bounded(seconds: float = _SECONDS, megabytes: int = _MEGABYTES) -> Iterator[None]:
    """Stop what this thread computes here, in Python, when it takes too much time or memory."""
    try:
        with _limited_memory(megabytes), _limited_time(seconds):
            yield
    except MemoryError:
        raise GreedyTemplateError(
            f"The chat template of the surrogate was stopped: it takes more than {megabytes} MB of "
            f"memory. {_CURE}"
        ) from None  # whose frames hold all that was built


@contextmanager
def _limited_time(seconds: float) -> Iterator[None]:
    """A trace function sees every line that runs, so a loop cannot escape it, and works in any thread.

    Only the thread's own time counts: a busy machine is not a template's fault.
    """
    end, before, lines = time.thread_time() + seconds, sys.gettrace(), count(1)

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        if next(lines) % _LINES == 0 and time.thread_time() > end:
            raise GreedyTemplateError(
                f"The chat template of the surrogate was stopped after {seconds:g} seconds: it seems "
                f"to loop. {_CURE}"
            )
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _limited_memory(megabytes: int) -> Iterator[None]:
    """Let the process grow by so much; only Linux can.

    A single operation can ask for any size, so there is no moment at which Python could look. Meanwhile
    no model is loaded: that may need more.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    with LOADING:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + megabytes * 1_000_000
        if soft != resource.RLIM_INFINITY:
            most = min(most, soft)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def check_template(template: str) -> None:
    """Refuse powers and products of two variables: one can take for ever, without a line that runs."""
    from jinja2 import Environment, TemplateSyntaxError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser

    class Generation(Extension):
        """The tag that transformers adds."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    try:
        tree = Environment(extensions=[Generation, loopcontrols]).parse(template)
    except TemplateSyntaxError:
        return  # rendering says what is wrong
    powers = tree.find(nodes.Pow) is not None
    if powers or any(_of_unknown_size(product) for product in tree.find_all(nodes.Mul)):
        what = "powers (**)" if powers else "products of two variables (*)"
        raise ModelError(
            f"The chat template of the surrogate computes {what}, which can take for ever, and which "
            f"no template needs. {_CURE}"
        )


def _of_unknown_size(product: Any) -> bool:
    """Whether both factors are computed; a number that grows by a constant factor only grows slowly."""
    from jinja2.nodes import Const

    return not isinstance(product.left, Const) and not isinstance(product.right, Const)
