"""The page of an explanation: its data, and that no text in it is anything but text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime import Explanation, InputError, explain
from ropelime.method.targets import TARGETS
from ropelime.results.citations import judge_sentences
from ropelime.results.verdicts import Trust
from ropelime.text.display import visible
from ropelime.views.html import payload, report, static
from toy import COEF, OUTPUT, PROMPT, additive, invented, signalled, toy

TWO = "Yes it is. Now it was."  # two sentences of eleven characters, a token each
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "</style><style>* { display: none }</style>",
    "<!--<script>",
    "]]><img src=x onerror=window.hacked=1>",
    '" onmouseover="window.hacked=1',
    "javascript:window.hacked=1",
    "&lt;b&gt; &amp; {policy} {{}}",
    "a\u2028\u2029b",
]


def data_in(page: str) -> Any:
    """The data that a page holds, as a browser reads it."""
    (text,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def hostile(text: str) -> Explanation:
    """An explanation with a text in every place where somebody else's text can be."""
    e = explain(
        messages=[
            {"role": "system", "content": f"{text} one"},
            {"role": "user", "content": f"two {text}"},
        ],
        output=f"{text} yes",
        features="message",
        surrogate=additive([1.0, -2.0]),
        target="nll",
        kernel="uniform",
        progress=False,
    )
    first, second = e.prompt.messages  # a file may hold any role
    return replace(e, prompt=replace(e.prompt, messages=(replace(first, role=text), second)))


def test_the_prompt_and_the_answer_are_whole() -> None:
    data = payload(toy())
    pieces = [piece for block in data["prompt"] for piece in block["pieces"]]
    assert "".join(piece["text"] for piece in pieces) == PROMPT
    assert [piece["feature"] for piece in pieces] == [0, 1, 2, 3, 4]
    assert "".join(piece["text"] for piece in data["answer"]["pieces"]) == OUTPUT
    assert [piece["tokens"] for piece in data["answer"]["pieces"]] == [[0, 1], [1, 2], [2, 3]]


def test_the_figures_are_those_of_the_explanation() -> None:
    e = toy(sampler="exhaustive")
    data = payload(e)
    assert np.allclose([f["score"] for f in data["features"]], e.normalized_weights, rtol=1e-5)
    assert np.allclose([f["weight"] for f in data["features"]], e.weights, rtol=1e-5, atol=1e-9)
    assert np.allclose(data["token_weights"], COEF, atol=1e-5)
    assert (data["unit"], data["mean"]) == ("nats", False)
    assert [f["rank"] for f in data["features"]] == ["1", "4", "5", "2", "3"]
    assert e.intervals is not None
    assert np.allclose([f["interval"] for f in data["features"]], e.intervals, atol=1e-5)
    older = payload(replace(e, intervals=None, trust=None))
    assert older["features"][0]["interval"] is older["features"][0]["score_interval"] is None
    assert older["trust"] is None


def test_places_that_are_shared_say_so() -> None:
    e = toy()
    wide = replace(e, intervals=np.column_stack([e.weights - 0.6, e.weights + 0.6]))
    # 1.5 and 1.2 are no more than 0.6 apart, nor are 0.5, 0.3 and 0.
    assert [f["rank"] for f in payload(wide)["features"]] == ["1=", "3=", "3=", "1=", "3="]


def test_intervals_and_trust_are_shown_where_an_explanation_has_them() -> None:
    e = toy()
    ends = np.column_stack([e.weights - 1, e.weights + 1])
    data = payload(replace(e, intervals=ends, trust=Trust(0.75, "It held up.")))
    assert data["features"][0]["interval"] == pytest.approx([0.5, 2.5])
    # Weights of 1.5, 1.2, -0.5, -0.3 and 0 are 3.5 in all.
    assert data["features"][0]["score_interval"] == pytest.approx([1 / 7, 5 / 7], rel=1e-5)
    assert data["trust"] == {"value": 0.75, "text": "It held up.", "verdicts": []}
    json.dumps(data, allow_nan=False)


def test_verdicts_and_the_grounding_of_sentences_are_in_the_data() -> None:
    e = invented()
    data = payload(e)
    assert [(v["name"], v["probability"], v["text"]) for v in data["trust"]["verdicts"]] == [
        (v.name, v.probability, v.text) for v in e.verdicts
    ]
    assert data["trust"]["verdicts"][0]["title"] == "The answer rests on the prompt"
    assert [each["grounded"] for each in data["answer"]["grounding"]] == [True, False, False]
    chances = [each["probability"] for each in data["answer"]["grounding"]]
    assert chances == pytest.approx([each.probability for each in e.grounding], rel=1e-5)
    both = explain(
        e.prompt.text, e.output, surrogate=[additive([[2.9, 0, 0]] * 3), additive(np.zeros((3, 3)))],
        target="nll", kernel="uniform", progress=False,
    )  # fmt: skip
    assert [each.probability for each in judge_sentences(both)] == [
        each.probability for each in both.grounding
    ]


