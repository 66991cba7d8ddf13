"""Many explanations: the same as one by one, whatever the lines are and whenever it is killed."""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batch_toy import OPTIONS, check, go, write_lines
from ropelime import InputError, ModelError, explain
from ropelime.answering import AnsweringModel
from ropelime.batch import lines, local
from ropelime.batch.run import run
from ropelime.batch.store import Output, rows
from ropelime.batch.work import Settings, short
from ropelime.cli import main
from ropelime.options import Options
from ropelime.results.serialization import from_dict
from ropelime.surrogate.local import LocalSurrogate
from servers import Proxy, busy, raw, says
from toy import invented

Make = Callable[..., LocalSurrogate]
TOY = Path(__file__).parents[1] / "batch_toy.py"
LINES: list[dict[str, Any]] = [
    {
        "context": ["The Louvre is a museum in Paris. It is old.", "Paris lies on the Seine."],
        "question": "Where is the Louvre?",
        "output": "In Paris.",
    },
    {
        "prompt": "Berlin is the capital of Germany. The city has many museums. Which city is it?",
        "output": "Berlin",
    },
    {
        "messages": [
            {"role": "system", "content": "You are brief. You are kind."},
            {"role": "user", "content": "Paris is in France. Where is Paris?"},
        ],
        "output": "In France.",
    },
    {"prompt": "Paris is the capital of France.", "output": "Paris", "features": "word", "seed": 3},
    {
        "prompt": "The city has museums. It has a river. What has it?",
        "output": "A river.",
        "instead_of": "Museums.",
    },
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def put(path: Path, *given: dict[str, Any] | str | bytes) -> Path:
    with path.open("ab") as file:
        for line in given:
            text = json.dumps(line) if isinstance(line, dict) else line
            file.write((text.encode() if isinstance(text, str) else text) + b"\n")
    return path


def by_id(path: Path) -> dict[Any, dict[str, Any]]:
    found = list(rows(path))
    assert len({json.dumps(row["id"]) for row in found}) == len(found), "no id twice"
    return {row["id"]: row for row in found}


@pytest.mark.parametrize(
    "options", [{}, {"preset": "paper"}, {"preset": "faithful", "interactions": True}],
    ids=["evidence", "paper", "faithful"],
)  # fmt: skip
def test_a_batch_is_one_explanation_after_another(
    tiny: Make, source: Path, target: Path, options: dict[str, Any]
) -> None:
    given = [line for line in LINES if "instead_of" not in line or not options]
    put(source, *given, *given)  # the second half has the same prompts beside it in another order
    model = tiny("llama")
    settings = Settings(Options(**options), full=True)
    run(source, target, settings, partial(local.run, models=[model]), together=7)
    found = by_id(target)
    assert len(found) == 2 * len(given)
    for number, line in enumerate([*given, *given], 1):
        ours = from_dict({k: v for k, v in found[f"line {number}"].items() if k not in ("id", "error")})
        alone = explain(**{**options, **line}, surrogate=model, progress=False)
        assert np.array_equal(ours.surrogate_scores.masks, alone.surrogate_scores.masks)
        assert np.allclose(ours.weights, alone.weights, atol=1e-4)
        assert np.allclose(ours.token_weights, alone.token_weights, atol=1e-4)
        assert np.allclose(ours.normalized_weights, alone.normalized_weights, atol=1e-4)
        assert ours.cost == alone.cost, "whoever was read beside it"
        assert ours.config == json.loads(json.dumps(alone.to_dict()["config"]))


def test_lines_are_read_together(tiny: Make, source: Path, target: Path) -> None:
    model = tiny("llama")
    put(source, *LINES[:3] * 6)
    runs = []
    whole = model.engine.run
    model.engine.run = lambda rows, *a, **k: runs.append(len(rows)) or whole(rows, *a, **k)  # type: ignore
    run(source, target, Settings(), partial(local.run, models=[model]))
    assert len(by_id(target)) == 18
    assert len(runs) <= 2, "all that is to be read at first, and what some want on top"


def test_several_surrogates_and_another_preset(tiny: Make, source: Path, target: Path) -> None:
    models = [tiny("llama"), tiny("qwen2")]
    put(source, *LINES[:2])
    settings = Settings(Options(also="faithful"), surrogates=("a", "b"))
    run(source, target, settings, partial(local.run, models=models))
    row = by_id(target)["line 2"]
    e = explain(**LINES[1], surrogate=models, also="faithful", progress=False)
    assert e.also is not None
    for ours, alone in ((row, e), (row["also"], e.also)):
        weights = {f["start"]: f["normalized_weight"] for f in ours["features"]}
        assert [weights[f.start] for f in alone.features] == pytest.approx(
            alone.normalized_weights, abs=1e-4
        )


def test_a_short_row_holds_what_most_people_need(tiny: Make, source: Path, target: Path) -> None:
    put(source, {"id": 7, **LINES[0]})
    run(source, target, Settings(top=2), partial(local.run, models=[tiny("llama")]))
    row = by_id(target)[7]
    e = explain(**LINES[0], surrogate=tiny("llama"), progress=False)
    assert [f["text"] for f in row["features"]] == [share.text for share in e.top(2)]
    assert all(e.prompt.text[f["start"] : f["end"]] == f["text"] for f in row["features"])
    assert row["cost"] == {"masks": e.cost.masks, "tokens": e.cost.tokens}
    assert e.trust is not None
    assert row["trust"]["text"] == e.trust.text
    assert row["verdicts"] == pytest.approx(
        {each.name: each.probability for each in e.verdicts}, abs=1e-4
    )
    assert len(row["sentences"]) == len(e.grounding) > 0
    for ours, sentence in zip(row["sentences"], e.grounding, strict=True):
        assert row["output"][ours["start"] : ours["end"]] == sentence.text
        assert ours["probability"] == pytest.approx(sentence.probability, abs=1e-4)
    assert row["warnings"] == list(e.diagnostics.warnings)
    assert row["notes"] == list(e.diagnostics.notes)
    assert row["error"] is None


def test_a_short_row_names_the_sources_of_each_sentence() -> None:
    first, *others = short(invented())["sentences"]
    assert (first["start"], first["end"], first["sources"]) == (0, 27, [0])
    assert first["probability"] == pytest.approx(1, abs=0.1)
    assert [each["sources"] for each in others] == [[], []]


GOOD = {"id": "good", "prompt": "a b c d", "output": "yes"}
BAD: list[tuple[Any, str]] = [
    ('{"id": "a", "prompt": ', "This is not JSON"),
    (b'{"id": "\xff"}', "not UTF-8"),
    ("[" * 100_000, "This is not JSON"),
    ("[1, 2]", "A JSON object is needed, not list"),
    ({"prompt": "a b", "output": "c", "promt": 1}, "Unknown key 'promt'. Did you mean 'prompt'"),
    ({"prompt": "a b", "output": ""}, "output is empty"),
    ({"prompt": "a b", "output": 5}, "output must be"),
    ({"prompt": "a b"}, "no model to ask"),
    ({"output": "c"}, "Pass exactly one of prompt, context and messages"),
    ({"prompt": "a", "messages": [], "output": "c"}, "got prompt and messages"),
    ({"prompt": "a", "output": "c"}, "at least two"),
    ({"prompt": "a b c", "output": "d", "features": "letter"}, "Unknown"),
    ({"prompt": "a b c", "output": "d", "features": [[0, 99], [1, 2]]}, "features"),
    ({"prompt": "a b c", "output": "d", "seed": "x"}, "seed must be"),
    ({"id": ["a"], "prompt": "a b", "output": "c"}, "id must be a text or a whole number"),
    ({"id": True, "prompt": "a b", "output": "c"}, "id must be"),
    ({"id": "line 1", "prompt": "a b", "output": "c"}, "reserved for the line of that number"),
    ({"id": "good", "prompt": "a b", "output": "c"}, "An earlier line has the id 'good' too"),
    ({"prompt": "a b", "question": "b?", "output": "c"}, "question goes with context"),
    ({"messages": {"role": "user"}, "output": "c"}, "messages"),
]


def test_bad_lines_have_a_row_that_says_why_and_the_rest_is_done(source: Path, target: Path) -> None:
    put(source, GOOD, "", *(line for line, _ in BAD), {**GOOD, "id": "after"})
    summary = go(source, target)
    assert (summary.total, summary.before, summary.errors) == (len(BAD) + 2, 0, len(BAD))
    found = by_id(target)
    assert found["good"]["error"] is None
    assert found["after"]["error"] is None
    for number, (_, why) in enumerate(BAD, 3):
        assert why in found[f"line {number}"]["error"]
    before = target.read_bytes()
    assert go(source, target).before == summary.total, "what was refused is not tried again"
    assert target.read_bytes() == before


def test_a_line_too_long_is_refused_and_never_held(source: Path, target: Path) -> None:
    write_lines(source, 3)
    with source.open("ab") as file:
        file.write(b'{"prompt": "')
        for _ in range(50):
            file.write(b"a " * (1 << 19))
        file.write(b'", "output": "b"}\n')
    write_lines(source, 3, start=3)
    tracemalloc.start()
    go(source, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6, "its beginning at most"
    found = by_id(target)
    assert "52,428," in found["line 4"]["error"]
    assert [row for row in found.values() if row["error"]] == [found["line 4"]]
    assert len(found) == 7


def test_a_line_of_the_longest_length_is_read(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(GOOD)
    monkeypatch.setattr(lines, "LONGEST", len(text) + 2)
    put(source, text, text.replace("good", "good!"), text.replace("good", "gut"))
    source.write_bytes(source.read_bytes()[:-1])  # no newline behind the last one
    go(source, target)
    found = by_id(target)
    assert set(found) == {"good", "line 2", "gut"}
    assert "at most" in found["line 2"]["error"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"prompt": "It is. " * 1_100_000, "output": "b"}, "prompt has 7,700,000 characters"),
        ({"context": ["a"] * 1_500_000, "output": "b"}, "context has 1,500,000 parts"),
        ({"messages": [{"role": "user", "content": ""}] * 200_000, "output": "b"}, "200,000 parts"),
        (
            {"messages": [{"role": "user", "content": [{"text": "a"}] * 400_000}], "output": "b"},
            "messages has 400,000 parts",
        ),
        ({"prompt": "One. Two.", "output": "b" * 7_000_000}, "output has 7,000,000 characters"),
    ],
    ids=["prompt", "chunks", "messages", "parts", "output"],
)
def test_a_line_too_large_to_work_on_is_refused_first(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, line: dict[str, Any], words: str
) -> None:
    def cut(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is cut")

    put(source, line)
    monkeypatch.setattr("ropelime.steps.split", cut)
    tracemalloc.start()
    go(source, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words in by_id(target)["line 1"]["error"]
    assert peak < 350e6, "a little more than its JSON takes"


def test_errors_are_tried_again_when_told(source: Path, target: Path) -> None:
    put(source, GOOD, {"id": "short", "prompt": "a", "output": "c"}, "nothing")
    go(source, target, options=OPTIONS)
    assert go(source, target, retry_errors=True).errors == 2
    assert len(by_id(target)) == 3
    text = source.read_text().replace('"prompt": "a",', '"prompt": "a b c d",')
    source.write_text(text)  # mended
    summary = go(source, target, retry_errors=True)
    assert (summary.before, summary.errors) == (1, 1)
    assert by_id(target)["short"]["error"] is None
    assert not list(target.parent.glob("*.part"))


def test_an_input_that_has_grown(source: Path, target: Path) -> None:
    write_lines(source, 10)
    assert go(source, target, together=4).total == 10
    write_lines(source, 5, start=10)
    summary = go(source, target, together=4)
    assert (summary.total, summary.before) == (15, 10)
    check(target, [f"n{i}" for i in range(15)])


def test_a_first_line_that_gets_its_end_with_the_second(source: Path, target: Path) -> None:
    write_lines(source, 1)
    source.write_bytes(source.read_bytes().rstrip(b"\n"))
    go(source, target)
    with source.open("ab") as file:
        file.write(b"\n")
    write_lines(source, 1, start=1)
    assert go(source, target).before == 1
    assert list(by_id(target)) == ["n0", "n1"]


def test_a_damaged_row_with_others_behind_it_is_the_users_to_mend(source: Path, target: Path) -> None:
    go(write_lines(source, 5), target)
    whole = target.read_bytes()
    lines = whole.splitlines(keepends=True)
    for damage in (b"\n", b"[" * 100_000 + b"\n", b'{"id": 3}\n'):
        target.write_bytes(b"".join([*lines[:3], damage, *lines[4:]]))
        before = target.read_bytes()
        with pytest.raises(InputError, match="Line 4 of "):
            go(source, target)
        assert target.read_bytes() == before, "nothing is lost"
    target.write_bytes(b"".join(lines[:3]))
    go(source, target)
    assert list(by_id(target)) == [f"n{i}" for i in range(5)]


def test_errors_are_left_out_of_a_linked_file_in_its_place(tmp_path: Path, source: Path) -> None:
    put(write_lines(source, 2), "no JSON")
    real, link = tmp_path / "real" / "out.jsonl", tmp_path / "link.jsonl"
    real.parent.mkdir()
    real.touch(mode=0o600)
    link.symlink_to(real)
    beside = tmp_path / "real" / "out.jsonl.part"
    beside.write_text("mine")
    go(source, link)
    assert go(source, link, retry_errors=True).errors == 1
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert beside.read_text() == "mine"
    assert len(by_id(real)) == 3
    assert {path.name for path in real.parent.iterdir()} == {real.name, beside.name}


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"options": replace(OPTIONS, seed=1)}, "seed"),
        ({"full": True}, "full"),
        ({"options": replace(OPTIONS, features="sentence")}, "features"),
    ],
)
def test_other_settings_are_refused(
    source: Path, target: Path, changed: dict[str, Any], key: str
) -> None:
    go(write_lines(source, 3), target)
    before = target.read_bytes()
    with pytest.raises(InputError, match=rf"other settings \({key}\)"):
        go(source, target, **changed)
    assert target.read_bytes() == before


