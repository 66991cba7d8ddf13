"""Errors that say what came, what was expected and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RopeLimeError(Exception):
    """Anything that ropelime refuses to do, with the cause and the cure in its message."""


class InputError(RopeLimeError, ValueError):
    """An argument that cannot be used as it is.

    Attributes:
        field: The argument that is wrong, such as ``"question"`` or ``"context.3"``; None where it is
            not known.
    """

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        """Say what is wrong, and with which argument."""
        super().__init__(message)
        self.field = field


class NoTokenizerError(InputError):
    """A surrogate was asked for its tokens and has no tokenizer."""


class ModelError(RopeLimeError, RuntimeError):
    """A model could not be fetched, loaded or queried, or its scores cannot be trusted."""


class DeclinedError(ModelError):
    """A server that works has refused this one request, or returned an empty answer."""


class EmptyAnswerError(DeclinedError):
    """A model has answered, with nothing.

    Attributes:
        usage: The tokens that the server counted, which are paid for.
    """

    def __init__(self, message: str, usage: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.usage = dict(usage or {})


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after which something is left.

    Attributes:
        kept: What was complete by then. From a surrogate, the scores of each request, or None; from
            ``explain``, the explanation that was made out of them.
    """

    def __init__(self, kept: Any) -> None:
        super().__init__("interrupted; what was scored until then is kept")
        self.kept = kept


# What can be wrong with one input of many. Anything else (a lost device, a full disk) ends them all.
FORGIVEN = (RopeLimeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


def worded(error: BaseException | None) -> str:
    """The message of an error; unexpected kinds are preceded by their name."""
    return str(error) if isinstance(error, RopeLimeError) else f"{type(error).__name__}: {error}"


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of another library's error message."""
    return str(error).strip().split("\n")[0][:most]
