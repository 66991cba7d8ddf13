"""Citations: which sentence names which source, by the rule that is stated."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from ropelime import Explanation, explain
from ropelime.results.citations import Cited
from ropelime.results.serialization import from_dict
from toy import additive, toy

TWO = "Yes it is. Now it was."  # two sentences, a token each


def cited(coef: Any, output: str = TWO, **options: Any) -> Cited:
    """Cite an answer whose tokens have known coefficients, a row for each word of the prompt."""
    known = np.asarray(coef, dtype=float)
    sure = additive(known, -float(known.clip(0).sum(0).max()) - 0.2)  # with all words, of every token
    prompt = " ".join(f"w{i}" for i in range(len(known)))
    return toy(prompt, output, surrogate=sure, sampler="exhaustive", **options).cite()


def numbers(c: Cited) -> list[tuple[int, ...]]:
    return [sentence.sources for sentence in c.sentences]


def features(c: Cited) -> list[int]:
    return [source.feature for source in c.sources]


def test_each_sentence_names_what_supports_it() -> None:
    c = cited([[0, 2], [3, 0], [0, 0], [0, 0]])
    assert str(c) == "Yes it is. [1] Now it was. [2]\n\n[1] w1\n[2] w0"
    assert features(c) == [1, 0]
    assert c.sentences[0].weights == pytest.approx((1.0,))


def test_a_source_has_one_number_however_often_it_is_named() -> None:
    c = cited([[0.3, 0], [2.7, 3], [0, 2], [0, 0]])
    assert numbers(c) == [(1,), (1, 2)]
    assert features(c) == [1, 2]


def test_opposing_features_are_not_sources() -> None:
    c = cited([[-3, -3], [1, 0], [0, 0], [0, 0]])
    assert features(c) == []
    assert str(c) == (
        "Yes it is. [–] Now it was. [–]\n"
        "\n[–] Not in the prompt: no part of the prompt was found to be its source."
    )


@pytest.mark.parametrize(("weight", "named"), [(0.076, True), (0.074, False)])
def test_of_many_a_weight_must_be_clearly_above_uniform(weight: float, named: bool) -> None:
    coef = np.zeros((20, 2))  # one and a half times a twentieth
    coef[:, 0] = [weight, *[(1 - weight) / 19] * 19]
    assert (numbers(toy_of(8 * coef).cite())[0] == (1,)) is named


@pytest.mark.parametrize(("weight", "named"), [(0.16, (1, 2)), (0.14, (1,))])
def test_of_few_a_sixth_is_enough(weight: float, named: tuple[int, ...]) -> None:
    assert numbers(cited(4 * np.array([[1 - weight, 0], [weight, 0], [0, 0], [0, 0]])))[0] == named


def test_fenced_code_gets_no_marks() -> None:
    answer = "Now it was.\n```python\nwhile True:\n    Yes()\n```\nYes it is."
    c = toy("a b", answer, surrogate=additive(np.ones((2, len(answer.split()))), -9.0)).cite()
    before, code, after = str(c).partition("\n\n[")[0].split("```")
    assert code == "python\nwhile True:\n    Yes()\n"
    assert before.strip() != "Now it was."
    assert after.strip() != "Yes it is."


@pytest.mark.parametrize(
    ("answer", "marks"),
    [
        ("1. Run it:\n\n   ```\n   lamp on\n   lamp off\n   ```\n\n2. Now it was.", 2),
        ("> ```\n> lamp on\n> ```\n\nNow it was.", 1),
        ("```x``` is a name.\nYes it is. Now it was.", 3),
    ],
)
def test_fenced_code_is_what_markdown_takes_for_it(answer: str, marks: int) -> None:
    text = toy("a b", answer, surrogate=additive(np.ones((2, len(answer.split()))), -9.0)).cite()
    said = str(text).partition("\n\n[")[0]
    assert len(re.findall(r"\[[–\d]\]", said)) == marks
    assert not re.search(r"(lamp on|lamp off|^ *```|^> ```) \[", said, re.M)


def test_small_weights_are_not_named_beside_a_large_one() -> None:
    coef = np.zeros((10, 2))
    coef[:, 0] = [8, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    assert numbers(cited(coef))[0] == (1, 2)
    coef = np.zeros((40, 2))
    coef[:2, 0] = [9, 1]  # 10% is far above uniform, and a ninth of the other
    assert numbers(toy_of(coef).cite())[0] == (1,)


def test_a_question_among_the_features_is_no_source() -> None:
    prompt = "Kessel lies on the Dray. Salmon returned. Where does Kessel lie?"
    options: dict[str, Any] = {"features": "sentence", "sampler": "exhaustive"}
    e = toy(prompt, "On the Dray.", surrogate=additive([1.0, 0.0, 3.0], -4.2), **options)
    assert e.top(1)[0].text == "Where does Kessel lie?", "the question has most of the weight"
    (source,) = e.cite().sources
    assert source.text == "Kessel lies on the Dray."
    assert e.cite().sentences[0].weights == pytest.approx((1.0,)), "of what can be a source"
    alone = toy("Where does it lie? Is it far?", "On the Dray.", surrogate=additive([2.0, 1.0], -3.2),
                **options)  # fmt: skip
    assert alone.cite().sources == ()
    chat = [{"role": "user", "content": prompt}]
    e = toy(None, "On the Dray.", messages=chat, surrogate=additive([1.0, 0.0, 3.0], -4.2), **options)
    assert [s.text for s in e.cite().sources] == [source.text], "the user's last message asks"
    earlier = [*chat, {"role": "user", "content": "Say it."}]
    coef = [1.0, 0.0, 3.0, 0.0]
    e = toy(None, "On the Dray.", messages=earlier, surrogate=additive(coef, -4.2), **options)
    assert e.cite().sources[0].text == "Where does Kessel lie?", "it is part of what came before"


def test_what_only_its_question_moves_does_not_come_from_the_prompt() -> None:
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where is Kessel?"}]
    options: dict[str, Any] = {"messages": chat, "features": "sentence", "sampler": "exhaustive"}
    recalled = toy(None, "On the Dray.", surrogate=additive([0.0, 3.0], -3.2), **options)
    assert not recalled.grounding[0].grounded
    assert recalled.grounding[0].sources == ()
    given = toy(None, "On the Dray.", surrogate=additive([3.0, 0.0], -3.2), **options)
    assert given.grounding[0].probability > recalled.grounding[0].probability


REQUESTS = [
    (
        "Could you write that the meeting on 5 May is moved to 7 May?",
        "The meeting on 5 May moved to 7 May.",
    ),
    ("Which is larger, Kessel with 40 or Dray with 90 streets?", "Dray is larger, with 90 streets."),
]


@pytest.mark.parametrize(("request_", "output"), REQUESTS)
def test_what_a_request_says_itself_comes_from_it(request_: str, output: str) -> None:
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": request_}]
    options: dict[str, Any] = {"messages": chat, "features": "sentence", "sampler": "exhaustive"}
    words = len(output.split())
    e = toy(None, output, surrogate=additive([0.0, 4.0 * words], -4.5), **options)
    assert e.grounding[0].grounded
    assert [s.text for s in e.cite().sources] == [request_]
    other = output.replace("moved to 7 May", "postponed by Ida").replace("90 streets", "gardens of Ida")
    e = toy(None, other, surrogate=additive([0.0, 4.0 * words], -4.5), **options)
    assert not e.grounding[0].grounded, "it adds something that the request does not have"


def test_a_document_beside_a_question_in_one_message_is_a_source() -> None:
    parts = ["Marta designed the lantern in 1911", "Who designed the lantern?"]
    chat = [{"role": "user", "content": [{"type": "text", "text": part} for part in parts]}]
    options: dict[str, Any] = {"messages": chat, "features": "sentence", "sampler": "exhaustive"}
    e = toy(None, "It was Marta.", surrogate=additive([3.0, 1.0], -3.2), **options)
    assert [s.text for s in e.cite().sources] == parts[:1]


def test_numbers_that_are_not_written_are_not_listed() -> None:
    answer = "Yes it is. Now it was:\n\n```\nlamp on.\nlamp off.\n```"
    c = toy("a b", answer, surrogate=additive(np.ones((2, len(answer.split()))), -9.0)).cite()
    text = str(c)
    written = set(re.findall(r"\[(?:–|\d)\]", text.partition("\n\n[")[0]))
    assert set(re.findall(r"^(\[(?:–|\d)\])", text, re.M)) == written
    assert "Now it was: [" in text, "before the code"


def toy_of(coef: Any) -> Explanation:
    prompt = " ".join(f"w{i}" for i in range(len(coef)))
    return toy(prompt, TWO, surrogate=additive(coef), sampler="leave-one-out")


def test_three_at_most() -> None:
    coef = np.zeros((10, 2))
    coef[:5, 0] = [1.0, 1.1, 1.2, 1.3, 1.4]
    c = cited(coef)
    assert numbers(c)[0] == (1, 2, 3)
    assert features(c) == [4, 3, 2]


def test_a_sentence_that_nothing_moves_has_no_mark() -> None:
    c = cited([[2, 0.02], [0, 0], [0, 0], [0, 0]])  # the second by 0.02 nats a token
    assert numbers(c) == [(1,), ()]
    assert str(c).startswith("Yes it is. [1] Now it was. [–]\n")
    assert numbers(cited(np.zeros((4, 2)))) == [(), ()]


def test_the_white_space_of_the_answer_stays() -> None:
    c = cited([[4, 4], [0, 0], [0, 0]], output="  A b.\n\n- C d.\n")
    assert str(c).splitlines()[:3] == ["  A b. [1]", "", "- C d. [1]"]


def test_only_the_explained_span_is_cited() -> None:
    e = toy_of(np.array([[2.0, 3.0], [0, 0], [0, 0]]))
    assert str(e.for_output(11, 22).cite()).splitlines()[0] == "Yes it is. Now it was. [1]"


def test_chunks_and_messages_are_named() -> None:
    options: dict[str, Any] = {
        "output": "yes", "surrogate": additive([0.0, 2.0]), "target": "nll", "kernel": "uniform",
        "progress": False,
    }  # fmt: skip
    e = explain(context=["One.", "Two."], question="?", features="document", **options)
    assert str(e.cite()) == "yes [1]\n\n[1] Two. (chunk 2)"
    chat = [{"role": "system", "content": "One."}, {"role": "user", "content": "Two\nlines."}]
    e = explain(messages=chat, features="message", **options)
    assert str(e.cite()) == "yes [1]\n\n[1] Two lines. (message 2, user)"


def test_markdown_has_footnotes_and_sources_are_text_in_it() -> None:
    e = toy("<b>*a*</b> [x](javascript:y)", "So *it* is.", features=[(0, 10), (11, 28)],
            surrogate=additive([2.0, 0.0]))  # fmt: skip
    assert e.cite().to_markdown() == "So *it* is. [^1]\n\n[^1]: \\<b\\>\\*a\\*\\</b\\>\n"
    e = toy("<b>*a*</b> [x](javascript:y)", "So.", features=[(0, 10), (11, 28)],
            surrogate=additive([0.0, 2.0]))  # fmt: skip
    assert "\n[^1]: \\[x\\](javascript:y)\n" in e.cite().to_markdown()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("# one", "\\# one"), ("- two", "\\- two"), ("3. three", "3\\. three"), ("a-b. #c", "a-b. #c")],
)
def test_a_source_is_no_heading_or_list_in_markdown(text: str, shown: str) -> None:
    e = toy(text + " x", features=[(0, len(text)), (len(text) + 1, len(text) + 2)],
            surrogate=additive([2.0, 0.0]))  # fmt: skip
    assert e.cite().to_markdown().endswith(f"[^1]: {shown}\n")


def test_it_cannot_be_changed() -> None:
    c = cited([[1, 1], [0, 0]])
    with pytest.raises(FrozenInstanceError):
        c.answer = "other"  # type: ignore[misc]


def test_chunks_are_named_by_their_source_and_page() -> None:
    chunks = [{"text": "One.", "source": "a.txt"}, {"text": "Two.", "source": "b_1.pdf", "page": 4}]
    e = toy(None, "yes", context=chunks, question="?", features="document",
            surrogate=additive([0.0, 2.0]))  # fmt: skip
    assert e.cite().sources[0].where == "chunk 2, b_1.pdf, page 4"
    assert str(e.cite()) == "yes [1]\n\n[1] Two. (chunk 2, b_1.pdf, page 4)"
    assert e.cite().to_markdown().endswith("[^1]: Two. (chunk 2, b\\_1.pdf, page 4)\n")


@pytest.mark.parametrize("name", ["target", "kernel", "regressor"])
def test_a_loaded_one_is_cited_without_its_strategies(name: str) -> None:
    """They may be the user's own, or of another release."""
    known = cited([[0, 2], [3, 0], [0, 0], [0, 0]])
    data = json.loads(Explanation.of(known.explained).to_json())
    data["config"][name] = {"name": "mine"}
    loaded = Explanation.of(from_dict(data))
    assert (numbers(loaded.cite()), features(loaded.cite())) == (numbers(known), features(known))
    assert loaded.to_html()