def test_places_that_cannot_be(source: Path, target: Path, tmp_path: Path) -> None:
    write_lines(source, 3)
    go(source, target)
    other = put(tmp_path / "other.jsonl", {"prompt": "another first line", "output": "b"})
    with pytest.raises(InputError, match=r"other settings \(input\)"):
        go(other, target)
    with pytest.raises(InputError, match="is the input itself"):
        go(source, source)
    with pytest.raises(InputError, match=r"is not a ropelime batch output\. Name another"):
        go(source, put(tmp_path / "foreign", "text"))
    assert (tmp_path / "foreign").read_text() == "text\n"
    for place, why in (
        ("none/out", "There is no folder"),
        (".", "is a folder"),
        ("/dev/null", "not a regular file"),
    ):
        with pytest.raises(InputError, match=why):
            go(source, tmp_path / place)
    with pytest.raises(InputError, match="No such file"):
        go(tmp_path / "none", target)
    with pytest.raises(InputError, match="is a folder"):
        go(tmp_path, target)
    with pytest.raises(InputError, match="has no lines"):
        go(put(tmp_path / "blank", "", "  "), tmp_path / "new")
    header = json.loads(target.read_text().split("\n")[0])
    del header["ropelime-batch"]
    with Output(target, header), pytest.raises(InputError, match="Another run is writing"):
        go(source, target)


