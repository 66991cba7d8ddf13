"""Input that defeats the purpose is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ropelime import explain
from ropelime.results.diagnostics import notice
from ropelime.results.verdicts import WARNED
from ropelime.text.features import split
from ropelime.text.prompt import from_text
from toy import additive

ANSWER = "The mill was built in 1882."
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "The mill was built in 1882. When was it built?"},
]


def explained(**given: Any) -> Any:
    given.setdefault("output", ANSWER)
    n = len(given.get("messages") or given["context"])
    return explain(
        **given, features="message" if "messages" in given else "document", target="nll",
        surrogate=additive(np.arange(1.0, n + 1)[:, None], -9.0), kernel="uniform", progress=False,
    )  # fmt: skip


def warnings(e: Any) -> str:
    return " ".join(e.diagnostics.warnings)


def test_messages_that_end_with_the_answer() -> None:
    e = explained(messages=[*CHAT, {"role": "assistant", "content": f" {ANSWER}\n"}])
    assert "The last message is the answer itself" in warnings(e)
    assert e.trust.value <= WARNED
    assert "answer itself" not in warnings(explained(messages=CHAT))
    said = {"role": "assistant", "content": "In 1882."}
    assert "answer itself" not in warnings(explained(messages=[*CHAT, said]))


def test_a_document_that_is_the_answer() -> None:
    output = (
        f"{ANSWER} It stands by the river, and its wheel has been turned by an engine since the flood."
    )
    e = explained(context=["A mill.", f"{output}\n"], question="When?", output=output)
    assert "Document 2 is the answer itself" in warnings(e)
    assert e.trust.value <= WARNED
    quoted = [ANSWER, "A mill.", f"{output} It is red."]
    assert "answer itself" not in warnings(explained(context=quoted, question="When?", output=output))
    assert "answer itself" not in warnings(explained(context=quoted, question="When?"))
    chinese = "磨坊是1882年建造的。它坐落在河边，后来由发动机带动。"
    assert "Document 1 is the answer" in warnings(explained(context=[chinese, "河。"], output=chinese))
    address = "Mill Lane 5\n12345 Kessel"
    quoted = explained(context=["A mill.", address], question="Where?", output=address)
    assert "answer itself" not in warnings(quoted)


def test_a_first_part_that_stands_in_the_prompt_twice() -> None:
    e = explained(context=[ANSWER, "A mill.", f"{ANSWER}\n"], question="When?")
    assert "stands in the prompt 2 times" in warnings(e)
    cause = next(verdict for verdict in e.verdicts if verdict.name == "cause")
    assert cause.probability <= WARNED
    assert "2 times" not in warnings(explained(context=[ANSWER, "A mill."], question="When?"))


def test_an_answer_that_stands_in_the_question() -> None:
    context = ["A mill.", "Another mill."]
    e = explained(context=context, question=f"Is it true? {ANSWER}")
    assert "stands word for word in the question" in warnings(e)
    assert e.verdicts[0].probability <= WARNED
    assert "word for word" not in warnings(explained(context=context, question="When?"))
    assert "word for word" not in warnings(explained(context=context, question="Yes?", output="Yes"))


def test_an_answer_in_a_script_that_the_surrogate_does_not_know() -> None:
    prompt = from_text("One. Two.")
    features = split(prompt, "sentence")
    ((verdict, text),) = notice(prompt, features, "ეს", 7)
    assert verdict == "understood"
    assert "hardly knows" in text
    assert not list(notice(prompt, features, "ეს", 2))
