"""Steps of a run explained: coarse to fine, all together, and followed back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ropelime
from ropelime import InputError
from ropelime.results.decisions import origins
from ropelime.stepwise import finer_spans
from ropelime.surrogate.base import FunctionSurrogate
from ropelime.surrogate.local import LocalSurrogate
from ropelime.trace import Trace
from ropelime.typing import Floats, Masks
from toy import toy
from trace_samples import ANSWER, THOUGHT, openai

Make = Callable[..., LocalSurrogate]
Messages = list[dict[str, Any]]


def call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"c{number}", "type": "function", "function": function}


def asked(*calls: dict[str, Any], text: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def output(number: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


USER = {"role": "user", "content": "Write the sum of the June bills into my notes."}
PLAN = "I note the sum of 70 for June."
RUN: Messages = [
    USER,
    asked(call(0, "find_bills", month="June")),
    output(
        0, json.dumps({"bills": [{"to": "Holm", "sum": 70, "note": "Due soon. Thanks."}], "more": 0})
    ),
    asked(text=PLAN) | {"tool_calls": None},
    {"role": "user", "content": "Good."},
    asked(call(1, "write_note", text=PLAN)),
]


def long_run(steps: int) -> Trace:
    messages: Messages = [{"role": "system", "content": "You look after lamps. Be brief."}, USER]
    for i in range(steps):
        messages.append(asked(call(i, "look_at", lamp=i)))
        colour = {"lamp": i, "colour": "green", "note": "It hums. It was bought in May. It is old."}
        messages.append(output(i, json.dumps(colour)))
    return ropelime.trace(messages[:-1])


@pytest.fixture(scope="module")
def wide(tiny: Make) -> LocalSurrogate:
    return tiny("llama", max_position_embeddings=8192)


def test_a_step_by_number_id_or_itself(wide: LocalSurrogate) -> None:
    trace = ropelime.trace(RUN)
    last = trace.model_steps[-1]
    first = trace.explain(last, surrogate=wide)
    assert first.step is last
    assert first.explanation.output == last.output
    assert [each.action for each in first.decisions] == [last.output]
    again = trace.explain(last.number, surrogate=wide)
    assert again.explanation.to_dict() == first.explanation.to_dict()
    assert trace.explain(last.id, surrogate=wide).to_dict() == first.to_dict()


def test_each_call_has_its_decision(wide: LocalSurrogate) -> None:
    two = asked(call(1, "write_note", text="70"), call(2, "send_money", to="Holm"), text="I begin.")
    (step,) = ropelime.trace([*RUN[:3], two]).model_steps[1:]
    explained = ropelime.trace([*RUN[:3], two]).explain(step, surrogate=wide)
    assert [json.loads(each.action)["name"] for each in explained.decisions] == [
        "write_note", "send_money",
    ]  # fmt: skip
    assert [each.name for each in explained.judged()] == ["caused_by 1", "caused_by 2"]


def test_results_of_tools_are_cut_at_fields(wide: LocalSurrogate) -> None:
    trace = ropelime.trace(RUN)
    e = trace.explain(trace.model_steps[1], surrogate=wide).explanation
    cut = [each.text.strip() for each in e.features if e.prompt.messages[each.part].role == "tool"]
    assert len(cut) > 1
    assert all(piece.count('"') % 2 == 0 for piece in cut), "no cut goes through a string"


def test_reasoning_is_a_feature_of_what_follows_it(wide: LocalSurrogate) -> None:
    trace = ropelime.trace(openai())
    explained = trace.explain(trace.model_steps[-1], surrogate=wide)
    e = explained.explanation
    assert e.output == ANSWER
    last = e.prompt.messages[-1]
    assert (last.role, e.prompt.content(last).strip()) == ("assistant", THOUGHT)
    assert any(feature.text.strip() == THOUGHT for feature in e.features)
    own = [each for each in explained.decisions[0].influences if each.decider == "own"]
    assert len(e.prompt.messages) - 1 in own[0].messages


def test_messages_first_then_parts_of_those_that_matter() -> None:
    texts = ["One. Two. Three.", "Four. Five.", "Six. Seven.", "Eight."]
    messages = [{"role": "user", "content": text} for text in texts]
    seen: list[int] = []

    def score(masks: Masks) -> Floats:  # the last feature of the third message decides
        n = masks.shape[1]
        seen.append(n)
        return np.asarray(-5.0 + 4.0 * masks[:, 2 if n == 4 else 3])

    trace = ropelime.trace([*messages, {"role": "assistant", "content": "Seven it is."}])
    how: dict[str, Any] = {
        "surrogate": FunctionSurrogate(score, "toy"),
        "preset": "faithful",
        "scoring": "exact",
    }
    explained = trace.explain(trace.model_steps[0], **how)
    e = explained.explanation
    assert [each.text.strip() for each in e.features] == [*texts[:2], "Six.", "Seven.", texts[3]]
    assert e.top(1)[0].text.strip() == "Seven."
    assert {*seen} == {4, 5}
    fine = ropelime.explain(
        messages=messages, output="Seven it is.", progress=False,
        features=[(each.start, each.end) for each in e.features], **how,
    )  # fmt: skip
    assert e.cost.masks > fine.cost.masks, "the first pass is counted too"


def test_one_budget_for_both_passes() -> None:
    surrogate = FunctionSurrogate(lambda masks: masks.sum(1) - 9.0, "toy")
    trace = ropelime.trace(RUN)
    how: dict[str, Any] = {"surrogate": surrogate, "preset": "faithful", "scoring": "exact"}
    e = trace.explain(trace.model_steps[-1], budget=30, **how).explanation
    assert e.cost.masks <= 30 + 4, "besides the full and the empty prompt of each pass"


def test_many_sentences_are_joined_or_left_whole() -> None:
    coarse = toy(
        "Red lamp. Blue.\n\nGreen.", features=[(0, 15), (17, 23)], surrogate=lambda m: m[:, 0] * 1.0
    )
    sentences = [(0, 9), (10, 15), (17, 23)]
    assert finer_spans(coarse, sentences, most=9) == tuple(sentences)
    assert finer_spans(coarse, sentences, most=1) == ((0, 15), (17, 23))


@pytest.mark.parametrize(("preset", "most"), [("instant", 0.5), ("evidence", 2.5)])
def test_a_run_shares_its_prefixes(wide: LocalSurrogate, preset: Any, most: float) -> None:
    trace = long_run(20 if preset == "instant" else 8)
    made, wrong = trace.explain_all(surrogate=wide, preset=preset)
    assert not wrong
    assert [each.step for each in made] == list(trace.model_steps)
    longest = max(int(each.explanation.surrogate_scores.tokens[0]) for each in made)
    spent = sum(each.explanation.cost.tokens for each in made)
    assert spent < most * longest * len(made)
    alone = trace.explain(made[3].step, surrogate=wide, preset=preset)
    assert made[3].explanation.cost.tokens < alone.explanation.cost.tokens
    weights = made[3].explanation.normalized_weights
    np.testing.assert_allclose(weights, alone.explanation.normalized_weights, atol=1e-4)


def test_steps_that_cannot_be_explained_are_named(wide: LocalSurrogate) -> None:
    trace = ropelime.trace(RUN)
    with pytest.raises(InputError, match=r"Step 2 is not a call of a model.* can: 1, 3, 4\."):
        trace.explain(2, surrogate=wide)
    empty = ropelime.trace([USER, {"role": "assistant", "content": " "}, *RUN[1:]])
    made, wrong = empty.explain_all(surrogate=wide)
    assert len(made) == len(empty.model_steps) - len(wrong)
    blank = ropelime.trace([{"role": "user", "content": " "}, {"role": "assistant", "content": "Ho"}])
    assert blank.explain_all(surrogate=wide)[1] == [
        "Step 1 cannot be explained: Every message is empty: there is nothing to explain."
    ]
    short = ropelime.trace([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}])
    made, wrong = short.explain_all(surrogate=wide)
    assert made == []
    assert len(wrong) == 1
    assert "Step 1 could not be explained" in wrong[0]


def test_followed_back_to_the_user(wide: LocalSurrogate) -> None:
    trace = ropelime.trace(RUN)
    last = trace.model_steps[-1]
    hops = trace.follow(last, hops=3, surrogate=wide)
    steps = {step.number for step in trace.model_steps}
    assert hops[0].step == last.number
    assert all(hop.from_step is None or hop.from_step in steps for hop in hops)
    assert all(hop.from_step is None or hop.from_step < hop.step for hop in hops), "back in time only"
    own = next(hop for hop in hops if hop.role == "assistant" and hop.text == PLAN)
    assert own.from_step == 3
    assert own.reach == pytest.approx(own.share)
    on = [hop for hop in hops if hop.step == own.from_step]
    assert sum(hop.reach for hop in on) == pytest.approx(own.reach * sum(hop.share for hop in on))
    bills = next(hop for hop in on if hop.role == "tool")
    assert (bills.tool, bills.from_step) == ("find_bills", 1)
    called = [hop for hop in hops if hop.step == 1]
    assert {hop.reach for hop in called} == {0.0}, "why it was called, not what it returned"
    ends = origins(hops)
    assert 0.5 < sum(ends.values()) <= 1.0 + 1e-9
    assert "the output of find_bills" in ends
    assert json.loads(json.dumps([hop.to_dict() for hop in hops]))[0]["step"] == last.number
    near = trace.follow(last, hops=1, surrogate=wide)
    assert {hop.step for hop in near} == {last.number}


@pytest.mark.parametrize("hops", [0, -1, True, 1.5, "3"])
def test_hops_are_counted(hops: Any) -> None:
    with pytest.raises(InputError, match="hops"):
        ropelime.trace(RUN).follow(1, hops=hops)
