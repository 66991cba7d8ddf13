"""What the tests of the web server share: a tiny model on the disk, requests, and a real server."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx

from conftest import byte_level, tiny_model
from ropelime.surrogate import Surrogate, load_surrogate
from ropelime.web.app import create_app
from ropelime.web.server import Server as WebServer
from ropelime.web.service import Service
from ropelime.web.settings import Limits, ServerSettings

SENTENCES = ("Paris is the capital of France. ", "It lies on the Seine. ", "Berlin has many museums. ")
PLAIN: dict[str, Any] = {
    "prompt": "".join(SENTENCES),
    "output": "The capital is Paris.",
    "surrogate": "tiny",
}
DOCUMENTS: dict[str, Any] = {
    "context": ["Paris lies on the Seine.", "Berlin is the capital of Germany."],
    "question": "What lies on the Seine?",
    "output": "Paris lies there. It is large.",
    "features": "document",
}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who painted the picture?"},
    ],
    "output": "Leonardo.",
    "features": "message",
}


@cache
def tiny_folder() -> Path:
    """A tiny random model as files, called ``tiny``; readable by any server."""
    folder = Path(mkdtemp(prefix="ropelime-test-")) / "tiny"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    tiny_model("llama", max_position_embeddings=4096).model.save_pretrained(folder)
    byte_level("chatml").save_pretrained(folder)
    return folder


def settings(history: Path, **options: Any) -> ServerSettings:
    """Settings of a server with the tiny model; limits are given by their names."""
    names = set(Limits.__dataclass_fields__)
    limits = {name: options.pop(name) for name in names & options.keys()}
    chosen = {"surrogates": {"tiny": str(tiny_folder())}, "limits": Limits(**limits), **options}
    return ServerSettings(history, **chosen)


@dataclass
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    token: str | None

    def kill(self) -> None:
        """End it without giving it a chance to do anything."""
        self.process.kill()
        self.process.wait(20)


@contextmanager
def serving(history: Path, *arguments: str, surrogate: str | None = None) -> Iterator[Server]:
    """Start ``ropelime serve`` on a free port and stop it in the end."""
    command = [sys.executable, "-m", "ropelime", "serve", "--port", "0", "--history", str(history)]
    command += ["--surrogate", surrogate or str(tiny_folder()), *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    errors: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reader = threading.Thread(target=lambda pipe: errors.extend(pipe), args=(process.stderr,))
    reader.start()
    try:
        line = process.stdout.readline()
        found = re.match(r"Open (http://[^/]+)/(?:#token=(\S+))?", line)
        assert found, f"{line!r} {errors}"
        yield Server(process, found[1], found[2])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait(20)
        reader.join(5)
        process.stdout.close()
        process.stderr.close()
    assert not any("Traceback" in line for line in errors), "".join(errors)


def until(condition: Any, seconds: float = 20.0) -> Any:
    """Wait for something to be true and give it back."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


@contextmanager
def live(chosen: ServerSettings) -> Iterator[tuple[httpx.Client, Service]]:
    """The application behind a real socket, in a thread of this process, and a client for it."""
    app = create_app(chosen)
    server = WebServer(app, chosen)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        headers = {"authorization": f"Bearer {chosen.token}"} if chosen.token else {}
        try:
            with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
                until(lambda: server.started)
                yield client, app.state.service
        finally:
            server.should_exit = True
            thread.join(20)


def finished(client: httpx.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Ask for an explanation and wait until its job is over."""
    answer = client.post("/api/jobs", json=request)
    assert answer.status_code == 202, answer.text
    return wait(client, answer.json()["id"])


def wait(client: httpx.Client, name: str) -> dict[str, Any]:
    """Wait until a job is over."""

    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/api/jobs/{name}").json()
        return found if found["state"] in ("done", "failed", "cancelled") else None

    state: dict[str, Any] = until(over, 60)
    return state


class Slow(Surrogate):
    """A surrogate that waits before each batch, so that a test meets it in the middle of its work."""

    def __init__(self, pause: float = 0.05) -> None:
        self.inner = load_surrogate(str(tiny_folder()))
        self.pause = pause
        self.scores = 0
        self.name = "slow"

    def token_spans(self, prompt: Any) -> Any:
        return self.inner.token_spans(prompt)

    def prepare(self, *arguments: Any, **options: Any) -> Any:
        scorer: Any = self.inner.prepare(*arguments, **options)
        inner = scorer.score

        def score(masks: Any, **options: Any) -> Any:
            if len(masks) < 3:  # nothing but the full prompt, and that with no feature
                return inner(masks, **options)
            progress = options.pop("progress")

            def report(done: int, total: int) -> None:
                self.scores += 1
                time.sleep(self.pause)
                progress(done, total)

            return inner(masks, **options, progress=report, batch_tokens=1)

        scorer.score = score
        return scorer

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()
