"""Servers on loopback: a proxy that counts what passes and injects faults, and a real model."""

from __future__ import annotations

import http.client
import json
import os
import re
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
            connection.request("POST", self.path, raw, {"Content-Type": "application/json"})
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


class Proxy:
    """Counts the requests that arrive and answers them by faults, in turn, before it forwards any.

    Attributes:
        upstream: The server behind it, if there is one.
        faults: What to do with the next requests.
        otherwise: What to do with the others, instead of forwarding them.
        seen: The bodies that arrived.
        keys: The keys that came with them.
    """

    def __init__(self, upstream: str | None = None, otherwise: Fault | None = None) -> None:
        self.upstream, self.otherwise = upstream, otherwise
        self.faults: list[Fault] = []
        self.seen: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.lock = threading.Lock()
        handler = type("Bound", (Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
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


# A real one.

_SERVE = "from transformers.cli.transformers import main; main()"


@contextmanager
def transformers_serve(model: str, log: str) -> Iterator[str]:
    """``transformers serve`` with a model, as a process of its own; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVE, "serve", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--device", "cpu", "--log-level", "warning"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=offline)
    try:
        _wait(process, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: str) -> None:
    deadline = time.monotonic() + 240
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
        raise AssertionError(f"transformers serve did not come up:\n{file.read()[-2000:]}")