def test_an_output_cut_anywhere_becomes_the_whole_one(source: Path, target: Path) -> None:
    write_lines(source, 6)
    go(source, target, together=2)
    whole = target.read_bytes()
    for cut in range(0, len(whole), 97):
        target.write_bytes(whole[:cut])
        go(source, target, together=2)
        assert target.read_bytes() == whole


def start(source: Path, target: Path, pause: float, **options: Any) -> subprocess.Popen[str]:
    folders = [str(TOY.parent), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TOY), str(source), str(target), str(pause)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env, **options)


@pytest.mark.slow
def test_kills_lose_nothing_and_double_nothing(source: Path, target: Path) -> None:
    write_lines(source, 200)
    rng = random.Random(1)
    for _ in range(8):  # `make fuzz` kills fifty
        with start(source, target, 0.004) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it has begun
            time.sleep(rng.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
    some = target.read_bytes()
    assert 0 < some.count(b"\n") < 200, "it was killed in the middle"
    assert go(source, target, together=4).total == 200
    check(target, [f"n{i}" for i in range(200)])
    assert target.read_bytes().startswith(some[: some.rindex(b"\n") + 1]), "nothing was done anew"


def test_a_full_disk_is_told_and_a_restart_goes_on(source: Path, target: Path) -> None:
    write_lines(source, 40)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000))
    with start(source, target, 0.0, preexec_fn=limit) as process:
        _, err = process.communicate()
    assert process.returncode == 1
    assert "File too large. Earlier rows are complete" in err
    size = target.stat().st_size
    assert target.read_bytes().endswith(b"\n"), "half a row was taken back"
    assert go(source, target, together=4).before > 4
    assert target.stat().st_size > size
    check(target, [f"n{i}" for i in range(40)])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    peaks: list[int] = []
    for count in (32, 32, 256):  # the first one pays for what is imported late
        source = write_lines(tmp_path / f"{count}-{len(peaks)}", count)
        tracemalloc.start()
        # Collecting empties the interpreter's own lists of free objects, which fill up once.
        go(source, tmp_path / f"out-{len(peaks)}", together=16, progress=lambda *_: gc.collect())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] - peaks[1] < 224 * 400, "bytes of a line; a row alone has more"


