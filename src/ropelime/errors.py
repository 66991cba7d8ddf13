"""Errors that say what came, what was expected and what to do about it."""


class RopeLimeError(Exception):
    """Anything that ropelime refuses to do, with the cause and the cure in its message."""


class InputError(RopeLimeError, ValueError):
    """What the caller passed cannot be explained as it is."""


class NoTokenizerError(InputError):
    """A surrogate was asked for its tokens and has no tokenizer."""


class ModelError(RopeLimeError, RuntimeError):
    """A model could not be fetched, loaded, asked or trusted to score."""


class DeclinedError(ModelError):
    """A server that answers has refused this one question, or had nothing to say to it."""


# What can be wrong with one input of many. Anything else (a device that is lost, a disk) ends them all.
FORGIVEN = (RopeLimeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


def worded(error: BaseException | None) -> str:
    """What went wrong, in words; an error that was not foreseen with its name."""
    return str(error) if isinstance(error, RopeLimeError) else f"{type(error).__name__}: {error}"


def first_line(error: BaseException, most: int = 200) -> str:
    """The beginning of what another library's error says."""
    return str(error).strip().split("\n")[0][:most]
