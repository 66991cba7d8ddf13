"""What every call through the official SDK shares: the server, the key, and errors in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ropelime.errors import DeclinedError, InputError, ModelError

OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"

_CONNECT = 5.0  # seconds: a server that is not there is told soon, however long an answer may take
_SHORTEST = 8  # characters of a key: what local servers are given for one ("none") is no secret
_LONGEST = 300  # characters of a server's own words in an error
_KEYS = re.compile(r"\bsk-[\w*.…-]{6,}")  # how keys look, also with their middle starred out
_OF_ALL = (401, 403, 404, 408, 429)  # refusals that are not about the question
_AWAY = ("ConnectError", "ConnectTimeout")  # of httpx: nobody has answered at all


def sdk() -> Any:
    """The official SDK, or how to install it."""
    try:
        import openai
    except ImportError:
        raise ModelError("Asking a model needs the SDK: pip install 'ropelime[ask]'") from None
    return openai


def key_of(given: str | None, variable: str = KEY) -> str | None:
    """The key to send: the one given, or that of the environment; None if there is none."""
    key = (given or os.environ.get(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):  # it could not be sent, and errors would show it
        where = "api_key" if given else variable
        raise InputError(
            f"{where} holds a line break or another character that no key has. It may be two keys, or "
            "a file with more in it than the key; give the key alone."
        )
    return key or None


def address(base_url: str, name: str = "base_url", variable: str = KEY) -> str:
    """A server's address; one that holds a password is refused, since addresses are saved."""
    server = base_url.strip().rstrip("/")
    try:
        parts = urlsplit(server)
        secret = bool(parts.username or parts.password or parts.query)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        secret, good = "@" in server, False
    if secret:
        raise InputError(
            f"{name} holds a name, a password or a query, and addresses are saved with the answer. "
            f"Take them out; a key goes into {variable}."
        )
    if not good:
        raise InputError(f"{name} must be an address such as {OPENAI}, not {server!r}.")
    return server


@dataclass(frozen=True)
class Server:
    """Whom to ask, how patiently, and how to speak of it.

    Attributes:
        base_url: Its address.
        key: The key; None for servers that need none.
        timeout: Seconds without a sign of the server after which it is given up.
        retries: How often the SDK asks again when it is busy, fails, is lost or gives no sign in time.
        gives: What is expected of it.
        set_url: Where its address was set, for messages.
        set_key: Where its key was set.
        set_timeout: Where its time was set.
    """

    base_url: str
    key: str | None = field(repr=False)
    timeout: float
    retries: int
    gives: str = "Chat Completions answer"
    set_url: str = "base_url (--base-url)"
    set_key: str = KEY
    set_timeout: str = "timeout=..., --timeout"

    def options(self) -> dict[str, Any]:
        """What a client of the SDK is made with."""
        return {
            "api_key": self.key or "none",
            "base_url": self.base_url,
            "timeout": sdk().Timeout(self.timeout, connect=min(self.timeout, _CONNECT)),
            "max_retries": self.retries,
        }

    @contextmanager
    def told(
        self, model: str, came: Callable[[], int] = lambda: 0, change: str = "Change what is asked."
    ) -> Iterator[None]:
        """Turn whatever goes wrong into an error that says what happened and what to do.

        The key is not in it. Everything is caught: the SDK lets errors of its HTTP library and of its
        JSON reader through.

        Args:
            model: The model that is asked.
            came: Says how many characters of an answer have come.
            change: What to do where the server refuses what is asked.
        """
        try:
            yield
        except Exception as error:
            told = self._masked(self._wrong(error, model, came(), change))
            status = getattr(error, "status_code", None)
            declined = isinstance(status, int) and 400 <= status < 500 and status not in _OF_ALL
            raise (DeclinedError if declined else ModelError)(told) from None

    def _wrong(self, error: Exception, model: str, came: int, change: str) -> str:
        """What happened, in plain words."""
        openai, server = sdk(), self.base_url
        if came:
            return (
                f"The answer of {model} at {server} broke off after {came} characters "
                f"({self._words(error)}). Nothing of it was kept; ask again."
            )
        if isinstance(error, TypeError) and "keyword argument" in str(error):
            return (
                f"The SDK does not take this call, and nothing was sent: {self._words(error)}. What "
                "only this server knows goes into extra_body (--sampling 'extra_body={...}')."
            )
        tries = _tries(error)
        if isinstance(error, openai.APITimeoutError) and not away(error):
            return (
                f"{server} gave no sign within {self.timeout:g} s{tries}. Allow more "
                f"({self.set_timeout}), or ask again later."
            )
        if isinstance(error, openai.APIConnectionError):
            why = self._words(error.__cause__ or error)
            return f"{server} cannot be reached{tries}: {why}. Check {self.set_url} and the network."
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or isinstance(error, openai.APIResponseValidationError):
            return (
                f"{server} gave something that is no {self.gives} ({self._words(error)}). Check "
                f"{self.set_url}, which often ends in /v1."
            )
        if status == 401:  # servers repeat the key in what they say here
            return f"{server} refused the key (401). Check {self.set_key}, or api_key=..."
        cure = {
            403: f"The key in {self.set_key} may not use this model, or not from here.",
            404: f"Check the model's name ({model!r}) and {self.set_url}.",
            429: "Too many requests, or the credit is used up: ask again later.",
        }
        todo = cure.get(status, "Ask again later." if status >= 500 else change)
        return f"{server} answered {status}{tries}: {self._words(error)}. {todo}"

    def _words(self, error: BaseException) -> str:
        """One line of what an error or a server says."""
        body = getattr(error, "body", None)
        said = body.get("message") or body.get("detail") if isinstance(body, Mapping) else body
        text = said if isinstance(said, str) and said else str(error)
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split()).rstrip(".")
        text = self._masked(text) or type(error).__name__  # before it is cut, or half a key is left
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

    def _masked(self, text: str) -> str:
        return _KEYS.sub("[key]", hidden(text, self.key))


def away(error: BaseException) -> bool:
    """Whether the error of the SDK says that nobody has answered at all."""
    return type(error.__cause__).__name__ in _AWAY


def choice_of(completion: Any) -> Any:
    """The one choice of an answer, or an error for :meth:`Server.told`."""
    choices = getattr(completion, "choices", None)
    if not choices:
        error = getattr(completion, "error", None)  # some servers say "200, an error"
        raise ValueError(error.get("message") if isinstance(error, dict) else "it has no choices")
    return choices[0]


def _tries(error: Exception) -> str:
    """How often the SDK asked; it writes that into the last request's header."""
    headers = getattr(getattr(error, "request", None), "headers", {})
    again = str(headers.get("x-stainless-retry-count", "0"))
    return f" ({int(again) + 1} tries)" if again.isdecimal() and int(again) else ""


def hidden(text: str, key: str | None) -> str:
    """The text without the key, should somebody have put it there."""
    return text.replace(key, "[key]") if key is not None and len(key) >= _SHORTEST else text


def split_at_key(text: str, key: str | None) -> tuple[str, str]:
    """What can be shown of a text that goes on, and its end that may turn out to begin the key."""
    if key is None or len(key) < _SHORTEST:
        return text, ""
    longest = next((k for k in range(len(key) - 1, 0, -1) if text.endswith(key[:k])), 0)
    return text[: len(text) - longest], text[len(text) - longest :]