def test_blocks_are_chunks_with_what_lies_between_them() -> None:
    e = explain(
        context=["One. Two.", "Three."], question="Why?", output="so", surrogate=additive([1.0, 2, 3]),
        target="nll", kernel="uniform", progress=False,
    )  # fmt: skip
    blocks = [
        (b["label"], [(p["text"], p["feature"]) for p in b["pieces"]]) for b in payload(e)["prompt"]
    ]
    assert blocks == [
        ("", [("Context:", None)]),
        ("Chunk 1", [("One. ", 0), ("Two.", 1)]),
        ("Chunk 2", [("Three.", 2)]),
        ("", [("Why?", None)]),
    ]


def test_spans_may_lie_in_the_question_and_go_over_the_ends_of_chunks() -> None:
    text = "Context:\nOne. Two.\n\nThree.\n\nWhy now?"
    spans = [(0, 7), (14, 25), (28, 31)]
    e = explain(
        context=["One. Two.", "Three."], question="Why now?", output="so", features=spans,
        surrogate=additive([1.0, 2, 3]), target="nll", kernel="uniform", progress=False,
    )  # fmt: skip
    assert e.prompt.text == text
    pieces = [(p["text"], p["feature"]) for b in payload(e)["prompt"] for p in b["pieces"]]
    assert pieces == [
        ("Context", 0), (":", None),
        ("One. ", None), ("Two.", 1),
        ("Three", 1), (".", None),
        ("Why", 2), (" now?", None),
    ]  # fmt: skip


def test_sentences_of_the_answer_have_the_tokens_that_for_output_takes() -> None:
    e = toy(output=TWO, surrogate=additive(COEF[:, :2]))
    assert e.output_sentences == ((0, 10), (11, 22))
    data = payload(e)
    assert data["answer"]["sentences"] == [[0, 1], [1, 2]]
    for (start, end), (first, last) in zip(
        e.output_sentences, data["answer"]["sentences"], strict=True
    ):
        here = np.array(data["token_weights"])[:, first:last].sum(1)
        assert np.allclose(here, e.for_output(start, end).weights, atol=1e-5)


def test_a_span_of_the_answer_leaves_the_rest_without_tokens() -> None:
    part = toy().for_output(3, 6)
    answer = payload(part)["answer"]
    assert [each["grounded"] for each in answer.pop("grounding")] == [False]
    assert answer == {
        "pieces": [
            {"text": "yes", "tokens": None},
            {"text": " it", "tokens": [0, 1]},
            {"text": " is", "tokens": None},
        ],
        "sentences": [[0, 1]],
    }


def test_tokens_that_share_a_character_share_a_piece() -> None:
    e = toy(output="a😀b", surrogate=additive(COEF))
    object.__setattr__(e, "output_spans", ((0, 2), (1, 2), (2, 3)))
    assert payload(e)["answer"]["pieces"] == [
        {"text": "a😀", "tokens": [0, 2]},
        {"text": "b", "tokens": [2, 3]},
    ]


def test_undefined_figures_and_dull_weights_are_plain_json() -> None:
    for e in (toy(surrogate=additive(np.zeros((5, 3)))), toy(surrogate=additive(1e-12 * COEF))):
        assert data_in(report(e)) == json.loads(json.dumps(payload(e), allow_nan=False))


@pytest.mark.parametrize(
    ("base", "shown"), [(-0.5, "61% → 61%"), (-9.0, "under 1% → under 1%"), (900.0, "100% → 100%")]
)
def test_the_likelihood_is_in_percent(base: float, shown: str) -> None:
    e = toy(surrogate=additive(np.zeros((5, 3)), base))
    assert payload(e)["diagnostics"][0][1] == shown


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_in_the_data(text: str) -> None:
    e = hostile(text)
    page = report(e)
    assert data_in(page) == json.loads(json.dumps(payload(e)))
    (title,) = re.findall(r"<title>(.*?)</title>", page, re.DOTALL)
    assert html.unescape(title).startswith(visible(text)[:20].strip())
    # Nothing but the data, the title and texts of the first view differs from a harmless text's page.
    own = r"<title>.*?</title>|<script type.*?</script>|<noscript>.*?</noscript>"
    rest, plain = (re.sub(own, "", each, flags=re.DOTALL) for each in (page, report(hostile("x"))))
    assert rest == plain
    (first,) = re.findall(r"<noscript>(.*?)</noscript>", page, re.DOTALL)
    assert {*re.findall(r"<[^a-z/]|<\w+", first)} <= {
        "<p", "<div", "<strong", "<table", "<thead", "<tbody", "<tr", "<th", "<td", "<span",
    }  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_comes_back_from_the_page(text: str) -> None:
    e = hostile(f"x{text}")
    assert data_in(report(e)) == json.loads(json.dumps(payload(e)))


