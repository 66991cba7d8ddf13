"""What all calls through the official SDK share: the server, the key, and readable errors."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ropelime.clients.bounds import ResponseTooLarge, bound
from ropelime.clients.masking import MASK, hidden
from ropelime.errors import DeclinedError, InputError, ModelError
from ropelime.text.display import shorten

OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"

_MOST_RETRIES = 100
_CONNECT_TIMEOUT = 5.0  # seconds: a missing server is reported soon, however long an answer may take
_LONGEST_VALUE = 40  # characters of a value that is refused
_LONGEST_MESSAGE = 300  # characters of a server's own message in an error
_KEYS = re.compile(r"\bsk-[\w*.…-]{6,}")  # how keys look, also with their middle starred out
_NOT_THIS_REQUEST = (401, 403, 404, 408, 429)  # refusals that would hit any other request too
_UNREACHABLE = ("ConnectError", "ConnectTimeout")  # of httpx


def sdk() -> Any:
    """The official SDK, or how to install it."""
    try:
        import openai
    except ImportError:
        raise ModelError("Asking a model needs the SDK: pip install 'ropelime[ask]'") from None
    return openai


def key_of(given: str | None, variable: str = KEY) -> str | None:
    """The key to send: the given one, or that of the environment; None if there is none."""
    key = (given or os.environ.get(variable) or "").strip()
    if not (key.isascii() and key.isprintable()):  # it cannot be sent, and errors would show it
        where = "api_key" if given else variable
        raise InputError(
            f"{where} holds a line break or another character that keys do not have. It may be two "
            "keys, or a file with more in it than the key; pass the key alone."
        )
    return key or None


def address(base_url: str, name: str = "base_url", variable: str = KEY) -> str:
    """A server's address without secrets: addresses are saved with the answer."""
    server = base_url.strip().rstrip("/")
    try:
        parts = urlsplit(server)
        secret = bool(parts.username or parts.password or parts.query)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        secret, good = "@" in server, False
    if secret:
        raise InputError(
            f"{name} holds a user name, a password or a query, and addresses are saved with answers. "
            f"Remove them; a key goes into {variable}."
        )
    if not good:
        raise InputError(f"{name} must be an address such as {OPENAI}, not {server!r}.")
    return server


def check_retries(retries: Any) -> None:
    """Refuse anything but a whole number of retries that is not too large: each waits for seconds."""
    whole = isinstance(retries, int) and not isinstance(retries, bool)
    if not (whole and 0 <= retries <= _MOST_RETRIES):
        given = _number(retries) if whole else shorten(repr(retries), _LONGEST_VALUE)
        raise InputError(f"retries must be a whole number from 0 to {_MOST_RETRIES}, not {given}.")


def _number(value: int) -> str:
    """A number, or how many digits it has: Python refuses to write out those of thousands."""
    if abs(value) < 10**_LONGEST_VALUE:
        return str(value)
    power = round(math.log10(abs(value)))
    sign = "negative " if value < 0 else ""
    return f"a {sign}number of {power + (abs(value) >= 10**power):,} digits"


