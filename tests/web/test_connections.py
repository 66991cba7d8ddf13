"""Connections that send too little, read too little or are too many, and the log of it all."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from ropelime.web import connections
from ropelime.web.log import Bounded, Short
from web_server import PLAIN, Slow, finished, live, settings, until


def plug(client: httpx.Client, sent: bytes = b"") -> socket.socket:
    """A connection that has sent this much."""
    made = socket.create_connection((client.base_url.host, client.base_url.port or 80), 10)
    made.sendall(sent)
    return made


def ended(plugged: socket.socket) -> bytes:
    """What comes before the server hangs up."""
    came = b""
    try:
        while piece := plugged.recv(65536):
            came += piece
    except ConnectionError:
        pass
    return came


def trickle(plugged: socket.socket, sent: bytes) -> None:
    """Send little by little, for longer than a server should wait."""
    for _ in range(99):
        plugged.sendall(sent)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    hurried = {"head_seconds": 0.4, "body_seconds": 0.4, "read_seconds": 0.4}
    with live(settings(tmp_path_factory.mktemp("history"), connections=8, **hurried)) as (client, _):
        yield client


HOST = b"host: 127.0.0.1\r\n"
POST = (
    b"POST /api/jobs HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\ncontent-length: 99\r\n"
)


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n" + HOST],
    ids=["nothing", "a letter", "a line", "no end"],
)
def test_half_a_head_is_not_waited_for(client: httpx.Client, sent: bytes) -> None:
    with plug(client, sent) as plugged:
        assert ended(plugged) == b""


def test_a_head_that_trickles_in_does_not_gain_time(client: httpx.Client) -> None:
    with plug(client, b"GET / HTTP/1.1\r\n") as plugged, pytest.raises(ConnectionError):
        trickle(plugged, b"a: b\r\n")


def test_half_a_second_head_is_not_waited_for(client: httpx.Client) -> None:
    with plug(client, b"GET /api/config HTTP/1.1\r\n" + HOST + b"\r\n") as plugged:
        assert plugged.recv(15) == b"HTTP/1.1 200 OK"
        plugged.sendall(b"GET / HT")
        assert b"surrogates" in ended(plugged)


def test_a_body_that_does_not_come_is_not_waited_for(client: httpx.Client) -> None:
    with plug(client, POST + b"\r\n{") as plugged:
        answer = ended(plugged)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"longer to arrive than 0.4 seconds" in answer


def test_a_body_that_nobody_reads_is_not_waited_for(client: httpx.Client) -> None:
    """A request that is refused by its head, or a GET with a body."""
    for head in (POST.replace(b"127.0.0.1", b"evil.example"), POST.replace(b"POST", b"GET")):
        with plug(client, head + b"\r\n") as plugged:
            assert plugged.recv(9) == b"HTTP/1.1 "
            with pytest.raises(ConnectionError):
                trickle(plugged, b"x")


def test_a_client_that_does_not_read_is_not_waited_for(client: httpx.Client) -> None:
    ask = b"GET /static/app.js HTTP/1.1\r\n" + HOST + b"\r\n"
    with socket.socket() as plugged:
        plugged.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plugged.connect((client.base_url.host, client.base_url.port or 80))
        plugged.settimeout(10)
        plugged.sendall(ask * 300)  # 10 MB to come: more than any buffer
        time.sleep(1.5)
        with pytest.raises(ConnectionError):
            trickle(plugged, ask)


def test_who_waits_longest_makes_room(client: httpx.Client) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(plug(client, b"GET /")) for _ in range(30)]
        for _ in range(5):
            assert httpx.get(f"{client.base_url}/api/config", timeout=10).status_code == 200
        assert ended(idle[0]) == b""


def test_where_all_are_busy_another_is_told(tmp_path: Path) -> None:
    with live(settings(tmp_path, connections=3)) as (client, service):
        service._loaded["tiny"] = Slow(0.1)
        name = client.post("/api/jobs", json={**PLAIN, "prompt": "It is so. " * 40}).json()["id"]
        follow = f"GET /api/jobs/{name}/events HTTP/1.1\r\n".encode() + HOST + b"\r\n"
        with ExitStack() as stack:
            for _ in range(3):
                stream = stack.enter_context(plug(client, follow))
                assert stream.recv(15) == b"HTTP/1.1 200 OK"
            with plug(client) as plugged:
                assert ended(plugged).startswith(b"HTTP/1.1 503 ")
        until(lambda: httpx.get(f"{client.base_url}/api/config").status_code == 200)
        client.delete(f"/api/jobs/{name}")


def test_the_server_still_works(client: httpx.Client) -> None:
    assert finished(client, PLAIN)["state"] == "done"


def test_files_are_left_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for soft, most in ((1024, 512), (400, 144), (100, 1), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections.affordable(512) == most


# --- the log


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "", 0, text, (), None)


def test_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    bounded = Bounded(burst=5, per_minute=6)
    assert sum(bounded.filter(record("a")) for _ in range(1000)) == 5
    now = 9.0
    assert not bounded.filter(record("b"))
    now = 20.0
    last = record("100% c")
    assert bounded.filter(last)
    assert last.getMessage() == "(996 records before this one were left out.) 100% c"
    now = 10_000.0
    assert sum(bounded.filter(record("d")) for _ in range(1000)) == 5


def test_a_long_record_is_cut() -> None:
    text = Short().format(record("begin " + "x" * 100_000 + " end"))
    assert len(text) < 4100
    assert text.startswith("begin")
    assert text.endswith("end")
