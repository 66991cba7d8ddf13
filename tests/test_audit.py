"""The citations of an answer, checked against a surrogate whose sources are known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelime import Audit, Explanation, InputError, audit
from ropelime.cli import main
from ropelime.results.unsaid import own_words, read
from ropelime.surrogate import FunctionSurrogate
from ropelime.views.html import digest, static
from toy import additive, toy

Capture = pytest.CaptureFixture[str]
CHUNKS: list[dict[str, Any]] = [
    {"text": "Lamps last.", "source": "lamps.pdf", "page": 1},
    {"text": "Cups break.", "source": "https://cups.example/a", "title": "On cups"},
    {"text": "Bags tear.", "source": "bags.md"},
    {"text": "Lamps shine.", "source": "lamps.pdf", "page": 2},
]
# What each document adds to each of three sentences of eleven characters.
COEF = [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
FIRST, SECOND, THIRD = "Yes it is. ", "So it was. ", "Now it was."  # from lamps, from cups, from none
METHOD: dict[str, Any] = {
    "features": "document", "sampler": "exhaustive", "target": "nll", "kernel": "uniform",
    "regressor": "wls", "scoring": "exact", "progress": False,
}  # fmt: skip


def checked(output: Any, coef: Any = COEF, **options: Any) -> Audit:
    given: dict[str, Any] = {"context": CHUNKS, "question": "Is it?"}
    if "messages" in options or "prompt" in options:
        given = {}
    return audit(output=output, surrogate=additive(coef), **{**METHOD, **given, **options})


def verdicts(result: Audit) -> list[tuple[str, str]]:
    return [(mark.label, mark.verdict) for mark in result.marks]


def test_every_verdict() -> None:
    result = checked("Yes it is [1]. So it was [3]. Now it was [2][9].")
    assert verdicts(result) == [
        ("[1]", "confirmed"), ("[3]", "refuted"), ("[2]", "unsupported"), ("[9]", "unknown"),
    ]  # fmt: skip
    assert result.explanation.output == FIRST + SECOND + THIRD
    first, second, third, fourth = result.marks
    assert first.statement.text == "Yes it is."
    assert result.answer[first.statement.start : first.statement.end] == "Yes it is [1]."
    assert first.better is None
    assert second.better is not None
    assert second.better.name == "document 2, https://cups.example/a"
    assert re.fullmatch(
        "the statement does not come from it; the source is probably document 2, "
        r"https://cups\.example/a \(>?\d+% that it comes from the prompt\)",
        second.why,
    )
    assert first.why == f"the statement probably comes from it ({first.statement.chance})"
    assert second.better.text == "Cups break."
    assert second.name == "document 3, bags.md"
    chance = f"({third.statement.chance} that it comes from the prompt)"
    assert third.why == f"the statement has no source in the documents {chance}"
    assert third.better is None
    assert (fourth.documents, fourth.why) == ((), "names no known document")
    assert result.counts == {
        "confirmed": 1, "refuted": 1, "unsupported": 1, "unknown": 1, "uncited": 0,
    }  # fmt: skip
    assert not result.ok


def test_sentences_without_a_mark_are_uncited_if_they_rest_on_a_document() -> None:
    result = checked(FIRST + "So it was [2]. Now it was.")
    assert [each.text for each in result.uncited] == ["Yes it is."]
    assert result.uncited[0].sources[0].document == 1
    assert result.ok
    assert not checked(FIRST + SECOND + THIRD, fail_on=["uncited"]).ok
    assert checked(FIRST + SECOND + "Now it was [9].", fail_on=["refuted"]).ok
    assert checked(FIRST + SECOND + "Now it was [9].", fail_on=[]).ok


@pytest.mark.parametrize(
    "output",
    [
        "Yes it is.[1] So it was.[2] Now it was.",
        "[1] Yes it is.\n[2] So it was.\nNow it was.",
        "Yes it is [lamps.pdf]. So it was ([cups](https://cups.example/a)). Now it was.",
        "Yes it is ([on lamps](lamps.pdf)). [So it was](https://cups.example/a). Now it was.",
        "Yes it is.[^a] So it was.[^b] Now it was.\n\n[^a]: lamps.pdf\n[^b]: On cups",
        "Yes it is.¹ So it was.² Now it was.",
        "Yes it is [7]. So it was [8]. Now it was.\n\nSources:\n7. lamps.pdf, page 1\n8. On cups",
    ],
)
def test_any_form_of_mark(output: str) -> None:
    result = checked(output)
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed"]
    assert [mark.statement.text for mark in result.marks] == ["Yes it is.", "So it was."]
    assert re.split(r"\s+", result.explanation.output) == re.split(r"\s+", FIRST + SECOND + THIRD)


def test_a_file_is_cited_if_any_of_its_chunks_is_the_source() -> None:
    coef = [[0.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]]
    (mark,) = checked("Yes it is [lamps.pdf]. " + SECOND + THIRD, coef).marks
    assert (mark.documents, mark.verdict) == ((1, 4), "confirmed")
    assert mark.name == "documents 1, 4, lamps.pdf"
    (mark,) = checked("Yes it is [1]. " + SECOND + THIRD, coef).marks
    assert mark.verdict == "refuted", "a number names one chunk"


def test_counting_from_zero() -> None:
    result = checked("Yes it is [0]. So it was [1]. " + THIRD, count_from=0)
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed"]
    assert result.marks[0].name == "document 0, lamps.pdf, page 1"


def test_openais_annotations() -> None:
    annotations = [
        {"type": "file_citation", "index": 10, "file_id": "file-1", "filename": "lamps.pdf"},
        {"type": "url_citation", "start_index": 11, "end_index": 21, "url": "https://cups.example/a",
         "title": "On cups"},
        {"type": "file_citation", "index": 33, "file_id": "file-3", "filename": "bags.md"},
    ]  # fmt: skip
    part = {"type": "output_text", "text": FIRST + SECOND + THIRD, "annotations": annotations}
    result = checked({"output": [{"type": "message", "role": "assistant", "content": [part]}]})
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed", "unsupported"]
    assert [mark.statement.text for mark in result.marks] == ["Yes it is.", "So it was.", "Now it was."]


def char_location(index: int, quote: str) -> dict[str, Any]:
    return {
        "type": "char_location", "cited_text": quote, "document_index": index, "document_title": None,
        "start_char_index": 0, "end_char_index": len(quote),
    }  # fmt: skip


def test_anthropics_citations_and_their_quotations() -> None:
    blocks = [
        {"type": "text", "text": "Yes it is.", "citations": [char_location(0, "Lamps last.")]},
        {"type": "text", "text": " So it was.", "citations": [char_location(1, "Cups  are red.")]},
        {"type": "text", "text": " Now it was."},
    ]
    result = checked({"role": "assistant", "content": blocks})
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed"]
    assert [mark.quote_found for mark in result.marks] == [True, False]
    assert "; the quotation is not in the document" in result.marks[1].why


def test_documents_inside_messages() -> None:
    blocks = [
        {"type": "document", "source": {"type": "text", "data": chunk["text"]}} for chunk in CHUNKS
    ]
    content = [*blocks, {"type": "text", "text": "Is it?"}]
    chat = [{"role": "user", "content": content}]
    spans = [(0, 11), (12, 23), (24, 34), (35, 47)]
    result = checked("Yes it is [1]. So it was [3]. " + THIRD, messages=chat, features=spans)
    assert [mark.verdict for mark in result.marks] == ["confirmed", "refuted"]
    prompt = "\n".join(f"[{i}] {chunk['text']}" for i, chunk in enumerate(CHUNKS, 1))
    spans = [(4, 15), (20, 31), (36, 46), (51, 63)]
    result = checked("Yes it is [1]. So it was [3]. " + THIRD, prompt=prompt, features=spans)
    assert [mark.verdict for mark in result.marks] == ["confirmed", "refuted"]


def test_a_source_outside_the_documents_supports_no_mark() -> None:
    chat = [
        {"role": "system", "content": "Be kind."},
        {"role": "tool", "content": "Lamps last."},
        {"role": "tool", "content": "Cups break."},
    ]
    coef = [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]
    result = checked("Yes it is [1]. So it was [1]. " + THIRD, coef, messages=chat, features="message")
    assert [mark.verdict for mark in result.marks] == ["unsupported", "confirmed"]


def own_citations(coef: Any = COEF) -> Explanation:
    return toy(None, FIRST + SECOND + THIRD, context=CHUNKS, question="Is it?", **METHOD,
               surrogate=additive(coef))  # fmt: skip


@pytest.mark.parametrize("form", [str, "to_markdown", "to_openai", "to_anthropic"])
def test_our_own_citations_are_confirmed_in_every_form(form: Any) -> None:
    cited = own_citations().cite()
    result = checked(form(cited) if form is str else getattr(cited, form)())
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed"]
    assert result.explanation.output == FIRST + SECOND + THIRD
    assert result.uncited == ()


def test_what_is_wrong_is_said_before_a_model_is_needed() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"output": "[1] [2]"}, "nothing but marks"),
        ({"output": " "}, "output is empty"),
        ({"output": None}, "output must be a text, or a message"),
        ({"fail_on": ["wrong"]}, "verdict"),
        ({"count_from": -1}, "count_from must be"),
        (
            {"context": None, "question": None, "prompt": "Is it?"},
            "no documents that a mark could cite",
        ),
        ({"context": None, "question": None}, "exactly one of prompt, context and messages"),
    ]
    for arguments, says in wrong:
        with pytest.raises(InputError, match=says):
            audit(**{"output": "Yes [1].", "context": CHUNKS, "surrogate": 5, **METHOD, **arguments})
    with pytest.raises(TypeError, match=r"audit\(\) got an unexpected keyword argument 'nonsense'"):
        audit(output="Yes [1].", context=CHUNKS, nonsense=1)  # type: ignore[call-arg]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["Yes it is", ". ", " [1]", "[2, 9]", "\n", "¹", "(", ")", "[^1]", "x "]))
)
def test_no_answer_breaks_it(pieces: list[str]) -> None:
    output = "".join(pieces)
    try:
        result = checked(output, [[1.0], [0.5], [0.0], [0.0]])
    except InputError:
        return
    for mark in result.marks:
        assert 0 <= mark.start <= mark.end <= len(output)
        assert 0 <= mark.statement.start <= mark.statement.end <= len(output)
    json.dumps(result.to_dict(), allow_nan=False)


# What no document says.

OFFICES = [
    "The office in Lund opens at eight. It has a bike cellar. The lift is out of order in March.",
    "The office in Turku has a sauna on the roof. Parking is free there.",
    "Invoices are sent by post. Payment is due in thirty days.",
]


def about_offices(output: str, *sources: int, **given: Any) -> Audit:
    """An audit by a surrogate to which the sentence of each mark owes everything to one document."""
    sentences = re.findall(r"[^.]+\.\s*", re.sub(r" ?\[\d\]", "", output))
    owner = np.repeat(sources, [len(sentence) for sentence in sentences])  # a token each character
    surrogate = additive(0.4 * (np.arange(3)[:, None] == owner), -0.5)
    return audit(output=output, surrogate=surrogate, **{**METHOD, "context": OFFICES, **given})


def test_a_statement_of_which_no_document_has_half_is_not_confirmed() -> None:
    result = about_offices(
        "The office in Lund opens at eight [1]. The office in Lund has a swimming pool [1].", 0, 0
    )
    true, invented = result.marks
    assert (true.verdict, true.statement.missing) == ("confirmed", ())
    assert (invented.verdict, invented.better) == ("unsupported", None)
    assert invented.statement.missing == ("swimming", "pool")
    assert invented.why == (
        f"half or more of what the statement says is not in it ({invented.statement.chance} that it "
        "comes from the prompt); not in any document: swimming, pool"
    )
    assert result.to_dict()["marks"][1]["statement"]["missing"] == ("swimming", "pool")
    assert "not in any document: swimming, pool" in result.to_html()
    assert not result.ok


def test_less_than_half_is_named() -> None:
    result = about_offices(
        "Payment is due in ninety days [3]. Invoices are sent by post to Bremen [3].", 2, 2
    )
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed"]
    assert [mark.statement.missing for mark in result.marks] == [("ninety",), ("Bremen",)]
    assert result.marks[0].why.endswith("; but not in any document: ninety")


def test_a_document_that_has_less_than_another() -> None:
    roof = "The office in Lund has a sauna on the roof [1]. Parking is free there [2]."
    prompt = {"question": "What does each office in Lund and Turku have?"}
    mark = about_offices(roof, 0, 1, **prompt).marks[0]
    assert (mark.verdict, mark.better, mark.statement.missing) == ("unsupported", None, ())
    assert mark.why.startswith("half or more of what the statement says is not in it (")
    both = "Lund has a bike cellar and Turku a sauna [1][2]. Parking is free there [2]."
    assert [each.verdict for each in about_offices(both, 0, 1).marks] == [
        "confirmed",
        "refuted",
        "confirmed",
    ]


def test_another_document_must_have_the_numbers_too() -> None:
    documents = [
        "All staff get 25 days of paid holiday annually.",
        "Employees receive their vacation pay each year in December.",
        "Invoices are sent by post.",
    ]
    said = "Each year, employees receive 25 days of paid vacation [1]."
    (mark,) = about_offices(said, 0, context=documents).marks
    assert mark.verdict == "confirmed", "only the cited one has 25"


def test_words_of_the_question_and_numbers() -> None:
    asked, known = read("When does the office open?"), read(*OFFICES)
    found = own_words("The office opens at 8.", asked, "en")
    assert found == {"8": "8"}
    assert known.has("8"), "eight"
    assert not known.has("9")
    assert read("in the third century").has("3")
    assert dict(read("the 3rd").content) == {"3": "3rd"}
    assert read("It is located in Rome.", "We reserve rooms.").has("reservation"[:9]), "one family"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twenty-five", "25"), ("Twenty five", "25"), ("two hundred", "200"),
        ("forty thousand", "40000"),
        ("9:00", "9"), ("05", "5"), ("1,000", "1000"), ("twelve", "12"), ("a hundred", "100"),
    ],
)  # fmt: skip
def test_a_number_in_any_form(text: str, expected: str) -> None:
    assert list(read(text).content) == [expected]


def test_short_forms_say_nothing() -> None:
    assert read("It can't, won't, shan't, isn't, cannot; one did.").content == {}


def test_statements_are_judged_in_the_language_of_the_documents() -> None:
    nothing = read()
    assert own_words("Das Büro in Lund hat ein Schwimmbad.", nothing, "en") == {}
    assert set(own_words("Das Büro in Lund hat ein Schwimmbad.", nothing, "de")) == {
        "büro", "lund", "schwimmbad"
    }  # fmt: skip
    assert own_words("Marta Velling was a builder of ships.", nothing, "de") == {}
    assert own_words("They get 90 days each year.", nothing, "en")["90"] == "90"
    assert own_words("The office has a pool.", nothing, "") == {}, "of a script of its own"
    assert own_words("隆德的办公室有游泳池。", nothing, "en") == {}
    assert own_words("회의는 서울에서 열렸다.", nothing, "en") == {}, "particles stand at their words"


@pytest.mark.real_model
@pytest.mark.slow
def test_invented_statements_by_the_embedded_model() -> None:
    result = audit(
        context=OFFICES,
        output="The office in Lund opens at eight [1]. The office in Lund has a swimming pool [1]. "
        "The office in Turku has a sauna on the roof [2]. Payment is due in thirty days [3].",
        progress=False,
    )
    assert [mark.verdict for mark in result.marks] == [
        "confirmed", "unsupported", "confirmed", "confirmed",
    ]  # fmt: skip
    assert "not in any document: swimming, pool" in result.marks[1].why


# Its forms.


def test_it_is_saved_as_json_and_as_a_page(tmp_path: Path) -> None:
    result = checked("Yes it is [1]. So it was [3]. " + THIRD)
    result.save(tmp_path / "audit.json")
    data = json.loads((tmp_path / "audit.json").read_text())
    assert data == json.loads(json.dumps(result.to_dict()))
    assert (data["format"], data["version"], data["ok"]) == ("ropelime.audit", 1, False)
    assert data["marks"][1]["better"]["document"] == 2
    page = result.to_html(tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text(encoding="utf-8") == page
    assert "1 of 2 marks confirmed, 1 refuted." in page
    assert page.count('href="#mark-') == 2
    assert repr(result) == "<Audit: not ok; 1 confirmed, 1 refuted>"


def test_nothing_in_the_page_is_anything_but_text() -> None:
    hostile = "<script>alert(1)</script>"
    chunks = [{"text": f"Lamps {hostile}", "source": f'"{hostile}'}, {"text": "Cups.", "source": "b"}]
    result = checked(f"Yes {hostile} [1]. So [^{hostile}] it [x](y'\"{hostile}).", [[1.0], [0.0]],
                     context=chunks)  # fmt: skip
    page = result.to_html()
    assert "<script" not in page
    assert "style=" not in page
    css = static("report.css") + static("tables.css")
    assert f"style-src 'sha256-{digest(css)}'" in page
    assert css in page


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(
        "ropelime.surrogate.load_surrogate", lambda *_, **__: FunctionSurrogate(additive(COEF))
    )


@pytest.fixture
def command(model: None, tmp_path: Path) -> Callable[..., int]:
    files = []
    for name, chunk in zip("abcd", CHUNKS, strict=True):
        (tmp_path / f"{name}.txt").write_text(chunk["text"])
        files.append(str(tmp_path / f"{name}.txt"))
    method = ["--features", "document", "--sampler", "exhaustive", "--target", "nll",
              "--kernel", "uniform", "--regressor", "wls", "--scoring", "exact"]  # fmt: skip

    def run(output: str, *more: str) -> int:
        return main(
            ["audit", "--context", *files, "--question", "Is it?", "--output", output, *method, *more]
        )

    return run


def test_the_command_shows_a_table_and_fails(command: Any, tmp_path: Path, capsys: Capture) -> None:
    page, data = tmp_path / "audit.html", tmp_path / "audit.json"
    assert (
        command("Yes it is [1]. So it was [3]. " + THIRD, "--html", str(page), "--json", str(data)) == 1
    )
    shown = capsys.readouterr().out
    assert re.search(r"\[1\] +confirmed +Yes it is\. ", shown)
    assert re.search(r"\[3\] +refuted +So it was\. +document 3", shown)
    assert "1 of 2 marks confirmed, 1 refuted." in shown
    assert json.loads(data.read_text())["counts"]["refuted"] == 1
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_exit_codes(command: Any, tmp_path: Path, capsys: Capture) -> None:
    assert command("Yes it is [1]. " + SECOND + THIRD) == 0
    assert "uncited" in capsys.readouterr().out
    assert command("Yes it is [1]. " + SECOND + THIRD, "--fail-on", "uncited", "refuted") == 1
    assert command("Yes it is [2]. " + SECOND + THIRD, "--fail-on") == 0
    capsys.readouterr()
    assert command("Yes it is [2]. " + SECOND + THIRD, "--quiet") == 1
    assert capsys.readouterr() == (
        "",
        "ropelime: 0 of 1 mark confirmed, 1 refuted, 1 sentence uncited.\n",
    )
    assert command("[1]") == 2
    assert "nothing but marks" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        command("Yes [1].", "--fail-on", "wrong")
    assert stop.value.code == 2


def test_the_command_reads_an_apis_json(command: Any, tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "Yes it is.", "citations": [char_location(2, "Bags tear.")]},
              {"type": "text", "text": f" {SECOND}{THIRD}"}]  # fmt: skip
    file = tmp_path / "response.json"
    file.write_text(json.dumps({"role": "assistant", "content": blocks}))
    data = tmp_path / "audit.json"
    assert command(f"@{file}", "--json", str(data)) == 1
    (mark,) = json.loads(data.read_text())["marks"]
    assert (mark["label"], mark["verdict"]) == ("char_location", "refuted")


def test_weights_may_oppose() -> None:
    coef = np.array(COEF)
    coef[2] = -0.5
    result = checked("Yes it is [1]. So it was [2]. Now it was [3].", coef)
    assert [mark.verdict for mark in result.marks] == ["confirmed", "confirmed", "unsupported"]
