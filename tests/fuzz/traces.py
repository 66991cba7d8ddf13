"""Whatever a trace file holds: it is refused, or its steps can be listed, and explained as they are."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from fuzz.harness import Fuzzer, Step
from fuzz.junk import TEXTS, deep, junk, mutate
from fuzz.saved import harmful
from ropelime import RopeLimeError, Trace, trace
from ropelime.cli import main
from ropelime.text.prompt import read_prompt
from trace_samples import SAMPLES, inspect_zip

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "traces"
_LARGEST = 60_000  # bytes of a stored file that is changed: larger ones take their time


def _stored() -> Iterator[Any]:
    """The files of other tools, where they are."""
    for file in sorted(SHARED.rglob("*.json")):
        if file.stat().st_size < _LARGEST:
            yield json.loads(file.read_text(encoding="utf-8"))


DATA = [*(data for data, _ in SAMPLES.values()), *_stored()]


def content(rng: Random) -> bytes:
    """A changed file."""
    if rng.random() < 0.03:
        return _bytes(rng, inspect_zip())
    data = mutate(rng, _opened(rng, rng.choice(DATA)), rng.choice([0, 1, 1, 2, 3, 8]))
    if rng.random() < 0.1:
        data = rng.choice([[data, junk(rng)], {"data": [data]}, {"x": data}, [data] * 3])
    text = json.dumps(data, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.1:
        lines = [json.dumps(each) for each in (data if isinstance(data, list) else [data])]
        text = "\n".join([*lines, rng.choice(TEXTS), "{"])
    if rng.random() < 0.05:
        text = text.replace('": "', f'": {deep(rng)}, "x": "', 1)
    if rng.random() < 0.1:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(["", "}", '"', ",", "0", "\0", "9" * 5000]) + text[at + 1 :]
    return _bytes(rng, text.encode("utf-8", "surrogatepass"))


def _opened(rng: Random, data: Any) -> Any:
    """The same data with some texts that hold JSON as what they hold, so that this is changed too."""
    if isinstance(data, dict):
        return {key: _opened(rng, value) for key, value in data.items()}
    if isinstance(data, list):
        return [_opened(rng, value) for value in data]
    if isinstance(data, str) and data[:1] in ("[", "{") and rng.random() < 0.5:
        with contextlib.suppress(ValueError):
            changed = mutate(rng, json.loads(data), rng.randrange(3))
            return rng.choice([changed, json.dumps(changed)])
    return data


def _bytes(rng: Random, raw: bytes) -> bytes:
    """The same bytes, cut off, changed, compressed or in another encoding."""
    kind = rng.randrange(20)
    if kind == 0:
        return raw[: rng.randrange(len(raw) + 1)]
    if kind == 1 and raw:
        at = rng.randrange(len(raw))
        return raw[:at] + bytes([rng.randrange(256)]) + raw[at + 1 :]
    if kind == 2:
        packed = gzip.compress(raw, 1)
        return packed[: rng.randrange(len(packed))] if rng.random() < 0.5 else packed
    if kind == 3:
        text = raw.decode("utf-8", "replace")
        return text.encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "latin-1"]), "replace")
    return raw


def step(rng: Random, file: Path) -> str:
    """Read one changed file, and list it."""
    file.write_bytes(content(rng))
    try:
        found = trace(file)
    except RopeLimeError:
        return "refused"
    use(found)
    if rng.random() < 0.05:
        listed(file)
    return "read"


def use(found: Trace) -> None:
    """What is done with steps."""
    assert repr(found)
    assert found.steps
    for one in found:
        assert repr(one)
        assert one.output.encode() or not one.output
        assert [one.output[a:b] for a, b in one.call_spans] == [
            str(call) for call in one.calls if one.kind == "model"
        ]
        assert one.seconds is None or isinstance(one.seconds, float)
        assert found[one.number] is one
        prompt = one.prompt()
        if any(piece.strip() for m in one.messages for piece in (m.content, m.reasoning)):
            assert read_prompt(messages=prompt)


def listed(file: Path) -> None:
    """The command line shows what was read."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["trace", str(file)]) == 0
        assert not harmful(out.getvalue() + err.getvalue())
        assert main(["trace", str(file), "--json", str(file.with_name("steps.json"))]) == 0
    json.loads(file.with_name("steps.json").read_text(encoding="utf-8"))


@contextmanager
def start() -> Iterator[Step]:
    """A folder for the file."""
    with tempfile.TemporaryDirectory() as folder:
        yield lambda rng: step(rng, Path(folder) / "run.json")


FUZZER = Fuzzer("traces", start)