@pytest.mark.parametrize("code", ["\u202e", "\u2066", "\u200f", "\x1b", "\x07", "\ufeff"])
def test_controls_are_spelled_out(code: str) -> None:
    page = report(hostile(f"a{code}b"))
    assert code not in page
    assert f"a[U+{ord(code):04X}]b" in page


def test_line_ends_of_any_system_are_line_ends() -> None:
    assert visible("a\r\nb\rc\td") == "a\nb\nc\td"


def test_the_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    page = report(toy())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    inline = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", page, re.DOTALL)
    assert len(inline) == 3
    for text in inline:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", page), "nothing from elsewhere"


def test_the_files_can_be_put_into_a_page_and_build_no_markup() -> None:
    css, js = static("report.css"), static("report.js")
    assert not re.search(r"</style|<!--", css, re.IGNORECASE)
    assert not re.search(
        r"</script|<!--|innerHTML|outerHTML|insertAdjacent|\beval\b", js, re.IGNORECASE
    )
    assert "url(" not in css
    assert "@import" not in css


def test_writing_it(tmp_path: Path) -> None:
    e = toy()
    path = tmp_path / "why.html"
    path.write_text("old")
    assert e.to_html(path) == e.to_html() == path.read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["why.html"]
    with pytest.raises(InputError, match="There is no folder"):
        e.to_html(tmp_path / "none" / "why.html")


def test_a_notebook_gets_the_page_in_a_frame() -> None:
    e = toy()
    (inside,) = re.findall(r'srcdoc="(.*?)"', e._repr_html_(), re.DOTALL)
    assert html.unescape(inside) == report(e)


def test_the_first_view_needs_no_script_and_nothing_from_elsewhere() -> None:
    e = toy("<b>red</b> green blue black white", "yes <i>it")
    first = e._repr_html_().partition("<details")[0]
    assert not re.search(r"<script|<link|<style|<img|url\(|src=|href=|https?:|\bon\w+=", first)
    assert "&lt;b&gt;red&lt;/b&gt;" in first
    assert "yes &lt;i&gt;it" in first
    assert first.count("<tr style") == 5
    assert "<noscript><p>JavaScript is switched off" in report(e)
    colours = set(re.findall(r"(?:color|background|solid)[: ](?!none|inherit)([^;\"]*)", first))
    assert all(colour.startswith("var(--vscode-") for colour in colours), "the colours of the page"


def test_the_first_view_of_many_parts() -> None:
    e = toy("a b c d e f g", features="word", surrogate=additive([1, -3, 1, 1, 1, 1, 1.0]))
    first = e._repr_html_().partition("<details")[0]
    assert "2 more parts have less weight." in first
    assert "−" in first
    e = toy("a b c d e f", features="word", surrogate=additive([1, -3, 1, 1, 1, 1.0]))
    assert "1 more part has less weight." in e._repr_html_()


def test_chunks_are_named_by_their_source_and_page() -> None:
    chunks = [{"text": "One.", "source": "Report <b>.pdf", "page": 4}, "Two."]
    e = toy(None, context=chunks, features="document", surrogate=additive([1.0, 2.0]))
    labels = [block["label"] for block in payload(e)["prompt"]]
    assert labels[1:] == ["Chunk 1, Report <b>.pdf, page 4", "Chunk 2"]


def test_the_target_declares_whether_a_part_is_a_mean_or_a_sum() -> None:
    e = toy()
    for name, target in TARGETS.items():
        data = payload(replace(e, config={**e.config, "target": {"name": name}}))
        assert data["mean"] is target.per_token
    data = payload(replace(e, config={**e.config, "target": {"name": "my own"}}))
    assert data["mean"] is False
    means = {name for name, target in TARGETS.items() if target.per_token}
    assert means == {"kl", "sqrt-kl", "shift"}, "shares of each token add up"


def test_signals_are_in_the_data_and_then_nothing_opposes() -> None:
    data = payload(signalled())
    assert data["signals"] == {"shift": [0.5, 0, 0.1, 0.4, 0], "words": [0.9, 0, 0.1, 0, 0]}
    assert data["signs"] is False
    data = payload(toy())
    assert (data["signals"], data["signs"]) == ({}, True)
    negative = replace(signalled(), weights=np.array([0.7, -0.1, 0.1, 0.2, 0.0]))
    assert payload(negative)["signs"] is True


def test_nothing_is_said_about_a_fit_where_nothing_was_fitted() -> None:
    e = signalled()
    d = replace(e.diagnostics, masks_requested=0, masks_scored=0, r2=float("nan"))
    names = [name for name, _, _ in payload(e)["diagnostics"]]
    assert names == ["Likelihood of the answer", "Effective sample size"], "as many scores as unknowns"
    shown = payload(replace(e, diagnostics=d))["diagnostics"]
    assert [name for name, _, _ in shown] == ["Likelihood of the answer"]
