"""Whether the numbers can be believed: coverage of intervals, and what luck does to calibration."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_toy import entry, write_hotpotqa
from benchmarks.believe import attempts, intervals, masks, page, run, tried
from benchmarks.believe.items import Item
from benchmarks.store import Store, read
from ropelime.explain import Explanation, explain_many
from ropelime.options import Options
from ropelime.steps import Task
from ropelime.surrogate.local import LocalSurrogate
from ropelime.text.features import split
from ropelime.text.prompt import from_context

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
    assert all(item.fit for item in items), "the first prompts set the widths"


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
    file = (Path("rows"), {"kind": "masks", "preset": None}, [row(0.0), row(9.0), row(0.0, fit=True)])
    table = intervals.fitted([file])
    assert "| faithful | 2 to 3 | by others | 2 | 4 | 75.0% [50%, 100%] |" in table
    assert "| faithful | 2 to 3 | by these | 1 | 2 | 100.0% [100%, 100%] |" in table


@pytest.mark.parametrize(
    ("parts", "drawn"),
    [(8, 1), (10, 120 / (10 + 45 + 120)), (16, 120 / (16 + 120)), (60, 0)],
)
def test_the_reference_is_as_uncertain_as_it_left_masks_out(parts: int, drawn: float) -> None:
    """Of 10 parts, 120 masks remove three; the reference of `paper` draws 120 masks of one to three."""
    known = {"features": parts, "method": "paper", "aim_half": [2.0] * parts}
    half = masks.reference_half(known)
    np.testing.assert_allclose(half, 2 * math.sqrt(1 - drawn), rtol=0.01)


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


def test_what_words_tell_of_a_sentence_and_a_span() -> None:
    prompt = from_context(["The red mill burned in 1901.", "Its owner sold cars."], "Who?")
    output = "The mills burned in 1902. Cars were sold by its owner."
    tried = attempts.ByWords(prompt, split(prompt, "document"), output)
    found = tried.measures((0, 25))
    assert found["words that no part has"] == found["numbers that no part has"] == 1
    assert found["pairs of words that no part has"] == 2, "the mill, in 1902"
    assert found["words that the best part lacks"] == 1
    ranked = tried.rankings((26, len(output)))
    assert all(int(weights.argmax()) == 1 for weights in ranked.values())
    assert tried.literal((0, 25), 1, [0]) == (0, 2)


def test_rows_by_words_need_no_model(tmp_path: Path) -> None:
    prompt = from_context(["The mill burned.", "Cars were sold."], "Who?")
    known: dict[str, Any] = {"labels": [((0, 16), "fine")], "sources": [((0, 16), [0])] * 2}
    item = Item("faithbench/1/1", prompt, "document", "The mill burned.", False, "dev", **known)
    store = Store(tmp_path / "rows.jsonl", {"bench": "believe"}, [run.ITEM])
    run.run([item], None, store, preset="words")
    _, (found,) = read(tmp_path / "rows.jsonl")
    assert found["sentences"][0]["label"] == "fine"
    assert found["sources"][0]["tried"]["stems covered"]


def test_tables_of_what_was_tried() -> None:
    inputs = dict.fromkeys(("explained", "covered", "answer_explained", "answer_covered"), 0.5)
    own = [
        {
            "example": f"faithbench/{i // 2}/{i % 2}",
            "sentences": [{"label": ("fine", "unwanted")[i % 2], "inputs": inputs}] * 2,
        }
        for i in range(40)
    ]
    more = [
        {"example": row["example"], "sentences": [{"tried": {"surprise": i % 2}}] * 2}
        for i, row in enumerate(own)
    ]
    table = tried.measures(own, more)
    assert "| surprise | 80 | 1.000 | 1.000 | 1.000 |" in table
    assert "| ours | 80 | 0.500 | 0.500 | 0.500 |" in table
    assert "| of all of them | 80 | 1.000 | 1.000 | 1.000 |" in table
    cited = {"example": "citations/dev/1", "sources": [{"ours": False}, {"ours": True}]}
    words = {"tried": {"stems covered": False}, "literal": [3, 2]}
    rows = [cited, {**cited, "sources": [words] * 2}]
    table = tried.rankings(rows)
    assert "| ours | 1 | 0.000 | – | 0.000 | 1.000 | – | 1.000 |" in table
    assert "| stems covered | 1 | 0.000 | – | 0.000 | 0.000 | – | 0.000 |" in table
    assert tried.misses(rows) == {"elsewhere": "1", "longer": "1"}


def test_of_two_rows_about_one_example_that_of_the_larger_file_counts() -> None:
    header = {"kind": "asked"}
    a, b, c, again = ({"example": name, "new": name == "again"} for name in ("a", "b", "c", "again"))
    again = {**again, "example": "a"}
    files: list[intervals.File] = [(Path("1"), header, [a, b]), (Path("2"), header, [again])]
    assert page._once([*files, (Path("3"), header, [c])], "asked") == [a, c, b]