@dataclass(frozen=True)
class Server:
    """A server, how to reach it, and how error messages refer to its settings."""

    base_url: str
    key: str | None = field(repr=False)
    timeout: float  # seconds without data from the server after which a request fails
    retries: int  # how often the SDK repeats a request that failed or timed out
    gives: str = "Chat Completions answer"
    set_url: str = "base_url (--base-url)"
    set_key: str = KEY
    set_timeout: str = "timeout=..., --timeout"

    def client(self, retries: int | None = None) -> Any:
        """The SDK's client of this server."""
        return sdk().AsyncOpenAI(
            api_key=self.key or "none",
            base_url=self.base_url,
            timeout=sdk().Timeout(self.timeout, connect=min(self.timeout, _CONNECT_TIMEOUT)),
            max_retries=self.retries if retries is None else retries,
            default_headers={"Accept-Encoding": "identity"},
            # Another host must not get the prompt, and a GET in its place would be another question.
            http_client=sdk().DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"response": [bound]}
            ),
        )

    @contextmanager
    def readable_errors(
        self, model: str, received: Callable[[], int] = lambda: 0, cure: str = "Change the request."
    ) -> Iterator[None]:
        """Turn any error into one that says what happened and what to do, without the key.

        Everything is caught: errors of the HTTP library and of the JSON parser pass through the SDK.
        ``received`` returns how many characters of an answer have arrived; ``cure`` is what to do
        where the server refuses the request.
        """
        try:
            yield
        except Exception as error:
            message = self._masked(self._message(error, model, received(), cure))
            status = getattr(error, "status_code", None)
            declined = status in range(400, 500) and status not in _NOT_THIS_REQUEST
            raise (DeclinedError if declined else ModelError)(message) from None

    def _message(self, error: Exception, model: str, received: int, cure: str) -> str:
        openai, server = sdk(), self.base_url
        if isinstance(error.__cause__, ResponseTooLarge):  # for the SDK it is one of the connection
            error = error.__cause__
        if received:
            return (
                f"The answer of {model} at {server} broke off after {received} characters "
                f"({self._words(error)}). Nothing of it was kept; try again."
            )
        if isinstance(error, TypeError) and "keyword argument" in str(error):
            return (
                f"The SDK does not accept this call, and nothing was sent: {self._words(error)}. "
                "Parameters of this server alone go into extra_body (--sampling 'extra_body={...}')."
            )
        headers = getattr(getattr(error, "request", None), "headers", {})
        again = str(headers.get("x-stainless-retry-count", "0"))  # the SDK adds it
        tries = f" ({int(again) + 1} tries)" if again.isdecimal() and int(again) else ""
        if isinstance(error, openai.APITimeoutError) and not is_unreachable(error):
            return (
                f"{server} sent nothing within {self.timeout:g} s{tries}. Raise the timeout "
                f"({self.set_timeout}), or try again later."
            )
        if isinstance(error, openai.APIConnectionError):
            why = self._words(error.__cause__ or error)
            return f"{server} cannot be reached{tries}: {why}. Check {self.set_url} and the network."
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or isinstance(error, openai.APIResponseValidationError):
            return (
                f"{server} returned something other than a {self.gives} ({self._words(error)}). Check "
                f"{self.set_url}, which often ends in /v1."
            )
        if status in range(300, 400):
            headers = getattr(getattr(error, "response", None), "headers", {})
            place = self._line(str(headers.get("location", "")))
            return (
                f"{server} answered {status} and sends callers elsewhere: {shorten(place, 200)!r}. "
                f"Prompts go only to the address that you name. If you trust that one, name it: "
                f"{self.set_url}."
            )
        if status == 401:  # servers repeat the key in this message
            return f"{server} refused the key (401). Check {self.set_key}, or api_key=..."
        cures = {
            403: f"The key in {self.set_key} may not use this model, or not from here.",
            404: f"Check the model's name ({model!r}) and {self.set_url}.",
            429: "Too many requests, or the credit is used up: try again later.",
        }
        cure = cures.get(status, "Try again later." if status >= 500 else cure)
        return f"{server} answered {status}{tries}: {self._words(error)}. {cure}"

    def _words(self, error: BaseException) -> str:
        """The message of an error or of a server, on one line."""
        body = getattr(error, "body", None)
        message = body.get("message") or body.get("detail") if isinstance(body, Mapping) else body
        text = message if isinstance(message, str) and message else str(error)
        text = self._line(text).rstrip(".") or type(error).__name__
        return shorten(text, _LONGEST_MESSAGE)

    def _line(self, text: str) -> str:
        """What a server sent, without the key and what disturbs a terminal."""
        text = self._masked(text)  # before it is cut, or half a key is left
        return "".join(c if c.isprintable() else " " for c in text).strip()

    def _masked(self, text: str) -> str:
        return _KEYS.sub(MASK, hidden(text, self.key))


def is_unreachable(error: BaseException) -> bool:
    """Whether an error of the SDK says that no connection could be made."""
    return type(error.__cause__).__name__ in _UNREACHABLE


def choice_of(completion: Any) -> Any:
    """The first choice of an answer, or an error for :meth:`Server.readable_errors`."""
    choices = getattr(completion, "choices", None)
    if not choices:
        error = getattr(completion, "error", None)  # some servers send errors with status 200
        raise ValueError(error.get("message") if isinstance(error, dict) else "it has no choices")
    return choices[0]
