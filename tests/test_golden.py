"""Explanations that were made before the code was rearranged, made again: they must be equal.

After a change of the method, ``PYTHONPATH=tests python tests/test_golden.py tiny-evidence tiny-span``
writes the named ones anew and leaves the bytes of all others.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golden_cases
import ropelime
from conftest import byte_level, tiny_model
from ropelime.options import PRESETS, Preset
from ropelime.results.serialization import from_dict
from ropelime.results.verdicts import WARNED
from ropelime.surrogate import FunctionSurrogate
from ropelime.surrogate.local import LocalSurrogate

FILE = Path(__file__).with_name("golden.json.gz")
CASES = golden_cases.cases()
RECORDED = ("name", "architecture", "dtype")  # of a surrogate; releases and devices differ
WORDS = ("text", "notes", "warnings")  # what is said may be said better
# Fields that older files do not have, as they are where nothing fills them.
LATER: dict[str, Any] = {"signals": {}, "attention": None, "verified": None}


@cache
def golden() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return data


@cache
def surrogate(kind: str) -> Any:
    if kind in ("function", "second"):
        return FunctionSurrogate(getattr(golden_cases, kind), name=kind)
    if kind == "smollm2":
        return ropelime.load_surrogate("smollm2", device="cpu", dtype="float32")
    model = tiny_model("llama" if kind == "tiny" else "qwen3").model
    return LocalSurrogate(model, byte_level("chatml"), name=kind)


def pinned() -> dict[str, Preset]:
    """The presets, but with weights of the signals that do not change when they are learnt again."""
    target = golden_cases.EVIDENCE
    return {**PRESETS, "evidence": replace(PRESETS["evidence"], target=target)}


def comparable(value: Any, key: str = "") -> Any:
    """What must be equal: arrays as arrays, without words, releases and devices."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in LATER or v != LATER[k]}
        if set(value) == {"shape", "float64"}:
            return np.frombuffer(base64.b64decode(value["float64"])).reshape(value["shape"])
        if key == "surrogate":
            return {name: value.get(name) for name in RECORDED if name in value}
        return {k: comparable(v, k) for k, v in value.items() if k not in (*WORDS, "ropelime")}
    if isinstance(value, list):
        if value and all(isinstance(each, float) for each in value):
            return np.array(value)
        one = key.removesuffix("s") if key == "surrogates" else ""
        return [comparable(each, one) for each in value]
    return value


def check(ours: Any, theirs: Any, path: str = "") -> None:
    assert type(ours) is type(theirs) or {type(ours), type(theirs)} == {int, float}, path
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), path
        for key, value in theirs.items():
            check(ours[key], value, f"{path}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), path
        for number, value in enumerate(theirs):
            check(ours[number], value, f"{path}[{number}]")
    elif isinstance(theirs, (np.ndarray, float)):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3, err_msg=path)
    else:
        assert ours == theirs, path


def test_every_case_has_its_file() -> None:
    assert set(golden()) == set(CASES)
    assert len(CASES) >= 24


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.real_model] if name.startswith("smollm2") else [])
        for name in CASES
    ],
)
def test_an_explanation_is_what_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for preset, strategies in pinned().items():
        monkeypatch.setitem(PRESETS, preset, strategies)
    e = golden_cases.make(CASES[name], surrogate, ropelime.explain)
    made = json.loads(e.to_json())
    check(comparable(made), comparable(golden()[name]), name)


@pytest.mark.parametrize("name", CASES)
def test_no_interval_from_nothing_to_everything_beside_a_high_trust(name: str) -> None:
    e = from_dict(golden()[name])
    assert e.trust is not None
    assert e.normalized_intervals is not None
    low, high = e.normalized_intervals.T
    assert e.trust.value <= WARNED or not ((low <= 0) & (high >= 1)).any()


if __name__ == "__main__":
    PRESETS.update(pinned())  # type: ignore[attr-defined]
    data = golden()
    for chosen in sys.argv[1:]:
        made = golden_cases.make(CASES[chosen], surrogate, ropelime.explain)
        data[chosen] = json.loads(made.to_json())
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))
