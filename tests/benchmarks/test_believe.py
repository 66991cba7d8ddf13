"""Whether the numbers can be believed: coverage of intervals, and what luck does to calibration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_toy import entry, write_hotpotqa
from benchmarks.believe import intervals, masks, page
from benchmarks.store import Store, read
from ropelime.explain import Explanation, explain_many
from ropelime.options import Options
from ropelime.steps import Task
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split

Tiny = Callable[..., LocalSurrogate]
LINE = "one two three four five six seven eight nine ten eleven twelve."


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[masks.Masked]:
    monkeypatch.setattr(masks, "_UNSEEN", 0)
    short, facts = [f"{LINE} Done.", "More is there."], [("A", 0)]
    entries = [entry(str(i), short, ["B."], facts) for i in range(4)]
    return list(masks.prompts(write_hotpotqa(tmp_path / "hotpot.json", entries)))


def test_prompts_have_as_many_parts_as_their_shape_allows(items: list[masks.Masked]) -> None:
    counts = [(item.features, len(split(item.prompt, item.features))) for item in items]
    assert counts == [("sentence", 2), ("word", 12), ("sentence", 2), ("sentence", 2)]
    assert all(item.fit for item in items), "the first dozen set the widths"


def test_a_row_gives_back_the_fit_of_its_preset(
    items: list[masks.Masked], tiny: Tiny, tmp_path: Path
) -> None:
    model = tiny("llama")
    store = Store(tmp_path / "rows.jsonl", {"bench": "believe", "kind": "masks"}, masks.FITTED)
    masks.run(items[:1], model, store)
    _, rows = read(tmp_path / "rows.jsonl")
    assert [row["method"] for row in rows] == ["faithful", "paper"]
    for row in rows:
        options = Options(preset=row["method"], features=items[0].features)
        (e,) = explain_many([Task(items[0].prompt, items[0].output, options)], [model])
        assert isinstance(e, Explanation)
        assert e.intervals is not None
        found = masks.unpacked(row)
        assert len(row["aim"]) == row["features"] == 2
        assert row["aim_half"] == [0, 0], "all masks were scored"
        np.testing.assert_allclose(found.weights, e.weights, atol=1e-4)
        np.testing.assert_allclose(2 * found.half_width, np.ptp(e.intervals, axis=1), atol=1e-3)
    before = store.done.copy()
    masks.run(items[:1], model, store)  # it is there already
    assert store.done == before


def row(off: float, **known: Any) -> dict[str, Any]:
    """A row of all masks of two parts, whose weights are 2 and 1, and a reference that is off."""
    every = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    return {
        "method": "faithful", "features": 2, "fit": False, "distances": None,
        "masks": [np.packbits(mask).tobytes().hex() for mask in every],
        "exact": np.packbits(np.ones(4, bool)).tobytes().hex(),
        "values": (-(every @ np.array([2.0, 1.0]))).tolist(),
        "aim": [2.0 + off, 1.0], "aim_half": [0.0, 0.0], **known,
    }  # fmt: skip


def test_an_interval_holds_what_is_near() -> None:
    near, far = intervals.held(row(0.0)), intervals.held(row(9.0))
    assert near[0].tolist() == [True, True]
    assert far[0].tolist() == [False, True]
    assert intervals.held(row(9.0, aim_half=[9.5, 0.0]))[0].all(), "the reference is uncertain too"
    file = (Path("rows"), {"kind": "masks", "preset": None}, [row(0.0), row(9.0), row(0.0, fit=True)])
    table = intervals.fitted([file])
    assert "| faithful | 2 to 10 | by others | 2 | 4 | 75.0% [50%, 100%] |" in table
    assert "| faithful | 2 to 10 | by these | 1 | 2 | 100.0% [100%, 100%] |" in table


def test_shares_are_held_against_what_was_lost() -> None:
    lost = {"features": 20, "fit": False, "lost": [1.0, 0.0], "intervals": [[0.5, 1.0], [0.1, 0.2]]}
    table = intervals.shares([(Path("rows"), {"kind": "asked", "preset": "evidence"}, [lost])])
    assert "| evidence | 20 to 39 | by others | 1 | 2 | 50.0%" in table


def test_perfect_chances_have_an_error_that_falls_with_their_number() -> None:
    rng = np.random.default_rng(0)
    few, many = (page._by_chance(rng.random(count)) for count in (67, 1000))
    assert 0.06 < few.mean() < 0.1
    assert many.mean() < 0.03
    assert page._by_chance(np.array([0.0, 1.0] * 20)).max() == 0, "nothing is left to luck"
