"""What the operator of the server chose: where it listens, which models it has, what it refuses."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ropelime.errors import InputError
from ropelime.surrogate import is_served

_TOKEN_LENGTH = 16  # characters of a token that somebody thought of; ours have more


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may cost.

    Attributes:
        request_bytes: Size of a request's body.
        characters: Characters that a prompt may have; cutting it takes time before its turn comes.
        features: Features that a prompt may have.
        budget: Masked prompts that one explanation may read, besides the full and the empty one.
        answer_tokens: Tokens that an answer may have; memory grows with them.
        seconds: How long one explanation may take.
        waiting: Explanations that may wait for their turn; one at a time is made.
        streams: Progress streams that may be open at once.
    """

    request_bytes: int = 2_000_000
    characters: int = 500_000
    features: int = 500
    budget: int = 1000
    answer_tokens: int = 2000
    seconds: int = 1800
    waiting: int = 16
    streams: int = 64


@dataclass(frozen=True)
class Settings:
    """One server.

    Attributes:
        history: The folder that explanations are kept in.
        models: What may be loaded, by the name that users see; the first is the default.
        running: Where and how they run, as ``load_surrogate`` takes it; models behind a server run
            where that runs them.
        host: The address to listen on.
        token: What every request to the API must carry; None where nobody else can reach it.
        allowed_hosts: Names by which browsers may call the server, besides its address.
        limits: What it refuses.
        patience: Seconds after which a job is cancelled that nobody asks about any more.
        grace: The same after its progress stream was closed; a reload of the page takes that long.
    """

    history: Path
    models: dict[str, str] = field(default_factory=lambda: {"smollm2": "smollm2"})
    running: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    limits: Limits = Limits()
    patience: float = 60.0
    grace: float = 3.0

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("A server needs at least one model.")
        if self.token is None and not is_loopback(self.host):
            raise InputError(f"{self.host} can be reached from other machines: a token is needed.")
        if self.token is not None:
            check_token(self.token)

    @property
    def default_model(self) -> str:
        """The model of a request that names none."""
        return next(iter(self.models))


def default_history() -> Path:
    """Where explanations are kept: ``$ROPELIME_DATA``, or the user's data folder."""
    if chosen := os.environ.get("ROPELIME_DATA"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "ropelime"


def labelled(names: list[str]) -> dict[str, str]:
    """Models by the names that users see: of a path its last part, of an address the model's name."""
    found: dict[str, str] = {}
    for name in names:
        path = Path(name).expanduser()
        label = path.resolve().name if name and path.exists() else name
        if is_served(name):
            label = name.partition("#")[2].partition("#")[0] or name
        if label in found and found[label] != name:
            raise InputError(f"Two models are called {label!r}: {found[label]} and {name}.")
        found[label] = name
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host or "0.0.0.0", None)}
    except (OSError, UnicodeError):
        raise InputError(f"{host!r} is no address of this machine, nor a name of one.") from None
    return all(ipaddress.ip_address(str(a).split("%")[0]).is_loopback for a in addresses)


def make_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


def check_token(token: str) -> None:
    """Refuse a token that is short, or that a header cannot carry."""
    if len(token) < _TOKEN_LENGTH or not all("!" <= c <= "~" for c in token):
        raise InputError(
            f"A token needs at least {_TOKEN_LENGTH} printable ASCII characters without spaces. Leave "
            "it out to have one made."
        )
