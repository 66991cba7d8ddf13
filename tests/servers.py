"""Servers on loopback: a proxy that counts what passes and injects faults, and a real model."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Fault = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers one request: by the next fault of the proxy, else as the server behind it does."""

    proxy: Proxy
    body: dict[str, Any]

    def do_GET(self) -> None:
        proxy = self.proxy
        with proxy.lock:
            proxy.looks += 1
        status = 404 if proxy.models is None else 200
        self.reply(status, json.dumps({"object": "list", "data": proxy.models or []}))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        self.body = json.loads(raw)
        proxy = self.proxy
        with proxy.lock:
            proxy.seen.append(self.body)
            proxy.keys.append(self.headers.get("Authorization", "").removeprefix("Bearer "))
            fault = proxy.faults.pop(0) if proxy.faults else proxy.otherwise
        if fault is not None:
            fault(self)
            return
        assert proxy.upstream is not None, "nobody is behind this proxy"
        there = urlsplit(proxy.upstream)
        connection = http.client.HTTPConnection(there.hostname or "", there.port, timeout=120)
        try:
            headers = {name: self.headers.get(name, "") for name in ("Authorization", "Content-Type")}
            connection.request("POST", self.path, raw, headers)
            reply = connection.getresponse()
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.headers["Content-Type"])
            self.end_headers()
            while piece := reply.read1():
                self.wfile.write(piece)
                self.wfile.flush()
        finally:
            connection.close()

    def reply(self, status: int, body: str, kind: str = "application/json", **headers: str) -> None:
        """A whole answer."""
        data = body.encode()
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(data)), **headers}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """In silence."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Clients that hang up are part of the tests; what else goes wrong, they see themselves."""


class Proxy:
    """Counts the requests that arrive and answers them by faults, in turn, before it forwards any.

    Attributes:
        upstream: The server behind it, if there is one.
        faults: What to do with the next requests.
        otherwise: What to do with the others, instead of forwarding them.
        seen: The bodies that arrived.
        keys: The keys that came with them.
        models: What it says about its models; None if it has no such list.
        looks: How often it was asked about anything else than an answer.
    """

    def __init__(self, upstream: str | None = None, otherwise: Fault | None = None) -> None:
        self.upstream, self.otherwise = upstream, otherwise
        self.faults: list[Fault] = []
        self.seen: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.models: list[dict[str, Any]] | None = None
        self.looks = 0
        self.lock = threading.Lock()
        handler = type("Bound", (Handler,), {"proxy": self})
        self.server = _Quiet(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


# Answers and faults.


def completion(text: str | None, *, finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "stand-in-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
    }


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stand-in-1"}
    return f"data: {json.dumps({**data, 'choices': [choice], **more})}\n\n"


def says(text: str, *, usage: dict[str, int] | None = None, **options: Any) -> Fault:
    """Answer with a text, streamed by words if that is what was asked for."""

    def fault(handler: Handler) -> None:
        whole = completion(text, **options)
        whole["usage"] = usage or whole["usage"]
        if not handler.body.get("stream"):
            handler.reply(200, json.dumps(whole))
            return
        words = [chunk({"content": word}) for word in re.findall(r"\S+\s*|\s+", text)]
        end = chunk({}, options.get("finish", "stop"))
        last = {**whole, "object": "chat.completion.chunk", "choices": []}
        body = "".join(words) + end + f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n"
        handler.reply(200, body, "text/event-stream")

    return fault


def raw(status: int, body: str, kind: str = "application/json", **headers: str) -> Fault:
    """Answer with these bytes."""
    return lambda handler: handler.reply(status, body, kind, **headers)


def busy(status: int = 429, **headers: str) -> Fault:
    """Too busy, or broken; the SDK need not wait long before it asks again."""
    body = json.dumps({"error": {"message": "Come back later.", "type": "busy", "code": None}})
    return raw(status, body, **{"retry_after_ms": "5", **headers})


def slow(seconds: float) -> Fault:
    """Give no sign for a while."""

    def fault(handler: Handler) -> None:
        time.sleep(seconds)
        handler.close_connection = True

    return fault


def cut(handler: Handler) -> None:
    """Hang up without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def endless(head: str, piece: str, *, pause: float = 0.0) -> Fault:
    """Begin an answer and add the same piece until the client hangs up."""

    def fault(handler: Handler) -> None:
        stream = handler.body.get("stream")
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        handler.end_headers()
        handler.wfile.write(head.encode())
        while True:
            handler.wfile.write(piece.encode())
            time.sleep(pause)

    return fault


def cut_after(*pieces: str, length: int | None = 9999) -> Fault:
    """Begin an answer and hang up in the middle of it."""

    def fault(handler: Handler) -> None:
        stream = handler.body.get("stream")
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        if length is not None:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.write("".join(pieces).encode())
        handler.wfile.flush()
        cut(handler)

    return fault


# Real ones.

_TRANSFORMERS = "from transformers.cli.transformers import main; main()"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


@contextmanager
def transformers_serve(model: str, log: str) -> Iterator[str]:
    """``transformers serve`` with a model, as a process of its own; gives its address."""
    command = [sys.executable, "-c", _TRANSFORMERS, "serve", model, "--device", "cpu"]
    environment = {"OMP_NUM_THREADS": "1"}
    with _serving([*command, "--log-level", "warning"], log, environment) as url:
        yield url


@contextmanager
def vllm_serve(python: str, model: str, log: str, *options: str) -> Iterator[str]:
    """vLLM's server in an environment of its own, on the CPU and in float32; gives its address."""
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", model]
    command += ["--dtype", "float32", "--enforce-eager", *options]
    environment = {
        "OMP_NUM_THREADS": "1",  # it has three processes, and more threads would wait for each other
        "PYTHONDONTWRITEBYTECODE": "",  # all of them import the same
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    with _serving(command, log, environment) as url:
        yield url


@contextmanager
def _serving(command: list[str], log: str, environment: dict[str, str]) -> Iterator[str]:
    process, port = _start(command, log, environment)
    try:
        try:
            _wait(process, port, log)
        except AssertionError:
            if process.poll() is None:
                raise
            # It has ended: once more, as somebody else may have taken the port in the meantime.
            process, port = _start(command, log, environment)
            _wait(process, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(
    command: list[str], log: str, environment: dict[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(log, "w") as file:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=file,
            stderr=file,
            env={**os.environ, **_OFFLINE, **environment},
            start_new_session=True,  # so that what it starts can be ended with it
        )
    return process, port


def _wait(process: subprocess.Popen[bytes], port: int, log: str) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
        if process.poll() is not None:
            break
    with open(log) as file:
        raise AssertionError(f"The server did not come up:\n{file.read()[-3000:]}")
