"""``python -m benchmarks`` from end to end: every experiment, and the page of results."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_toy import entry, mmlu_rows, sized, write_hotpotqa, write_mmlu
from benchmarks import methods
from benchmarks.cli import main
from benchmarks.cli.shared import command
from benchmarks.store import read
from conftest import byte_level, tiny_model

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
Bench = Callable[..., int]
RUNS = {
    "hotpotqa-gold": ["hotpotqa", "--context", "gold", "--limit", "1"],
    "hotpotqa-all": ["hotpotqa", "--context", "all", "--limit", "3"],
    "sweep": ["sweep", "--limit", "1"],
    "ablation-gold": ["ablation", "--limit", "1"],
    "mmlu": ["mmlu", "--limit", "3"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and small data, where the results go too."""
    folder = tmp_path_factory.mktemp("bench")
    tiny_model("llama").model.save_pretrained(folder / "tiny")
    byte_level("chatml").save_pretrained(folder / "tiny")
    all_gold = entry("all gold", ["One is."], ["Two is."], [("A", 0), ("B", 0)])
    write_hotpotqa(
        folder / "hotpot.json", [all_gold, sized("four", 4), sized("six", 6), sized("two", 2)]
    )
    write_mmlu(folder / "mmlu.csv", mmlu_rows())
    return folder


