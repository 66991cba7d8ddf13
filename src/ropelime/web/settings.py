"""Settings of a server: where it listens, which surrogates it offers, and its limits."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropelime.errors import InputError
from ropelime.surrogate import is_served


@dataclass(frozen=True)
class Limits:
    """Limits of one request and of all together.

    Attributes:
        request_bytes: Size of a request's body.
        characters: Characters of a prompt, which is split into features before it is queued.
        features: Features of a prompt.
        budget: Masked prompts of one explanation, besides the full and the empty one.
        answer_tokens: Tokens of an answer; memory grows with them.
        seconds: Duration of one explanation.
        waiting: Explanations in the queue; one at a time is running.
        streams: Progress streams that are open at once.
        connections: Connections that are open at once.
    """

    request_bytes: int = 2_000_000
    characters: int = 500_000
    features: int = 500
    budget: int = 1000
    answer_tokens: int = 2000
    seconds: int = 1800
    waiting: int = 16
    streams: int = 64
    connections: int = 512


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server.

    Attributes:
        history: The folder of the history.
        surrogates: Models by the names that users see, at least one; the first is the default.
        running: Options of ``load_surrogate`` for models on this machine.
        host: The address to listen on.
        token: The token that every request to the API must carry; None on loopback.
        allowed_hosts: Host names of the server, besides its address.
        limits: Its limits.
        patience: Seconds without a query after which a job is cancelled.
        grace: The same after its progress stream was closed; a reload of the page takes that long.
        head_seconds: How long the head of a request may take to arrive,
        body_seconds: and how long its body.
        read_seconds: How long a client may take to read a part of a response.
    """

    history: Path
    surrogates: dict[str, str]
    running: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    limits: Limits = Limits()
    patience: float = 60.0
    grace: float = 3.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    read_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not self.surrogates:
            raise InputError("A server needs at least one surrogate.")
        if self.token is None and not is_loopback(self.host):
            raise InputError(f"{self.host} can be reached from other machines: a token is required.")
        if self.token is not None and not re.fullmatch("[!-~]{16,}", self.token):
            raise InputError(
                "A token needs at least 16 printable ASCII characters, without spaces. Omit it to have "
                "one generated."
            )

    @property
    def default_surrogate(self) -> str:
        """The surrogate of a request that names none."""
        return next(iter(self.surrogates))


def default_history() -> Path:
    """The default folder of the history: ``$ROPELIME_DATA``, or the user's data folder."""
    if chosen := os.environ.get("ROPELIME_DATA"):
        return Path(os.path.expanduser(chosen))
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.path.expanduser(base)) / "ropelime"


def labelled(names: list[str]) -> dict[str, str]:
    """Models by the names that users see: the last part of a path, the model's name of an address."""
    labels: dict[str, str] = {}
    for name in names:
        path = os.path.expanduser(name)
        label = os.path.basename(os.path.realpath(path)) if name and os.path.exists(path) else name
        if is_served(name):
            label = name.partition("#")[2].partition("#")[0] or name
        if label in labels and labels[label] != name:
            raise InputError(f"Two models are called {label!r}: {labels[label]} and {name}.")
        labels[label] = name
    return labels


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host or "0.0.0.0", None)}
    except (OSError, UnicodeError):
        raise InputError(f"{host!r} is not an address or a host name of this machine.") from None
    return all(ipaddress.ip_address(str(a).split("%")[0]).is_loopback for a in addresses)
