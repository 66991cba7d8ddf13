"""Whatever loads must show: changed files are refused, or appear in every view without an error."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rich.console import Console

from conftest import byte_level, tiny_model
from fuzz.harness import Fuzzer, Step
from fuzz.junk import deep, mutate
from ropelime import Explanation, RopeLimeError, explain, load
from ropelime.results import assertions
from ropelime.results.explanation import with_verified
from ropelime.results.verification import Verified, VerifyingCall
from ropelime.surrogate.local import LocalSurrogate
from ropelime.typing import Floats, Masks
from ropelime.views import html, plots
from ropelime.views.terminal import show, to_svg
from toy import additive, signalled, toy

CHUNKS = [{"text": "Paris is large.", "source": "a.txt"}, {"text": "Berlin is old.", "page": 2}]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"text": "Who?"}, {"text": "Where?"}]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]},
]
ASSERTIONS = [
    {"rests_on": {"document": 0}},
    {"not_rests_on": {"role": "user"}},
    {"rests_on": {"source": "a.txt"}},
    {"rests_on": {"text": "a"}, "of": "yes"},
]


def any_number(masks: Masks) -> Floats:
    """A surrogate of however many features: the later ones matter more, and the first opposes."""
    return np.asarray(masks @ (np.arange(masks.shape[1]) - 0.5) - 9.0)


@cache
def explanations() -> tuple[dict[str, Any], ...]:
    """Explanations of all kinds as data."""
    calls = (
        VerifyingCall("again", (), "yes", "yes", 1.0, False, 0.1),
        VerifyingCall("without", (3,), "yes", "no", 0.2, True, None),
        VerifyingCall("without", (0, 1), "yes", "yes", 0.9, False, 0.1, cached=True),
        VerifyingCall("only", (0, 2), "yes", "", None, None, error="declined"),
    )
    seen = Verified("m", "http://there/v1", {"temperature": 0}, "answer_f1", 0.5, 5, calls, "it ended")
    model = LocalSurrogate(tiny_model("llama").model, byte_level("chatml"), name="tiny")
    made = [
        toy(interactions=True, sampler="exhaustive"),
        toy(surrogate=[additive(), additive()], also="faithful"),
        signalled(),
        with_verified(toy(), seen),
        toy(None, context=CHUNKS, question="?", features="document", surrogate=any_number),
        toy(None, messages=CHAT[:2], features="message", surrogate=any_number),
        toy().for_output(0, 3),
        explain(
            context=CHUNKS, question="What is large?", output="Paris is. Yes.", surrogate=model,
            also="paper", progress=False,
        ),
        explain(messages=CHAT, output="Paris.", surrogate=model, preset="instant", progress=False),
        toy(instead_of="no", surrogate=model, target=None, sampler=None, scoring=None),
    ]  # fmt: skip
    return tuple(json.loads(e.to_json()) for e in made)


def text_of(rng: Random) -> str:
    """A changed file."""
    data = mutate(rng, rng.choice(explanations()), rng.choice([0, 1, 1, 1, 2, 3, 8]))
    text = json.dumps(data, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05:
        text = text.replace('"config": {', f'"config": {{"deep": {deep(rng)}, ', 1)
    if rng.random() < 0.05:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["", "}", '"', ",", "0", "\0"]) + text[at + 1 :]
    return text


def step(rng: Random, folder: Path) -> str:
    """Load one changed file and show it."""
    file = folder / "any.json"
    file.write_bytes(text_of(rng).encode("utf-8", "surrogatepass"))
    try:
        e = load(file)
    except RopeLimeError:
        return "refused"
    views(e, rng)
    return "shown"


def views(e: Explanation, rng: Random) -> None:
    """Everything that displays an explanation, or takes a part of it."""
    assert repr(e)
    shown(e, top=rng.choice([1, 5]))
    assert e._repr_html_()
    cited = e.cite()
    assert str(cited)
    assert cited.to_markdown()
    again = Explanation.of(load_text(e.to_json()))
    assert again == e, "saving is without loss"
    if rng.random() < 0.05:  # matplotlib takes its time
        for figure in (plots.ranked(e), plots.heat_map(e)):
            figure.savefig(io.BytesIO(), format="svg")
    for calculate in (
        lambda: shown(e.for_output(*e.span)),
        lambda: [assertions.check(e, assertions.read(each)) for each in ASSERTIONS],
        lambda: e.extend(2, surrogate=any_number, progress=False),
    ):
        with suppress(RopeLimeError):
            calculate()


def shown(e: Explanation, top: int = 5) -> None:
    """In the terminal, as a picture and as a page."""
    for width in (20, 80, 200):
        for colour in (None, "truecolor"):
            out = io.StringIO()
            kind: Any = {"force_terminal": True, "color_system": colour} if colour else {}
            show(e, top=top, console=Console(file=out, width=width, **kind))
            assert colour or not harmful(out.getvalue()), "control characters reach the terminal"
    assert "<svg" in to_svg(e)
    assert "\x1b" not in html.report(e)


def load_text(text: str) -> Explanation:
    """An explanation from JSON text, through a file as users have it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "again.json").write_text(text, encoding="utf-8")
        return load(Path(folder) / "again.json")


def harmful(text: str) -> bool:
    """Whether text acts on a terminal."""
    return any(c in text for c in "\x1b\x9b\x07\x08\0\r\u202e")


@contextmanager
def start() -> Iterator[Step]:
    """A folder for the file."""
    explanations()
    with tempfile.TemporaryDirectory() as folder:
        yield lambda rng: step(rng, Path(folder))


FUZZER = Fuzzer("saved", start)
