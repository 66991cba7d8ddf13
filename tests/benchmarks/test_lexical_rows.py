"""Rankings by words: their rows in new runs, and in results files that were made without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_toy import entry, example, mmlu_rows, sized, write_hotpotqa, write_mmlu
from benchmarks import data, experiments, lexical_rows, store
from benchmarks.cli import main
from benchmarks.names import BM25, CHANCE, LEXICAL, LONGEST_COMMON
from benchmarks.store import read, rewrite
from benchmarks.summary import load
from ropelime.surrogate import Surrogate


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two examples; in the first one, BM25 ranks the gold sentence first."""
    oda = entry("oda", ["Oda built it.", " It is red."], ["Oda lives in Paris."], [("B", 0)])
    oda["question"] = "Where does Oda live?"
    return write_hotpotqa(tmp_path / "hotpot.json", [oda, sized("four", 4)])


@pytest.fixture
def made(source: Path, tiny: Callable[..., Surrogate], tmp_path: Path) -> Path:
    """A new results file."""
    path = tmp_path / "hotpotqa-all.jsonl"
    examples = data.hotpotqa(source, context="all")
    how: dict[str, Any] = {"context": "all", "seed": 0, "limit": None, "command": "it"}
    experiments.run("hotpotqa", examples, tiny(), path, **how)
    return path


def strip(path: Path) -> None:
    """Make a file as those were that had no rankings by words."""
    header, rows = read(path)
    header["methods"] = [name for name in header["methods"] if name not in LEXICAL]
    rewrite(path, [header, *(row for row in rows if row["method"] not in LEXICAL)])


def test_a_row_is_the_agreement_of_the_ranking() -> None:
    prompt = "Rome is old.|Oda lives in Paris.|Bonn is small.| Where does Oda live?"
    first, second, third = 0, prompt.index("Oda"), prompt.index("Bonn")
    spans = ((first, second), (second, third), (third, prompt.index(" Where")))
    one = data.Example("x", "all", prompt, spans, np.array([False, True, False]), "In Paris")
    assert one.question == "Where does Oda live?"
    for name in LEXICAL:
        assert lexical_rows.row(name, one) == {"iou": 1.0, "f1": 1.0, "auroc": 1.0}


def test_the_question_is_the_prompt_where_features_fill_it() -> None:
    assert example().question == example().prompt
    assert example().parts == example().prompt.split()


def test_without_gold_there_is_no_agreement() -> None:
    none = dict.fromkeys(["iou", "f1", "auroc"])
    assert lexical_rows.row(BM25, example(gold="00000")) == none


def test_a_new_run_has_them(made: Path) -> None:
    header, rows = read(made)
    assert header["methods"][-3:] == [CHANCE, BM25, LONGEST_COMMON]
    (oda,) = [r for r in rows if (r["example"], r["method"]) == ("oda", BM25)]
    assert (oda["f1"], oda["auroc"], oda["gold"]) == (1, 1, 1)
    assert "tokens" not in oda


@pytest.mark.parametrize("packed", [False, True])
def test_an_old_file_gets_the_rows_of_a_new_run(made: Path, source: Path, packed: bool) -> None:
    expected = read(made)
    strip(made)
    path = store.compress(made) if packed else made
    assert main(["lexical", str(path), "--data", str(source)]) == 0
    assert read(path) == expected
    before = path.read_bytes()
    assert lexical_rows.add(path, source) == 0, "they are there"
    assert path.read_bytes() == before
    assert load(path).mean(BM25, "f1") is not None


def test_other_data_are_refused(made: Path, source: Path, tmp_path: Path, capsys: Any) -> None:
    strip(made)
    before = made.read_bytes()
    for number, other in enumerate(
        ([sized("five", 5)], [entry("oda", ["One."], ["Two."], [("A", 0)]), sized("four", 4)])
    ):
        there = write_hotpotqa(tmp_path / f"{number}.json", other)
        assert main(["lexical", str(made), "--data", str(there)]) == 1
        assert "was made from other data" in capsys.readouterr().err
        assert made.read_bytes() == before


def test_files_from_before_the_digest(made: Path, source: Path) -> None:
    strip(made)
    header, rows = read(made)
    del header["data"]
    rewrite(made, [header, *rows])
    assert lexical_rows.add(made, source) == 4


def test_other_experiments_are_refused(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "sweep.jsonl"
    rewrite(path, [{"ropelime-results": 1, "bench": "sweep", "methods": []}])
    assert main(["lexical", str(path)]) == 1
    assert "holds results of 'sweep'" in capsys.readouterr().err


def test_words_of_mmlu(tmp_path: Path) -> None:
    examples = data.mmlu(write_mmlu(tmp_path / "mmlu.csv", mmlu_rows()), limit=2)
    assert all(0 <= lexical_rows.row(BM25, one)["f1"] <= 1 for one in examples)
