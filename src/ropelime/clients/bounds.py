"""Responses of servers: so many bytes, in so much time, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from importlib import import_module
from typing import Any, TypeVar

from ropelime.errors import ModelError

T = TypeVar("T")

# Bytes of a response: 250,000 tokens in pieces of their own, or a long prompt's scores.
LARGEST = 64 << 20
_LONGEST = 3600.0  # seconds for a response that never pauses, unless pauses may be longer than that


class ResponseTooLarge(ValueError):
    """A server has sent more than any answer needs, or in a form whose size cannot be known."""


async def bound(response: Any) -> None:
    """Let a response of httpx end with an error where it becomes too large; a hook of its client.

    What is compressed is refused, as a few kilobytes can hold gigabytes. No server has to compress:
    it is asked not to.
    """
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    if packing not in ("", "identity"):
        raise ResponseTooLarge(f"it is compressed ({packing}), which it was asked not to be")
    response.stream = _bounded(response)


async def in_time(response: Awaitable[T], server: str, pause: float) -> T:
    """Wait for a response however slowly it comes, but not for ever; it may pause for so long."""
    longest = max(_LONGEST, pause)
    try:
        return await asyncio.wait_for(response, longest)
    except asyncio.TimeoutError:
        raise ModelError(
            f"{server} was still sending its answer after {longest:,.0f} s. Ask for less, or check "
            "whether it repeats itself."
        ) from None


def _bounded(response: Any) -> Any:
    library = import_module(type(response).__module__.partition(".")[0])  # httpx, or httpx2
    stream = response.stream

    class Bounded(library.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in stream:
                size += len(piece)
                if size > LARGEST:
                    raise ResponseTooLarge(f"it sends more than {LARGEST >> 20} MiB")
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
