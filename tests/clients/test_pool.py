"""The pool of requests: bounded, in order, and cancelled as a whole."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, wait
from functools import partial

import pytest

from ropelime.clients.pool import Pool


async def forever() -> None:
    await asyncio.sleep(600)


def test_results_come_back() -> None:
    async def double(number: int) -> int:
        return 2 * number

    with Pool(2) as pool:
        futures = [pool.submit(partial(double, n)) for n in range(5)]
        assert [future.result(10) for future in futures] == [0, 2, 4, 6, 8]


def test_never_more_at_once_than_its_size() -> None:
    now = most = 0
    order: list[int] = []

    async def count(number: int) -> None:
        nonlocal now, most
        order.append(number)
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    with Pool(3) as pool:
        wait([pool.submit(partial(count, n)) for n in range(9)], 10)
    assert most == 3
    assert order == list(range(9))


def test_closing_cancels_what_runs_and_what_waits() -> None:
    ended: list[str] = []

    async def client() -> None:
        ended.append("client")

    async def stuck() -> None:
        try:
            await forever()
        finally:
            ended.append("request")

    pool = Pool(1, cleanup=client)
    running, waiting = pool.submit(stuck), pool.submit(stuck)
    time.sleep(0.05)
    pool.close()
    pool.close()  # once more does no harm
    for future in (running, waiting):
        with pytest.raises(CancelledError):
            future.result(0)
    assert ended == ["request", "client"], "what they share is closed after them"
    assert not [t for t in threading.enumerate() if t.name == "ropelime-requests"]


def test_a_stream_yields_what_arrives() -> None:
    async def say(words: list[str], put: Callable[[str], None]) -> None:
        for word in words:
            put(word)

    with Pool(1) as pool:
        words = list(pool.stream(partial(say, ["a", "b"]), partial(say, []), partial(say, ["c"])))
        assert [word for word in words if word is not None] == ["a", "b", "c"]
        assert list(pool.stream()) == []


def test_a_stream_says_when_all_of_it_is_taken() -> None:
    """Whoever is slow gets what has arrived in the meantime before the next None."""
    said = threading.Event()

    async def say(put: Callable[[str], None]) -> None:
        for word in "abc":
            put(word)
        said.set()
        await forever()

    with Pool(1) as pool:
        stream = pool.stream(say)
        first = next(item for item in stream if item is not None)
        assert said.wait(5)
        assert [first, next(stream), next(stream), next(stream)] == ["a", "b", "c", None]


def test_a_stream_yields_none_while_nothing_arrives() -> None:
    async def silent(_: Callable[[str], None]) -> None:
        await forever()

    with Pool(1) as pool:
        assert next(pool.stream(silent)) is None


def test_the_first_error_is_raised() -> None:
    async def fail(put: Callable[[str], None]) -> None:
        put("before")
        raise ValueError("broken")

    async def silent(_: Callable[[str], None]) -> None:
        await forever()

    with Pool(2) as pool:
        arriving = pool.stream(silent, fail)
        assert next(arriving) == "before"
        with pytest.raises(ValueError, match="broken"):
            next(item for item in arriving if item is not None)


def test_a_program_that_ends_waits_for_nobody() -> None:
    code = "import asyncio; from functools import partial; from ropelime.clients.pool import Pool\n"
    code += "pool = Pool(2)\n"
    code += "asked = [pool.submit(partial(asyncio.sleep, 600)) for _ in range(4)]\n"
    code += "assert not asked[0].done()\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    code += "pool.close(); assert asked[3].cancelled()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
