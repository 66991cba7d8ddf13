"""Results as other tools take them: annotations of Phoenix, and events of OpenTelemetry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import ropelime
from ropelime.cli import main
from ropelime.errors import InputError
from ropelime.traces.annotations import Judged, annotation, annotation_lines, otlp, otlp_json
from trace_samples import otel

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b1"
CAUSED = Judged(SPAN, TRACE, "caused_by", "tool", 0.75, "A tool's output.", {"message": 4})
SHARE = Judged(SPAN, TRACE, "share_of_user", score=0.25)


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in attributes}


def test_an_annotation_has_the_fields_of_phoenix() -> None:
    assert annotation(CAUSED) == {
        "span_id": SPAN,
        "name": "caused_by",
        "annotator_kind": "CODE",
        "result": {"label": "tool", "score": 0.75, "explanation": "A tool's output."},
        "metadata": {"message": 4, "trace_id": TRACE, "ropelime": ropelime.__version__},
        "identifier": "ropelime",
    }
    assert annotation(SHARE)["result"] == {"score": 0.25}, "what is not known is left out"
    lines = annotation_lines([CAUSED, SHARE]).splitlines()
    assert [json.loads(line) for line in lines] == [annotation(CAUSED), annotation(SHARE)]


def test_a_span_with_one_link_and_an_event_for_each_result() -> None:
    other = Judged("00f067aa0ba902b3", TRACE, "caused_by", "user")
    data = json.loads(otlp_json([CAUSED, SHARE, other], nanoseconds=7))
    (resource,) = data["resourceSpans"]
    assert values(resource["resource"]["attributes"]) == {"service.name": "ropelime"}
    first, second = resource["scopeSpans"][0]["spans"]
    assert first["links"] == [{"traceId": TRACE, "spanId": SPAN, "attributes": []}]
    assert (first["traceId"], first["parentSpanId"]) == (TRACE, SPAN)
    assert re.fullmatch("[0-9a-f]{16}", first["spanId"])
    assert len({SPAN, first["spanId"], second["spanId"]}) == 3
    assert {event["name"] for event in first["events"]} == {"gen_ai.evaluation.result"}
    assert [values(event["attributes"]) for event in first["events"]] == [
        {
            "gen_ai.evaluation.name": "caused_by",
            "gen_ai.evaluation.score.value": 0.75,
            "gen_ai.evaluation.score.label": "tool",
            "gen_ai.evaluation.explanation": "A tool's output.",
            "ropelime.metadata": '{"message": 4}',
        },
        {"gen_ai.evaluation.name": "share_of_user", "gen_ai.evaluation.score.value": 0.25},
    ]
    again = otlp([SHARE], nanoseconds=8)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert again["spanId"] == first["spanId"], "sent twice, it is one span"


def test_the_ids_of_a_trace_fit_and_the_file_is_a_trace_again() -> None:
    data = otel()
    found = ropelime.trace(data)
    results = [Judged(step.id, step.trace_id, "caused_by", "user") for step in found.model_steps]
    made = otlp(results)
    data["resourceSpans"] += made["resourceSpans"]
    again = ropelime.trace(data)
    assert len(again) == len(found) + 2
    assert again.model_steps[0].messages == found.model_steps[0].messages
    assert [step.parent for step in again if step.name == "ropelime.explain"] == [
        step.id for step in found.model_steps
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"span_id": ""}, "needs a span_id and a name"),
        ({"name": ""}, "needs a span_id and a name"),
        ({"label": ""}, "neither a label, a score nor an explanation"),
        ({"score": float("nan")}, "is nan; it must be finite"),
    ],
)
def test_results_that_say_nothing(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Judged(**{"span_id": SPAN, "trace_id": TRACE, "name": "caused_by", "label": "tool", **given})


def test_what_cannot_be_written() -> None:
    with pytest.raises(
        InputError, match="32 and a span id of 16 hexadecimal digits, not 't1' and 'b1'"
    ):
        otlp([Judged("b1", "t1", "caused_by", "user")])
    with pytest.raises(InputError, match="metadata of a result must be JSON data"):
        annotation_lines([Judged("b1", "t1", "caused_by", "user", metadata={"x": object()})])


@pytest.mark.slow
@pytest.mark.real_model
def test_the_page_about_traces_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its examples, from a trace to a check that fails, print the output shown."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "agents.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    Path("run.json").write_text(json.dumps(otel()), encoding="utf-8")
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n<!-- output -->\n```\n(.*?)```)?", page, re.DOTALL)
    assert sum(bool(shown) for _, shown in blocks) == 5
    for block, shown in blocks:
        exec(block, names)
        assert capsys.readouterr().out == shown or not shown
    assert json.loads(names["annotations"])["span_id"] == names["why"].step.id
    commands = re.findall(r"^ropelime (.*run.*json.*)$", page, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        failing = command.startswith("check")
        assert main(command.split()) == int(failing), command
    assert "Caused by the output of read_inbox" in Path("report.xml").read_text(encoding="utf-8")
    assert len(json.loads(Path("decisions.json").read_text(encoding="utf-8"))) == 2