# Where the answering model is called.


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    pytest.importorskip("openai")
    monkeypatch.setenv("ROPELIME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-batch-0123456789")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Proxy(otherwise=says("yes")).running() as there:
        yield there


def asking(proxy: Proxy, tiny: Make, source: Path, target: Path, **options: Any) -> Any:
    answering = AnsweringModel("stand-in", proxy.url, price=(1.0, 2.0), retries=1)
    settings = Settings(answering=answering, concurrency=3)
    return run(source, target, settings, partial(local.run, models=[tiny("llama")]), **options)


def test_lines_without_an_output_are_asked(
    tiny: Make, proxy: Proxy, source: Path, target: Path
) -> None:
    questions = [{k: v for k, v in line.items() if k in lines.FORMS} for line in LINES[:3]]
    put(source, *questions, LINES[1], {"prompt": "One feature only"})
    proxy.faults = [busy(429)]
    summary = asking(proxy, tiny, source, target, together=2)
    found = by_id(target)
    assert summary.errors == 1
    assert "at least two" in found["line 5"]["error"]
    assert len(proxy.seen) == 4, "three questions, one of them twice; nothing for what is refused"
    assert [found[f"line {n}"]["output"] for n in range(1, 5)] == ["yes"] * 3 + ["Berlin"]
    answers = [found[f"line {n}"]["answer"] for n in range(1, 4)]
    assert {answer["cost"] for answer in answers} == {(1000 * 1.0 + 200 * 2.0) / 1e6}
    assert sum(answer["retries"] for answer in answers) == 1
    assert "answer" not in found["line 4"]
    target.unlink()
    asking(proxy, tiny, source, target)
    assert len(proxy.seen) == 4, "the same question is not paid twice"
    assert "sk-batch" not in target.read_text()


