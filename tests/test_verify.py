"""Verifying calls against a server whose answer depends on known parts of the prompt."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import ropelime
from ropelime import Explanation, InputError, ModelError
from ropelime.answering import AnsweringModel
from ropelime.batch.work import short
from ropelime.cli import main
from ropelime.errors import Interrupted
from ropelime.results import serialization
from ropelime.results.explanation import with_verified
from ropelime.results.rows import brief, rows
from ropelime.results.verification import Verified, VerifyingCall
from ropelime.surrogate import FunctionSurrogate
from ropelime.verify import next_step
from ropelime.views.findings import outcomes
from ropelime.views.html import payload, report
from ropelime.views.terminal import show
from servers import Fault, Handler, Proxy, busy, raw, says
from toy import additive

pytest.importorskip("openai", reason="pip install 'ropelime[ask]'")

DOCS = [
    "Marta was born in Lind.",
    "Blue pottery is made there.",
    "Kessel lies on the Dray.",
    "The Dray is a river.",
    "It rains in autumn.",
]
WEIGHTS = [5.0, 4.0, 3.0, 2.0, 1.0]  # the surrogate's: the order of the documents
YES, NO = "Kessel lies on the river Dray.", "I do not know."
SECRET = "sk-proj-Zt7Qm2Xw9LkR4vB8"
Ask = Callable[..., Explanation]
Capture = pytest.CaptureFixture[str]


def depends(on: Callable[[str], bool]) -> Fault:
    """Answer by what the prompt says."""

    def fault(handler: Handler) -> None:
        text = json.dumps([m.get("content") for m in handler.body["messages"]])
        says(YES if on(text) else NO)(handler)

    return fault


def needs(*documents: int) -> Fault:
    return depends(lambda text: all(DOCS[i] in text for i in documents))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def server() -> Iterator[Proxy]:
    with Proxy(otherwise=needs(2)).running() as proxy:
        yield proxy


@pytest.fixture
def ask(server: Proxy) -> Ask:
    def asked(question: str | None = "Where is it?", **options: Any) -> Explanation:
        chosen: dict[str, Any] = {
            "model": "m",
            "context": DOCS,
            "base_url": server.url,
            "features": "document",
            "surrogate": additive(WEIGHTS),
            "sampler": "leave-one-out",
            "target": "nll",
            "kernel": "uniform",
            "progress": False,
        }
        e: Explanation = ropelime.ask(question, **{**chosen, **options})
        return e

    return asked


def steps(e: Explanation) -> list[tuple[str, tuple[int, ...], bool | None]]:
    assert e.verified is not None
    return [(call.kind, call.features, call.changed) for call in e.verified.calls]


# What is asked, in which order, and what follows from it.


def test_the_part_that_the_answer_needs_becomes_the_first(server: Proxy, ask: Ask) -> None:
    before = ask()
    e = ask(verify=4)
    assert steps(e) == [
        ("without", (0,), False),
        ("without", (1,), False),
        ("without", (2,), True),
        ("again", (), False),
    ]
    assert len(server.seen) == 1 + 4
    sent = [body["messages"][0]["content"] for body in server.seen]
    assert sent[1] == sent[0].replace(DOCS[0] + "\n\n", "")
    assert sent[4] == sent[0], "the same prompt was sent again, past the cache"
    assert before.top(1)[0].index == 0
    assert [f.index for f in e.top()] == [2, 0, 1, 3, 4]
    assert e.ranks[2] == 1
    assert (e.ranks[[0, 1, 3, 4]] > 1).all(), "no part shares the rank of one that was seen"
    np.testing.assert_array_equal(e.weights, before.weights)
    assert e.trust is not None
    assert e.trust.value >= 0.95
    assert e.trust.text.startswith("Seen: without the first part m answers differently; with it, it")
    assert e.verified is not None
    third = e.verified.calls[2]
    assert (third.before, third.after, third.similarity) == (YES, NO, 0.0)
    assert (e.verified.model, e.verified.base_url, e.verified.stopped) == ("m", server.url, "")
    assert (e.verified.stable, e.verified.changed, e.verified.unchanged) == (True, (2,), (0, 1))


def test_once_the_answer_changed_other_calls_settle_more(server: Proxy, ask: Ask) -> None:
    server.otherwise = needs(0)
    e = ask(verify=4)
    assert steps(e) == [
        ("without", (0,), True),
        ("again", (), False),
        ("only", (0, 1, 2), False),
        ("without", (1,), False),
    ]
    assert e.verified is not None
    assert e.verified.suffices is True
    assert e.trust is not None
    assert e.trust.text.endswith("The first parts alone suffice.")
    content = server.seen[3]["messages"][0]["content"]
    assert [text in content for text in DOCS] == [True, True, True, False, False]
    assert "Where is it?" in content, "what is pinned stays"


def test_what_does_not_suffice(server: Proxy, ask: Ask) -> None:
    server.otherwise = needs(0, 4)
    e = ask(verify=8)
    assert ("only", (0, 1, 2), True) in steps(e)
    assert [f.index for f in e.top(2)] == [0, 4], "each of them is needed"
    assert e.trust is not None
    assert e.trust.text.endswith("do not suffice.")
    assert len(steps(e)) == 7, "nothing was left to try"


def test_parts_that_stand_in_for_each_other_keep_their_places(server: Proxy, ask: Ask) -> None:
    server.otherwise = depends(lambda text: DOCS[0] in text or DOCS[1] in text)
    before, e = ask(), ask(verify=5)
    assert steps(e)[-1] == ("without", (0, 1, 2, 3), True)
    assert [f.index for f in e.top()] == [0, 1, 2, 3, 4]
    assert e.trust is not None
    assert before.trust is not None
    assert e.trust.value == before.trust.value
    assert "they stand in for each other" in e.trust.text


def test_parts_that_are_not_needed_at_all_go_last(server: Proxy, ask: Ask) -> None:
    server.otherwise = says(YES)
    e = ask(verify=5)
    assert steps(e)[-1] == ("without", (0, 1, 2, 3), False)
    assert [f.index for f in e.top()] == [4, 0, 1, 2, 3]
    assert e.trust is not None
    assert e.trust.value <= 0.1
    assert "they are not needed" in e.trust.text


def test_what_was_refuted_alone_keeps_its_place_and_loses_trust(ask: Ask) -> None:
    e = ask(verify=1)
    assert steps(e) == [("without", (0,), False)]
    assert e.top(1)[0].index == 0
    assert e.trust is not None
    assert e.trust.value <= 0.3
    assert e.trust.text == (
        "Seen: m gives the same answer without the first part: by itself, it is not needed."
    )


def test_a_model_that_answers_by_chance_is_noticed(server: Proxy, ask: Ask) -> None:
    server.faults = [says(YES), says(NO), says(NO), says(YES), says(YES)]
    e = ask(verify=4)
    assert e.verified is not None
    assert steps(e)[0] == ("without", (0,), False), "it is like one of the answers to the whole prompt"
    assert steps(e)[1] == ("again", (), True)
    assert e.verified.stable is False
    assert "m gave another answer to the same prompt" in e.diagnostics.warnings[-1]
    assert e.trust is not None
    assert e.trust.value <= 0.3
    assert e.top(1)[0].index == 0


def test_an_answer_of_somebody_else_is_asked_for_first(server: Proxy, ask: Ask) -> None:
    made = ropelime.explain(
        context=DOCS, question="Where is it?", output=YES, features="document", target="nll",
        surrogate=additive(WEIGHTS), kernel="uniform", sampler="leave-one-out", progress=False,
    )  # fmt: skip
    with pytest.raises(InputError, match=r"does not say which model answered. Name it: model="):
        made.verify(4)
    e = made.verify(4, model="m", base_url=server.url, progress=False)
    assert [kind for kind, *_ in steps(e)] == ["again", "without", "without", "without"]
    assert e.top(1)[0].index == 2
    other = ask().verify(2, model="n", base_url=server.url, progress=False)
    assert [kind for kind, *_ in steps(other)] == ["again", "without"], (
        "n was not the one that answered"
    )


def test_few_features() -> None:
    def call(kind: str, features: tuple[int, ...], changed: bool) -> VerifyingCall:
        return VerifyingCall(kind, features, "a", "b", 0.0 if changed else 1.0, changed)

    same = [call("without", (i,), False) for i in (0, 1)]
    assert next_step([0, 1], same, own=True, most=2) == ("without", (0, 1))
    assert next_step([0, 1], same, own=True, most=1) is None, "nothing would be left of the prompt"
    seen = [call("without", (1,), True), call("again", (), False)]
    assert next_step([1, 0], seen, own=True, most=2) == ("without", (0,))
    assert next_step([1, 0, 2], seen, own=True, most=3) == ("only", (1,))


@given(st.integers(2, 9), st.sets(st.integers(0, 8)), st.booleans(), st.integers(1, 12))
def test_a_cause_among_the_first_is_found(n: int, causes: set[int], own: bool, most: int) -> None:
    """Whatever the answer depends on: a call is not repeated, and causes are found in their order."""
    calls: list[VerifyingCall] = []
    while len(calls) < most and (step := next_step(range(n), calls, own=own, most=n - 1)):
        kind, features = step
        gone = set(range(n)) - set(features) if kind == "only" else set(features)
        assert (kind, features) not in [(call.kind, call.features) for call in calls]
        assert gone < set(range(n)), "something is left to answer to"
        changed = bool(gone & causes)
        calls.append(VerifyingCall(kind, features, "a", "b", 1.0 - changed, changed))
    first = min((i for i in causes if i < n), default=None)
    before = 0 if first is None else first + (first >= 4) + (not own)  # calls before that of the cause
    if first is not None and most > before:
        alone = [c.features[0] for c in calls if c.changed and len(c.features) == 1]
        assert alone[0] == first or first >= 4


def test_later_calls_continue_the_earlier_ones(server: Proxy, ask: Ask) -> None:
    e, at_once = ask(verify=2), ask(verify=4, cache=False)
    later = e.verify(2, progress=False)
    assert steps(later) == steps(at_once)
    assert later.trust == at_once.trust
    assert later.verified is not None
    assert later.verified.requested == 4
    assert e.verified is not None
    assert e.verified.trust_before == later.verified.trust_before, "that of the estimate"


# Similarity.


def test_the_similarity_can_be_given(ask: Ask) -> None:
    def never(one: str, other: str) -> float:
        return 1.0

    e = ask(verify=3, similarity=never)
    assert e.verified is not None
    assert e.verified.measure == "never"
    assert e.verified.changed == ()
    assert ask(verify=3).verified.measure == "answer_f1"  # type: ignore[union-attr]


def test_what_was_seen_is_compared_anew_by_another_similarity(server: Proxy, ask: Ask) -> None:
    def always(one: str, other: str) -> float:
        return float(one == other == "")

    e = ask(verify=20)  # more than there is to try
    assert e.verified is not None
    later = e.verify(1, similarity=always, progress=False)
    assert later.verified is not None
    assert later.verified.measure == "always"
    assert all(call.similarity == 0 for call in later.verified.calls)


def test_an_answer_that_repeats_the_question_can_change(server: Proxy, ask: Ask) -> None:
    def fault(handler: Handler) -> None:
        known = DOCS[0] in json.dumps(handler.body["messages"])
        says(f"The town that Marta was born in was founded in {1540 if known else 1720}.")(handler)

    server.otherwise = fault
    e = ask("When was the town that Marta was born in founded?", verify=1)
    assert steps(e) == [("without", (0,), True)]


def test_a_similarity_that_fails_loses_nothing(ask: Ask) -> None:
    def picky(one: str, other: str) -> float:
        if NO in (one, other):
            raise ZeroDivisionError("no words")
        return 1.0

    e = ask(verify=4, similarity=picky, price=(1.0, 2.0))
    assert [changed for *_, changed in steps(e)] == [False, False, None]
    assert e.verified is not None
    assert e.verified.calls[-1].after == NO, "it is paid for"
    assert e.verified.cost == pytest.approx(3 * 0.0014)
    assert "similarity failed: ZeroDivisionError: no words" in e.diagnostics.warnings[-1]


def test_an_answered_call_is_kept_where_its_comparison_fails(ask: Ask) -> None:
    def similarity(one: str, other: str) -> float:
        if one == other == "An answer.":  # what is asked before anything is paid
            return 1.0
        raise RuntimeError("no")

    e = ask().verify(4, similarity=similarity, cache=False, progress=False)
    assert e.verified is not None
    assert len(e.verified.calls) == 1, "it was paid for"
    assert e.verified.calls[0].after
    assert "similarity failed" in e.verified.stopped
    ((_, outcome, _),) = outcomes(e)
    assert outcome.startswith("not compared: similarity failed")


def test_a_first_part_that_was_not_seen_keeps_its_trust(ask: Ask) -> None:
    e = ask()
    declined = VerifyingCall("without", (0,), YES, "", None, None, error="No.")
    same = VerifyingCall("without", (1,), YES, YES, 1.0, False)
    seen = with_verified(e, Verified("m", "http://there/v1", {}, "answer_f1", 0.5, 2, (declined, same)))
    assert seen.trust == e.trust


def test_the_same_prompt_that_was_sent_without_an_answer_is_not_called_unsent(ask: Ask) -> None:
    e = ask()
    changed = VerifyingCall("without", (0,), YES, NO, 0.0, True)
    again = VerifyingCall("again", (), YES, "", None, None, error="No.")
    seen = with_verified(e, Verified("m", "http://there/v1", {}, "answer_f1", 0.5, 2, (changed, again)))
    assert seen.trust is not None
    assert "The same prompt had no answer when it was sent again." in seen.trust.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verify": True}, "a whole number of calls"),
        ({"verify": -1}, "a whole number of calls"),
        ({"verify": 1, "similarity": "f1"}, "similarity must be a function"),
        ({"verify": 1, "similarity": lambda a, b: 2}, "number from 0 to 1, and it returned 2"),
        ({"verify": 1, "max_cost": -1}, "max_cost must be"),
        ({"verify": 1, "max_cost": 1}, r"max_cost needs the price.*--price-in"),
    ],
)
def test_what_is_refused_before_anything_is_paid(
    server: Proxy, ask: Ask, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ask(**options)
    assert server.seen == []


# Price, cap, cache.


def test_the_cost_is_said_before_and_counted_after(server: Proxy, ask: Ask, capsys: Capture) -> None:
    e = ask(verify=4, price=(1.0, 2.0), progress="auto")
    assert capsys.readouterr().err == (
        f"ropelime: verifying by at most 4 further calls of m at {server.url} · at most about 1,000 "
        "tokens in and about 200 out each · cost at most about 0.005600\n"
    )
    assert e.verified is not None
    assert e.verified.cost == pytest.approx(4 * 0.0014)
    again = ask(verify=4, price=(1.0, 2.0))
    assert len(server.seen) == 5 + 1, "all but the same prompt come from the cache"
    assert again.verified is not None
    assert again.verified.cost == pytest.approx(0.0014)
    assert [call.cached for call in again.verified.calls] == [True, True, True, False]


def test_the_cost_is_capped(server: Proxy, ask: Ask) -> None:
    e = ask(price=(1.0, 2.0))
    with pytest.raises(
        InputError, match=r"4 verifying calls may cost about 0.005600 in all.*raise max_cost"
    ):
        e.verify(4, max_cost=0.005, progress=False)
    assert len(server.seen) == 1
    assert e.verify(4, max_cost=0.006, progress=False).verified is not None
    usage = {"prompt_tokens": 1000, "completion_tokens": 2000}
    server.otherwise = says(YES, usage=usage)  # longer than expected
    dear = ask("And?", price=(1.0, 2.0))
    server.otherwise = says(YES, usage={**usage, "completion_tokens": 5000})
    e = dear.verify(3, max_cost=0.016, progress=False)
    assert e.verified is not None
    assert len(e.verified.calls) == 2
    assert "could exceed max_cost=0.016" in e.verified.stopped


def test_a_cap_does_not_lose_the_explanation(ask: Ask) -> None:
    e = ask(verify=4, price=(1.0, 2.0), max_cost=0.001)
    assert e.verified is not None
    assert e.verified.calls == ()
    assert "Verification ended after 0 of 4 calls" in e.diagnostics.warnings[-1]
    assert e.trust == ask().trust


# What goes wrong.


def test_what_was_paid_for_is_kept(server: Proxy, ask: Ask) -> None:
    e = ask(retries=0)
    server.faults = [needs(2), needs(2), busy(500)]
    part = e.verify(4, retries=0, progress=False)
    assert len(steps(part)) == 2
    assert part.verified is not None
    assert "answered 500" in part.verified.stopped
    assert part.diagnostics.warnings[-1].startswith("Verification ended after 2 of 4 calls: http")
    whole = part.verify(2, progress=False)
    assert [call[1] for call in steps(whole)] == [(0,), (1,), (2,), ()]
    assert not any("Verification ended" in text for text in whole.diagnostics.warnings)


def test_what_was_asked_before_ctrl_c_is_kept(
    server: Proxy, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    e = ask()
    e.save(tmp_path / "why.json")

    answer = AnsweringModel.answer
    calls = iter([answer, answer])

    def interrupted(self: AnsweringModel, call: Any, **how: Any) -> Any:
        made = next(calls, None)
        if made is None:
            raise KeyboardInterrupt
        return made(self, call, **how)

    monkeypatch.setattr(AnsweringModel, "answer", interrupted)
    with pytest.raises(Interrupted) as stop:
        e.verify(4, cache=False, progress=False)
    kept = stop.value.kept
    assert len(steps(kept)) == 2
    assert kept.diagnostics.warnings[-1].startswith("Verification ended after 2 of 4 calls: It was")

    calls = iter([answer])
    with pytest.raises(Interrupted) as stop:
        ask("And?", verify=4)
    assert stop.value.kept.output == YES, "the answer is paid for"
    assert stop.value.kept.config["answer"]["model"] == "m"
    assert stop.value.kept.verified.calls == ()

    calls = iter([])
    file = tmp_path / "why.json"
    assert main(["verify", str(file), "--base-url", server.url, "--no-cache", "--quiet"]) == 130
    assert ropelime.load(file).verified.stopped == "It was interrupted."  # type: ignore[union-attr]

    kept.save(file)
    again = ["verify", str(file), "--base-url", server.url, "--no-cache", "--quiet"]
    assert main([*again, "--model", "another"]) == 130
    assert ropelime.load(file).verified == kept.verified, "what another model showed is paid for, too"


def test_ctrl_c_while_answers_are_compared(ask: Ask) -> None:
    e = ask()
    compared: list[str] = []

    def judge(one: str, other: str) -> float:
        compared.append(one)
        if one == NO:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(Interrupted) as stop:
        e.verify(4, cache=False, progress=False, similarity=judge)
    kept = stop.value.kept
    assert [call.after for call in kept.verified.calls][-1] == NO, "paid for"
    assert kept.verified.calls[-1].error == "It was interrupted."
    assert kept.verified.calls[-1].changed is None


def test_a_server_that_fails_at_once(server: Proxy, ask: Ask) -> None:
    e = ask()
    server.otherwise = busy(503)
    with pytest.raises(ModelError, match="answered 503"):
        e.verify(4, retries=0, progress=False)
    assert e.verified is None
    server.faults = [says(YES)]
    kept = ask("And?", verify=4, retries=0)
    assert kept.output == YES
    assert "answered 503" in kept.diagnostics.warnings[-1]
    assert kept.verified is not None
    assert kept.verified.requested == 4


def test_one_call_that_is_declined_is_skipped(server: Proxy, ask: Ask) -> None:
    e = ask()
    server.faults = [raw(400, '{"error": {"message": "Not this."}}')]
    seen = e.verify(4, progress=False)
    assert steps(seen)[:3] == [
        ("without", (0,), None), ("without", (1,), False), ("without", (2,), True),
    ]  # fmt: skip
    assert seen.verified is not None
    assert "Not this" in seen.verified.calls[0].error
    server.otherwise = raw(400, '{"error": {"message": "Never."}}')
    with pytest.raises(ModelError, match="Never"):
        e.verify(2, cache=False, progress=False)


def test_no_answer_is_another_answer(server: Proxy, ask: Ask) -> None:
    e = ask()
    server.faults = [says(" ")]
    seen = e.verify(2, progress=False)
    assert steps(seen) == [("without", (0,), True), ("again", (), False)]
    assert seen.verified is not None
    assert seen.verified.calls[0].after == ""
    assert payload(seen)["verified"]["calls"][0]["after"] == "no answer"
    assert seen.top(1)[0].index == 0


def test_no_answer_costs_what_the_server_counted(server: Proxy, ask: Ask) -> None:
    e = ask(price=(1.0, 2.0))
    server.otherwise = says("", usage={"prompt_tokens": 1000, "completion_tokens": 2000})
    seen = e.verify(4, max_cost=0.006, progress=False).verified
    assert seen is not None
    assert seen.cost == pytest.approx(0.005)
    assert "could exceed max_cost=0.006" in seen.stopped
    server.otherwise = says("", usage={"total_tokens": 3})
    unknown = e.verify(4, max_cost=0.006, cache=False, progress=False).verified
    assert unknown is not None
    assert (len(unknown.calls), unknown.cost) == (4, None), "each counts as what it was estimated at"


def test_without_a_key_nothing_is_sent(
    server: Proxy, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    e = ask()
    e.save(tmp_path / "why.json")
    with pytest.raises(InputError, match=r"no key for https://api\.openai\.com"):
        e.verify(4, base_url="https://api.openai.com/v1")
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    loaded = ropelime.load(tmp_path / "why.json")
    with pytest.raises(InputError, match=r"To send your key there, pass base_url='http"):
        loaded.verify(1)
    assert len(server.seen) == 1, "a file does not say where keys go"
    loaded.verify(1, base_url=server.url, progress=False)
    assert server.keys[-1] == SECRET


def test_a_part_of_the_answer_is_not_verified(ask: Ask) -> None:
    e = ask(verify=4)
    part = e.for_output(0, 6)
    assert part.verified is None
    with pytest.raises(InputError, match="verify that of the whole answer"):
        part.verify(1)


def test_more_masks_keep_what_was_seen(ask: Ask) -> None:
    surrogate = FunctionSurrogate(additive(WEIGHTS))
    e = ask(verify=4, surrogate=surrogate, sampler="bernoulli", budget=12)
    more = e.extend(8, surrogate=surrogate, progress=False)
    assert more.verified is not None
    assert steps(more) == steps(e)
    assert more.top(1)[0].index == 2
    assert more.trust is not None
    assert more.trust.text == e.trust.text  # type: ignore[union-attr]


# Chats.

FIND = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": None, "tool_calls": [FIND]},
    {"role": "tool", "tool_call_id": "1", "content": "Dray."},
]


def test_tools_are_sent_again_as_they_were(server: Proxy, ask: Ask, tmp_path: Path) -> None:
    server.otherwise = depends(lambda text: "Dray" in text)
    given = {
        "context": None,
        "messages": CHAT,
        "features": "message",
        "surrogate": additive([2.0, 1, 3]),
    }
    ask(None, **given).save(tmp_path / "why.json")
    e = ropelime.load(tmp_path / "why.json").verify(2, progress=False)
    assert steps(e) == [("without", (2,), True), ("again", (), False)]
    assert server.seen[1]["messages"] == [*CHAT[:2], {**CHAT[2], "content": ""}]
    assert server.seen[2]["messages"] == CHAT
    assert "tool_call_id" not in report(e), "the page does not list the chat twice"


def test_tools_that_nobody_recorded_are_written_out(server: Proxy) -> None:
    server.otherwise = depends(lambda text: "Dray" in text)
    e = ropelime.explain(
        messages=CHAT, output=YES, features="message", surrogate=additive([2.0, 1, 3]), target="nll",
        kernel="uniform", sampler="leave-one-out", progress=False,
    )  # fmt: skip
    how: dict[str, Any] = {"model": "m", "base_url": server.url, "progress": False}
    assert steps(e.verify(2, **how)) == [("again", (), False), ("without", (2,), True)]
    assert server.seen[0]["messages"][2] == {"role": "user", "content": "Result of a tool:\nDray."}
    e.verify(2, messages=CHAT, **how)
    assert server.seen[2]["messages"] == CHAT
    with pytest.raises(InputError, match="not those that were explained"):
        e.verify(2, messages=CHAT[:1], **how)


# Files and views.


def test_files_come_back_equal(ask: Ask, tmp_path: Path) -> None:
    e = ask(verify=4, price=(1.0, 2.0))
    e.save(tmp_path / "why.json")
    loaded = ropelime.load(tmp_path / "why.json")
    assert loaded == e
    assert loaded.verified == e.verified
    assert [f.index for f in loaded.top()] == [2, 0, 1, 3, 4]
    assert loaded.verify(1, progress=False).verified.calls[:4] == e.verified.calls  # type: ignore[union-attr]


def test_older_files_have_none(ask: Ask) -> None:
    data = json.loads(ask().to_json())
    assert data.pop("verified") is None
    assert serialization.from_dict(data).verified is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "perhaps"}, "'perhaps' is not one of"),
        ({"features": [9]}, "names one of the features"),
        ({"features": []}, "has features"),
        ({"changed": None}, "no outcome"),
        ({"similarity": "1"}, "similarity"),
        ({"similarity": -1}, "similarity"),
        ({"cost": True}, "cost"),
        ({"after": 3}, "after is 3"),
        ({"cached": 1}, "cached"),
        ({"more": 1}, "more"),
    ],
)
def test_damaged_outcomes_are_refused(ask: Ask, change: dict[str, Any], message: str) -> None:
    data = json.loads(ask(verify=1).to_json())
    data["verified"]["calls"][0] |= change
    with pytest.raises(InputError, match=message):
        serialization.from_dict(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "model is 3"),
        ({"calls": 3}, "damaged"),
        ({"sampling": [1]}, "damaged"),
        ({"trust_before": {"value": 2.0, "text": ""}}, "expected 0 to 1"),
        ({"requested": True}, "requested is True"),
    ],
)
def test_damaged_verification_is_refused(ask: Ask, change: dict[str, Any], message: str) -> None:
    data = json.loads(ask(verify=1).to_json())
    data["verified"] |= change
    with pytest.raises(InputError, match=message):
        serialization.from_dict(data)


def test_the_terminal_shows_every_call(ask: Ask) -> None:
    out = io.StringIO()
    show(ask(verify=4), console=Console(file=out, width=100))
    lines = out.getvalue().splitlines()
    assert any(line.startswith("trust 95% · Seen: without the first part") for line in lines)
    assert "verified by 4 further calls of m · changed: answer_f1 below 0.5" in lines
    assert f"  Without “{DOCS[0]}”: same (1.00) → {YES}" in lines
    assert f"  Without “{DOCS[2]}”: changed (0.00) → {NO}" in lines
    assert f"  The same prompt: same (1.00) → {YES}" in lines
    assert any("the first 5 parts" in line for line in lines)


def test_the_page_has_every_call(ask: Ask) -> None:
    data = payload(ask(verify=4))
    assert data["order"] == [2, 0, 1, 3, 4]
    assert data["verified"]["seen"] is True
    assert [call["outcome"] for call in data["verified"]["calls"]] == [
        "same (1.00)", "same (1.00)", "changed (0.00)", "same (1.00)",
    ]  # fmt: skip
    assert data["verified"]["calls"][2]["after"] == NO
    assert payload(ask())["verified"] is None


def test_rows_and_briefs_say_what_each_part_did_alone(ask: Ask) -> None:
    seen, estimated = ask(verify=4), ask()
    expected = {2: "changed", 0: "same", 1: "same", 3: None, 4: None}
    assert {row["feature"]: row["verified"] for row in rows(seen)} == expected
    assert [part["verified"] for part in brief(seen, 3)["parts"]] == ["changed", "same", "same"]
    assert [part["verified"] for part in short(seen)["features"]] == [*expected.values()]
    for table in (rows(estimated), brief(estimated)["parts"]):
        assert {row["verified"] for row in table} == {None}
    assert "verified" not in short(estimated)["features"][0], "a batch has no verifying calls"


def test_a_data_frame_says_what_each_part_did_alone(ask: Ask) -> None:
    pytest.importorskip("pandas", reason="pip install 'ropelime[pandas]'")
    seen, estimated = ask(verify=4).to_dataframe(), ask().to_dataframe()
    assert seen["verified"].dropna().to_dict() == {2: "changed", 0: "same", 1: "same"}
    assert estimated["verified"].isna().all()
    assert estimated.columns.tolist() == seen.columns.tolist()


def test_a_plot_says_what_each_part_did_alone(ask: Ask) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'ropelime[plot]'")
    figure = ask(verify=4).plot()
    labels = [label.get_text().split("\n")[1:] for label in figure.axes[0].get_yticklabels()]
    assert labels == [["changed the answer"], *[["same answer without it"]] * 2, [], []]
    estimated = ask().plot()
    assert not any("\n" in label.get_text() for label in estimated.axes[0].get_yticklabels())
    assert figure.get_figheight() > estimated.get_figheight(), "there is room for a second line"


def test_a_plot_says_that_a_change_may_be_chance(ask: Ask) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'ropelime[plot]'")
    e = ask(verify=4)
    assert e.verified is not None
    calls = tuple(replace(c, changed=c.changed or c.kind == "again") for c in e.verified.calls)
    e = replace(e, verified=replace(e.verified, calls=calls))
    first, second = (label.get_text() for label in e.plot(top=2).axes[0].get_yticklabels())
    assert first.endswith("\nchanged the answer, perhaps by chance")
    assert second.endswith("\nsame answer without it")


def test_answers_cannot_act_on_a_view(server: Proxy, ask: Ask) -> None:
    e = ask()
    server.otherwise = says("\x1b[2J</script><script>hacked</script>")
    seen = e.verify(2, progress=False)
    out = io.StringIO()
    show(seen, console=Console(file=out, width=200))
    assert "\x1b" not in out.getvalue()
    assert "<script>hacked" not in report(seen)


@pytest.mark.parametrize("damage", ["m", {}, {"model": 3}, {"sampling": "hot"}])
def test_a_damaged_record_is_refused(server: Proxy, ask: Ask, damage: Any) -> None:
    e = ask()
    record = {**e.config["answer"], **damage} if damage and isinstance(damage, dict) else damage
    broken = replace(e, config={**e.config, "answer": record})
    with pytest.raises(InputError, match="is damaged"):
        broken.verify(1, progress=False)
    assert len(server.seen) == 1


# The command line.


@pytest.fixture
def asking(server: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    surrogate = FunctionSurrogate(additive(WEIGHTS))
    monkeypatch.setattr("ropelime.surrogate.load_surrogate", lambda *_, **__: surrogate)
    names = []
    for number, text in enumerate(DOCS):
        (tmp_path / f"{number}.txt").write_text(text)
        names.append(str(tmp_path / f"{number}.txt"))
    method = ["--features", "document", "--target", "nll", "--kernel", "uniform"]
    method += ["--sampler", "leave-one-out"]
    return [
        "ask",
        "Where is it?",
        "--context",
        *names,
        "--model",
        "m",
        "--base-url",
        server.url,
        *method,
    ]


def test_ask_verifies(asking: list[str], tmp_path: Path, capsys: Capture) -> None:
    prices = ["--price-in", "1", "--price-out", "2", "--max-cost", "1"]
    file = str(tmp_path / "why.json")
    assert main([*asking, "--verify", "4", *prices, "--json", file]) == 0
    out, err = capsys.readouterr()
    assert "verifying by at most 4 further calls of m" in err
    assert "cost at most about 0.005600" in err
    assert f"Without “{DOCS[2]}”: changed" in " ".join(out.split())
    assert ropelime.load(file).top(1)[0].index == 2


def test_verify_adds_to_a_file(
    asking: list[str], server: Proxy, tmp_path: Path, capsys: Capture
) -> None:
    file = str(tmp_path / "why.json")
    assert main([*asking, "--quiet", "--json", file]) == 0
    assert main(["verify", file, "--calls", "3", "--html", str(tmp_path / "why.html")]) == 0
    out, err = capsys.readouterr()
    assert "verifying by at most 3 further calls" in err
    assert f"Written to {file}" in out
    assert len(steps(ropelime.load(file))) == 3
    assert main(["verify", file, "-k", "1", "--json", str(tmp_path / "more.json"), "--quiet"]) == 0
    assert len(steps(ropelime.load(file))) == 3, "it was written elsewhere"
    assert len(steps(ropelime.load(tmp_path / "more.json"))) == 4


def test_commands_fail_and_keep_what_was_paid_for(
    asking: list[str], server: Proxy, tmp_path: Path, capsys: Capture
) -> None:
    file = str(tmp_path / "why.json")
    server.faults = [needs(2), needs(2), busy(500)]
    assert main([*asking, "--verify", "4", "--retries", "0", "--json", file]) == 1
    assert "Verification ended after 1 of 4 calls" in capsys.readouterr().err
    assert len(steps(ropelime.load(file))) == 1
    server.otherwise = busy(500)
    assert main(["verify", file, "--retries", "0"]) == 1
    assert "answered 500" in capsys.readouterr().err
    assert len(steps(ropelime.load(file))) == 1
    assert main(["verify", str(tmp_path / "none.json")]) == 1
    assert "There is no file" in capsys.readouterr().err
