"""Parts of a model that run in another way for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

Forward = Callable[[Any, Any], Any]


@contextmanager
def running_by(parts: Sequence[Any], forward: Forward) -> Iterator[None]:
    """Let parts run by a function instead of their own; it takes the part and the states."""
    own: list[Any] = [type(part) for part in parts]
    try:
        for part, kind in zip(parts, own, strict=True):
            part.__class__ = _form(kind, forward)
        yield
    finally:
        for part, kind in zip(parts, own, strict=True):
            part.__class__ = kind


def own_forward(part: Any, states: Any) -> Any:
    """What a part gives that is running by a function, had it run by its own."""
    kind: Any = type(part).__mro__[1]
    return kind.forward(part, states)


def has_own_forward(part: Any) -> bool:
    """Whether accelerate, or anybody else, has put another forward into this one part."""
    return "forward" in vars(part)


def is_watched(part: Any) -> bool:
    """Whether somebody looks at what goes into a part or comes out of it, or changes it."""
    return bool(part._forward_hooks or part._forward_pre_hooks)


@cache
def _form(kind: Any, forward: Forward) -> Any:
    """A kind of part that differs from another only in how it runs."""
    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