@pytest.mark.slow
def test_a_server_that_is_gone_ends_the_run_and_a_restart_goes_on(
    tiny: Make, proxy: Proxy, source: Path, target: Path
) -> None:
    put(source, *({"prompt": f"This is {i}. That is not. Is it?"} for i in range(40)))
    proxy.faults = [says("yes")] * 8
    proxy.otherwise = busy(500)
    with pytest.raises(Exception, match="The last 20 questions were not answered"):
        asking(proxy, tiny, source, target, together=8)
    proxy.otherwise = says("yes")
    assert asking(proxy, tiny, source, target, retry_errors=True).errors == 0
    assert len(by_id(target)) == 40


def test_questions_that_are_refused_are_rows_and_no_reason_to_give_up(
    tiny: Make, proxy: Proxy, source: Path, target: Path
) -> None:
    put(source, *({"prompt": f"This is {i}. That is not. Is it?"} for i in range(30)))
    proxy.otherwise = raw(400, '{"error": {"message": "This is against our policy."}}')
    assert asking(proxy, tiny, source, target, together=8).errors == 30
    assert all("against our policy" in row["error"] for row in by_id(target).values())


def test_what_was_answered_before_a_server_went_is_kept(
    tiny: Make, proxy: Proxy, source: Path, target: Path
) -> None:
    put(source, *({"prompt": f"This is {i}. That is not. Is it?"} for i in range(40)))
    answering = AnsweringModel("stand-in", proxy.url, retries=0)
    settings = Settings(answering=answering, concurrency=1)
    proxy.faults = [says("yes")] * 10
    proxy.otherwise = busy(500)
    with pytest.raises(ModelError, match="lines that have no row yet"):
        run(source, target, settings, partial(local.run, models=[tiny("llama")]))
    assert list(by_id(target)) == [f"line {n}" for n in range(1, 11)]
    assert all(row["error"] is None for row in by_id(target).values())


# The command.


def test_the_command(
    source: Path, target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(source, *LINES[:1])
    assert main(["batch", str(source), str(target), "--preset", "nothing"]) == 1
    assert main(["batch", str(source), str(target), "--actors", "2"]) == 1
    assert main(["batch", str(source), str(target), "--base-url", "http://localhost"]) == 1
    err = capsys.readouterr().err
    assert "Unknown preset" in err
    assert "--actors goes with --engine ray" in err
    assert "--base-url goes with --model" in err
    assert not target.exists()

    def stop(plan: Any, settings: Any, write: Any, **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run", stop)
    assert main(["batch", str(source), str(target)]) == 130
    err = capsys.readouterr().err
    assert "interrupted; 0 of 1 lines have a row" in err
    assert "repeat the command to resume" in err
    with pytest.raises(SystemExit):
        main(["batch", str(source), str(target.parent)])


@pytest.mark.real_model
def test_the_command_with_the_embedded_model(
    source: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(source, {"id": "paris", **LINES[1]}, "broken")
    how = ["--sampler", "leave-one-out", "--dtype", "float32"]
    assert main(["batch", str(source), str(target), *how]) == 0
    assert "has 2 rows, 2 of them new; 1 holds an error (--retry-errors)" in capsys.readouterr().out
    row = by_id(target)["paris"]
    e = explain(**LINES[1], sampler="leave-one-out", progress=False)
    assert row["features"][0]["text"] == e.top(1)[0].text
    before = target.read_bytes()
    assert main(["batch", str(source), str(target), *how, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert target.read_bytes() == before
