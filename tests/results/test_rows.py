"""Explanations as rows, as a DataFrame, and in brief."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from ropelime import InputError
from ropelime.results.rows import LONGEST, attached, brief, rows
from toy import additive, signalled, toy

CHUNKS = [{"text": "One.", "source": "a.pdf", "page": 4}, "Two."]
MESSAGES = [{"role": "system", "content": "One."}, {"role": "user", "content": "Two."}]


def test_rows_in_the_order_of_the_ranking() -> None:
    e = signalled()
    found = rows(e)
    assert [row["feature"] for row in found] == [each.index for each in e.top()]
    assert [row["text"] for row in found][:2] == ["red ", "black "]
    first = found[0]
    assert first["rank"] == 1
    assert [first[name] for name in ("weight", "low", "high")] == pytest.approx([0.7, 0.6, 0.8])
    assert (first["signal_shift"], first["signal_words"]) == (0.5, 0.9)
    assert e.prompt.text[first["start"] : first["end"]] == first["text"]
    assert first["document"] is first["message"] is first["role"] is first["source"] is None


def test_documents_and_messages_count_from_one() -> None:
    two: dict[str, Any] = {"features": "document", "surrogate": additive([1.0, 2.0])}
    second, first = rows(toy(None, context=CHUNKS, **two))
    assert (first["document"], first["source"], first["page"]) == (1, "a.pdf", "4")
    assert (second["document"], second["source"], second["role"]) == (2, None, None)
    second, first = rows(toy(None, messages=MESSAGES, **{**two, "features": "message"}))
    assert [(row["message"], row["role"]) for row in (first, second)] == [(1, "system"), (2, "user")]
    assert second["document"] is None


def test_a_data_frame() -> None:
    pytest.importorskip("pandas", reason="pip install 'ropelime[pandas]'")
    e = toy(None, context=CHUNKS, features="document", surrogate=additive([1.0, 2.0]))
    frame = e.to_dataframe()
    assert frame.index.tolist() == [1, 0]
    assert frame.index.name == "feature"
    assert frame.loc[0, "source"] == "a.pdf"
    assert frame["normalized_weight"].sum() == pytest.approx(1.0)
    assert str(frame.dtypes["document"]) == str(frame.dtypes["message"]) == "Int64"
    assert frame["message"].isna().all()
    assert frame.sort_index()["text"].tolist() == [feature.text for feature in e.features]
    assert toy().to_dataframe().columns.tolist() == frame.columns.tolist(), "they can be joined"


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"pip install 'ropelime\[pandas\]'"):
        toy().to_dataframe()


def test_a_plot_is_a_figure() -> None:
    pytest.importorskip("matplotlib")
    e = toy()
    (axes,) = e.plot(top=2).axes
    assert len(axes.get_yticks()) == 2
    assert len(e.plot("tokens").axes) == 2  # and its colour bar
    with pytest.raises(InputError, match=r"Unknown kind of plot 'rankin'. Did you mean 'ranking'"):
        e.plot("rankin")  # type: ignore[arg-type]
    for wrong in (0, True, 1.5):
        with pytest.raises(InputError, match=r"at least 1, not top="):
            e.plot(top=wrong)  # type: ignore[arg-type]


def test_a_brief_is_short_plain_data() -> None:
    e = toy("x" * 2000 + " y", features="word", surrogate=additive([2.0, 1.0]))
    short = brief(e, top=1)
    assert len(short["parts"]) == 1
    assert len(short["parts"][0]["text"]) <= LONGEST
    assert short["parts_in_all"] == 2
    assert short["trust"] == pytest.approx(e.trust and e.trust.value, rel=1e-5)
    json.dumps(attached(e), allow_nan=False)


def test_citations_in_brief() -> None:
    e = toy(None, "There.", context=CHUNKS, features="document", surrogate=additive([0.0, 2.0]))
    found = attached(e)
    assert found["sentences"][0]["text"] == "There."
    assert found["sentences"][0]["sources"] == [1]
    assert found["sources"] == [{"number": 1, "text": "Two.", "where": "chunk 2"}]
