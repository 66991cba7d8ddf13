"""What the tests of the web server share: a tiny model on the disk, requests, and a real server."""

from __future__ import annotations

import os
import re
import signal
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

from conftest import byte_level, tiny_model
from ropelime.web.settings import Limits, Settings

SENTENCES = ("Paris is the capital of France. ", "It lies on the Seine. ", "Berlin has many museums. ")
PLAIN: dict[str, Any] = {
    "prompt": "".join(SENTENCES),
    "output": "The capital is Paris.",
    "model": "tiny",
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
    tiny_model("llama", max_position_embeddings=4096).model.save_pretrained(folder)
    byte_level("chatml").save_pretrained(folder)
    return folder


def settings(history: Path, **options: Any) -> Settings:
    """Settings of a server with the tiny model; limits are given by their names."""
    names = set(Limits.__dataclass_fields__)
    limits = {name: options.pop(name) for name in names & options.keys()}
    chosen = {"models": {"tiny": str(tiny_folder())}, "limits": Limits(**limits), **options}
    return Settings(history, **chosen)


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
def serving(history: Path, *arguments: str, model: str | None = None) -> Iterator[Server]:
    """Start ``ropelime serve`` on a free port and stop it in the end."""
    command = [sys.executable, "-m", "ropelime", "serve", "--port", "0", "--history", str(history)]
    command += ["--model", model or str(tiny_folder()), *arguments]
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
