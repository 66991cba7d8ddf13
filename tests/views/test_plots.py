"""Plots: what they draw, and that any text can be a label."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelime import InputError
from ropelime.method import targets
from ropelime.views import plots
from toy import COEF, additive, toy

pytest.importorskip("matplotlib")


def bars(axes: Any) -> list[float]:
    return [float(patch.get_width()) for patch in axes.patches]


def names(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_bars_are_the_weights_from_the_largest_on() -> None:
    e = toy(sampler="exhaustive")
    (axes,) = plots.ranked(e, top=3).axes
    assert bars(axes) == pytest.approx([1.5, 1.2, -0.5])
    assert names(axes.yaxis) == ["red  43%", "black  34%", "white  14%"]
    assert [patch.get_hatch() for patch in axes.patches] == [None, None, "////"]
    older = plots.ranked(replace(e, intervals=None)).axes[0]
    assert older.get_xlabel() == "weight, nats"


def test_a_feature_without_a_share_has_none_beside_its_name() -> None:
    e = replace(toy(sampler="exhaustive"), weights=np.array([1.0, 0, 0, 0, 0]))
    e = replace(e, normalized_weights=np.array([1.0, 0, 0, 0, 0]))
    (axes,) = plots.ranked(e, top=2).axes
    assert names(axes.yaxis) == ["red  100%", "green  –"]


def test_a_long_unit_lies_within_the_figure() -> None:
    prompt = "Whole sentences with so MANY wide words are cut off beside a bar. Short."
    e = toy(prompt, features="sentence", surrogate=additive([1.0, 2.0]))
    figure = plots.ranked(replace(e, config={**e.config, "unit": targets.SHARE}))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    box = axes.xaxis.label.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_intervals_are_drawn_where_they_are_known() -> None:
    e = toy()
    e = replace(e, intervals=np.column_stack([e.weights - 0.25, e.weights + 0.5]))
    (axes,) = plots.ranked(e, top=2).axes
    (lines,) = [c for c in axes.containers if hasattr(c, "has_xerr") and c.has_xerr]
    ends = [segment[:, 0].tolist() for segment in lines[2][0].get_segments()]
    assert ends == [pytest.approx([1.25, 2.0]), pytest.approx([0.95, 1.7])]
    assert "90% interval" in axes.get_xlabel()


def test_the_heat_map_is_of_the_token_weights_in_the_order_of_the_prompt() -> None:
    e = toy(sampler="exhaustive")
    axes = plots.heat_map(e, top=3).axes[0]
    assert np.allclose(axes.images[0].get_array(), COEF[[0, 3, 4]])
    assert names(axes.yaxis) == ["red", "black", "white"]
    assert names(axes.xaxis) == ["yes", "it", "is"]
    assert [(t.get_position(), t.get_text()) for t in axes.texts] == [((1, 2), "−")]


def test_quality_against_budget() -> None:
    figure = plots.quality({"ours": [(64, 0.8), (16, 0.5)], "theirs $": [(16, 0.4)]}, measure="F1")
    (axes,) = figure.axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[16, 0.5], [64, 0.8]], [[16, 0.4]]]
    assert len({line.get_linestyle() for line in axes.lines}) == 2, "they differ by more than colour"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ours", "theirs $"]


@pytest.mark.parametrize("text", [r"$\frac{1}{$", "$x$ and $y$", "_a_", "a\x1b[31mb", "x" * 10_000])
def test_any_text_can_be_a_label(text: str, tmp_path: Path) -> None:
    e = toy(f"{text}\nother", text[:200], features=[(0, len(text)), (len(text) + 1, len(text) + 6)],
            surrogate=additive([1.0, 2.0]))  # fmt: skip
    for figure in (plots.ranked(e), plots.heat_map(e)):
        figure.savefig(tmp_path / "plot.png")
        assert "\x1b" not in "".join(names(figure.axes[0].yaxis))


def test_the_same_bytes_for_the_same_data(tmp_path: Path) -> None:
    once, again = (
        [path.read_bytes() for path in plots.save(plots.ranked(toy()), tmp_path / name)]
        for name in ("a", "b")
    )
    assert once == again


def test_an_interval_beside_its_weight_is_drawn() -> None:
    e = toy()  # rounding can do it, and an edited file
    assert plots.ranked(replace(e, intervals=np.column_stack([e.weights + 0.1, e.weights + 0.2])))


def test_nothing_to_draw_is_refused() -> None:
    for draw in (plots.ranked, plots.heat_map):
        with pytest.raises(InputError, match="at least one feature"):
            draw(toy(), top=0)
    with pytest.raises(InputError, match="at least one series"):
        plots.quality({"none": []})


def test_without_matplotlib_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'ropelime\[plot\]'"):
        plots.ranked(toy())
