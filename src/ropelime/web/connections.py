"""Connections of the server: so many at once, and none that keeps it waiting."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 128  # connections that may wait to be accepted, and are accepted at once
_OTHER_FILES = 128  # open files that are not connections: models, the history, libraries
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-type: text/plain\r\ncontent-length: 46\r\n\r\n"
    b"Too many connections are open. Try again soon."
)


@dataclass(frozen=True)
class Bounds:
    """What connections may take.

    Attributes:
        most: Connections at once.
        head: Seconds for the head of a request to arrive, from its first byte or the connection on.
        read: Seconds for a client to read what it was sent, before more is sent.
    """

    most: int
    head: float
    read: float


class Connection(H11Protocol):
    """One connection, with deadlines; the one that waits longest makes room where all are taken."""

    bounds: ClassVar[Bounds]

    @classmethod
    def within(cls, bounds: Bounds) -> type[Connection]:
        """The class of connections with these bounds."""
        return type(cls.__name__, (cls,), {"bounds": bounds})

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self.since = 0.0  # when it began to wait for a request

    @property
    def busy(self) -> bool:
        """Whether a whole request is being answered."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, at the price of another that waits, or refuse it where all are busy."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._limit("head", self.bounds.head)
        if len(self.connections) <= self.bounds.most:
            return
        others: Any = self.connections - {self}
        there = [each for each in others if not each.transport.is_closing()]
        if len(there) < self.bounds.most:
            return
        waiting = [each for each in there if not each.busy]
        if waiting:  # those first that have never sent a whole request
            min(waiting, key=lambda each: (each.cycle is not None, each.since)).transport.abort()
        else:
            transport.write(_FULL)
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on; the head of a request that has begun must soon be complete."""
        if self.transport.is_closing():
            return
        if not self._answering():
            self._limit("head", self.bounds.head)
        super().data_received(data)
        if self._answering():
            self._unlimit("head")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait until the client has read what was sent, but not for ever."""
        super().pause_writing()
        self._limit("read", self.bounds.read)

    def resume_writing(self) -> None:
        """Send more."""
        self._unlimit("read")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        for what in list(self._deadlines):
            self._unlimit(what)
        super().connection_lost(exc)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _limit(self, what: str, seconds: float) -> None:
        if what not in self._deadlines:
            self._deadlines[what] = self.loop.call_later(seconds, self.transport.abort)

    def _unlimit(self, what: str) -> None:
        if timer := self._deadlines.pop(what, None):
            timer.cancel()


def affordable(most: int) -> int:
    """As many connections as wanted, or as the limit of open files leaves room for."""
    if sys.platform == "win32":
        return most
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, soft - BACKLOG - _OTHER_FILES))