@pytest.fixture
def bench(place: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Runs an experiment by its name in ``RUNS``; later options count."""
    monkeypatch.chdir(place)

    def experiment(name: str, *more: str) -> int:
        data = "mmlu.csv" if name == "mmlu" else "hotpot.json"
        model = ["--surrogate", str(place / "tiny"), "--dtype", "float32", "--device", "cpu"]
        return main([*RUNS[name], "--data", data, *model, *more])

    return experiment


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_experiment_runs_and_is_not_run_again(
    name: str, bench: Bench, place: Path, capsys: Capture
) -> None:
    assert bench(name) == 0
    file = place / "results" / f"{name}.jsonl"
    printed = capsys.readouterr()
    assert printed.out == f"Written to results/{name}.jsonl\n"
    assert all("min left" in line for line in printed.err.splitlines()), "progress, if it takes long"
    header, rows = read(file)
    assert header["bench"] == RUNS[name][0]
    assert header["examples"] == 3
    assert len(rows) == 3 * len(header["methods"])
    assert {row["method"] for row in rows} == set(header["methods"])
    assert "chance" in header["methods"]
    assert str(place) not in header["command"], "a command for anyone"
    for row in rows:
        assert row["auroc"] is None if row["gold"] == row["features"] else 0 <= row["auroc"] <= 1
        assert 0 <= row["iou"] <= row["f1"] <= 1
    before = file.read_bytes()
    assert bench(name) == 0
    assert file.read_bytes() == before
    capsys.readouterr()
    assert bench(name, "--seed", "1") == 1
    assert "was written with other settings (seed)" in capsys.readouterr().err
    assert file.read_bytes() == before


def rows_of(place: Path, name: str) -> list[dict[str, Any]]:
    return read(place / "results" / f"{name}.jsonl")[1]


@pytest.fixture
def ran(bench: Bench, place: Path) -> Path:
    """The same folder after every experiment; those that ran before do nothing."""
    assert [bench(name, "--quiet") for name in RUNS] == [0] * len(RUNS)
    return place


@pytest.mark.slow
def test_what_is_in_the_rows(ran: Path) -> None:
    gold = rows_of(ran, "hotpotqa-gold")
    assert list(dict.fromkeys(row["group"] for row in gold)) == ["2-3", "4-5", "6-8"]
    assert all({"lds", "drop1", "insertion", "deletion", "masks", "tokens"} <= set(r) for r in gold[:7])
    tokens = {(row["example"], row["method"]): row.get("tokens") for row in gold}
    for name in ("four", "six"):
        cut, loo = tokens[name, "sparse-k, LOO's tokens"], tokens[name, "leave-one-out"]
        assert cut is not None
        assert loo is not None
        assert cut <= loo
    gsmile = [row for row in rows_of(ran, "mmlu") if row["method"] == "gsmile"]
    assert [row["generations"] for row in gsmile] == [61] * 3
    assert [row["gold"] for row in gsmile] == [5] * 3
    assert len(rows_of(ran, "sweep")) == 3 * 19
    assert len(rows_of(ran, "ablation-gold")) == 3 * (len(methods.ablation()) + 1)


@pytest.mark.slow
def test_the_report(ran: Path, capsys: Capture) -> None:
    files = sorted(str(path) for path in (ran / "results").glob("*.jsonl"))
    assert len(files) == len(RUNS)
    assert main(["report", *files, "--docs", str(ran / "docs")]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert written[0] == ran / "docs" / "results" / "results.md"
    assert all(path.stat().st_size for path in written)
    assert {path.suffix for path in written[1:]} == {".svg", ".png"}
    page = written[0].read_text(encoding="utf-8")
    for name in RUNS:
        assert read(ran / "results" / f"{name}.jsonl")[0]["command"] in page


@pytest.mark.slow
def test_a_finished_file_is_compressed(
    bench: Bench, place: Path, tmp_path: Path, capsys: Capture
) -> None:
    results = tmp_path / "mine.jsonl"
    run = ["--results", str(results), "--quiet"]
    assert bench("mmlu", *run) == 0
    before = read(results)
    assert main(["compress", str(results)]) == 0
    assert capsys.readouterr().out == f"{results}.xz\n"
    assert read(Path(f"{results}.xz")) == before
    assert bench("mmlu", *run) == 1
    assert "python -m benchmarks compress --undo" in capsys.readouterr().err
    assert main(["report", f"{results}.xz", "--docs", str(tmp_path)]) == 0
    assert before[0]["command"] in (tmp_path / "results" / "results.md").read_text(encoding="utf-8")
    assert main(["compress", "--undo", f"{results}.xz"]) == 0
    assert bench("mmlu", *run) == 0
    assert read(results) == before


def test_the_help_says_how_results_are_kept(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "the same command resumes a run that was stopped" in out
    assert "`compress` replaces its file by results/NAME.jsonl.xz" in out


def test_a_cut_file_is_resumed(bench: Bench, place: Path) -> None:
    results = place / "cut.jsonl"
    assert bench("hotpotqa-gold", "--results", str(results)) == 0
    whole = results.read_bytes()
    results.write_bytes(whole[: int(len(whole) * 0.6)])
    assert bench("hotpotqa-gold", "--results", str(results), "--quiet") == 0
    a, b = ([json.loads(x) for x in data.splitlines()] for data in (whole, results.read_bytes()))
    assert [{**row, "seconds": 0} for row in a] == [{**row, "seconds": 0} for row in b]


def test_an_example_without_gold_is_shown(bench: Bench, place: Path) -> None:
    write_hotpotqa(
        place / "other.json", [sized("x", 4), entry("no gold", ["One is."], ["Two is."], [])]
    )
    results = place / "hotpotqa-no-gold.jsonl"
    assert bench("hotpotqa-all", "--data", "other.json", "--results", str(results), "--quiet") == 0
    rows = read(results)[1]
    assert {row["iou"] for row in rows if row["example"] == "no gold"} == {None}
    assert main(["report", str(results), "--docs", str(place / "other")]) == 0
    page = (place / "other" / "results" / "results.md").read_text(encoding="utf-8")
    assert "2 examples" in page
    assert "IoU, F1 and AUROC leave out 1 (no feature gold)" in page


def test_data_are_known_by_what_is_in_them(bench: Bench, place: Path, capsys: Capture) -> None:
    given = [sized("x", 4), sized("y", 4)]
    write_hotpotqa(place / "one.json", given)
    write_hotpotqa(place / "renamed.json", given)
    write_hotpotqa(place / "changed.json", [given[0], given[1] | {"answer": "London"}])
    more = ["--results", str(place / "known.jsonl"), "--data"]
    assert bench("hotpotqa-all", *more, "one.json") == 0
    header = read(place / "known.jsonl")[0]
    assert len(header["data"]) == 16
    assert header["base_url"] is None
    assert bench("hotpotqa-all", *more, "renamed.json") == 0
    assert bench("hotpotqa-all", *more, "changed.json") == 1
    assert "was written with other settings (data)" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder(
    bench: Bench, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").touch()
    assert bench("sweep", "--data", str(place / "hotpot.json")) == 1
    assert "results is a file" in capsys.readouterr().err


def test_the_command_can_be_given_again(place: Path) -> None:
    options: dict[str, Any] = {"bench": "mmlu", "limit": None, "seed": 0, "device": None}
    options |= {"dtype": "float32", "generator": "m", "base_url": "http://there/v1"}
    hub = Namespace(**options, surrogate="org/model", data=place / "mmlu.csv")
    end = "--dtype float32 --generator m --base-url http://there/v1"
    assert command(hub) == f"python -m benchmarks mmlu --surrogate org/model {end} --data mmlu.csv"
    local = Namespace(**options, surrogate=str(place / "tiny"), data=None)
    assert command(local) == f"python -m benchmarks mmlu --surrogate tiny {end}"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("hotpotqa-gold", ["--limit", "0"], "--limit must be at least 1"),
        ("hotpotqa-gold", ["--seed", "-1"], "--seed must not be negative"),
        ("hotpotqa-gold", ["--data", "none.json"], "There is no file none.json. Pass the data"),
        ("hotpotqa-gold", ["--data", "mmlu.csv"], "expected a JSON list of HotpotQA examples"),
        ("mmlu", ["--data", "hotpot.json"], "expected a CSV of question, four choices and a letter"),
        ("sweep", ["--results", "no/such/file"], "There is no folder no/such"),
        ("sweep", ["--results", "."], "is a folder"),
        ("sweep", ["--results", "mmlu.csv"], "is not a ropelime results file"),
        ("sweep", ["--surrogate", "smollm3"], "Did you mean 'smollm2'"),
    ],
)
def test_what_is_refused_exits_with_1(
    bench: Bench, name: str, arguments: list[str], message: str, capsys: Capture
) -> None:
    assert bench(name, *arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("ropelime: ")
    assert message in err
    assert out == ""


@pytest.mark.real_model
def test_the_embedded_model(tmp_path: Path, capsys: Capture) -> None:
    first = ["Oda Kelm built the lighthouse.", " It is red."]
    given = entry("kelm", first, ["Ships come in summer."], [("A", 0), ("B", 0)])
    given |= {"question": "Who built the lighthouse?", "answer": "Oda Kelm"}
    data = str(write_hotpotqa(tmp_path / "hotpot.json", [given]))
    results = tmp_path / "results.jsonl"
    arguments = ["--context", "gold", "--limit", "1", "--data", data, "--results", str(results)]
    assert main(["hotpotqa", *arguments, "--device", "cpu", "--dtype", "float32"]) == 0
    header, rows = read(results)
    assert header["surrogate"]["name"] == "smollm2"
    assert header["command"] == (
        "python -m benchmarks hotpotqa --context gold --limit 1 --device cpu --dtype float32 "
        "--data hotpot.json"
    )
    loo = next(row for row in rows if row["method"] == "leave-one-out, nll")
    assert loo["drop1"] > 3, "without its sentence the name is unlikely"
