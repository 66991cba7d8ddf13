"""Benchmark data: what becomes a feature, what is gold, and what is refused."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest

from bench_toy import LABELS, Entry, entry, mmlu_rows, sized, write_hotpotqa, write_mmlu
from benchmarks import data
from benchmarks.data import Example
from benchmarks.data.mmlu_words import word_spans
from ropelime.errors import InputError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
Context = Literal["gold", "all"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data"


def one(file: Path, given: Entry, context: Context = "gold") -> Example:
    (found,) = data.hotpotqa(write_hotpotqa(file, [given]), context=context)
    return found


def features(found: Example) -> list[str]:
    return [found.prompt[a:b] for a, b in found.spans]


class TestHotpotQA:
    def test_sentences_of_the_gold_paragraphs(self, file: Path) -> None:
        found = one(file, entry("x", ["One.", " Two."], ["Three.", " Four."], [("A", 1), ("B", 0)]))
        assert found.prompt == "Context:\nOne. Two.\n\nThree. Four.\n\nWho?"
        assert features(found) == ["One.", " Two.", "Three.", " Four."]
        assert found.gold.tolist() == [False, True, True, False]
        assert (found.id, found.group, found.answer) == ("x", "4-5", "Paris")

    def test_sentences_of_all_paragraphs(self, file: Path) -> None:
        given = entry("x", ["One.", " Two."], ["Three."], [("A", 1), ("B", 0)])
        found = one(file, given, "all")
        assert features(found) == [s for _, sentences in given["context"] for s in sentences]
        assert [f for f, g in zip(features(found), found.gold, strict=True) if g] == [" Two.", "Three."]
        assert found.group == "all"

    def test_blank_and_stray_sentences_go_with_the_one_before(self, file: Path) -> None:
        first = ["One.", " ", " Two.", ' "', ""]
        found = one(file, entry("x", first, ["Three.", " )."], [("A", 3), ("B", 0)]))
        assert features(found) == ["One.", ' Two. "', "Three. )."]
        assert found.gold.tolist() == [False, True, True]

    def test_spans_hold_every_letter_once(self, file: Path) -> None:
        first, second = ["", "One.", "—", "Two.", "  "], [" ", "Three.", "Four. "]
        found = one(file, entry("x", first, second, [("A", 1), ("B", 1)]), "all")
        ends = [0, *(b for _, b in found.spans)]
        assert all(end <= a < b for end, (a, b) in zip(ends, found.spans, strict=False))
        inside = "".join(features(found))
        body = found.prompt.removeprefix("Context:\n").removesuffix("Who?")
        assert "".join(inside.split()) == "".join(body.split())

    def test_all_sentences_gold(self, file: Path) -> None:
        found = one(file, entry("x", ["One."], ["Two."], [("A", 0), ("B", 0)]))
        assert found.gold.all()
        assert found.group == "2-3"

    def test_a_blank_paragraph_is_left_out(self, file: Path) -> None:
        given = entry("x", ["One."], ["Two."], [("A", 0), ("B", 0)])
        given["context"][0] = ["C", [" "]]
        assert len(one(file, given, "all").spans) == 9

    def test_without_facts_there_is_no_gold_paragraph_and_nothing_to_rank(self, file: Path) -> None:
        given = [entry("x", ["One."], ["Two."], []), entry("y", ["One."], ["!"], [("A", 0), ("B", 0)])]
        write_hotpotqa(file, [*given, sized("z", 4)])
        assert [e.id for e in data.hotpotqa(file, context="gold")] == ["z"]
        found = data.hotpotqa(file, context="all")
        assert [(e.id, bool(e.gold.any())) for e in found] == [("x", False), ("y", True), ("z", True)]

    @pytest.mark.parametrize(
        ("count", "name"),
        [
            (2, "2-3"),
            (3, "2-3"),
            (4, "4-5"),
            (5, "4-5"),
            (6, "6-8"),
            (8, "6-8"),
            (9, "9-11"),
            (11, "9-11"),
            (12, "12+"),
            (40, "12+"),
        ],
    )
    def test_buckets(self, file: Path, count: int, name: str) -> None:
        assert data.bucket(count) == name
        found = one(file, sized("x", count))
        assert (len(found.spans), found.group) == (count, name)

    def test_buckets_are_filled_in_the_order_of_the_file(self, file: Path) -> None:
        write_hotpotqa(
            file, [sized(str(i), count) for i, count in enumerate([2, 3, 5, 2, 12, 4, 13, 7])]
        )
        found = data.hotpotqa(file, context="gold", limit=2)
        assert [e.id for e in found] == ["0", "1", "2", "4", "5", "6", "7"]
        assert [e.id for e in data.hotpotqa(file, context="all", limit=3)] == ["0", "1", "2"]
        write_hotpotqa(file, [sized(str(i), 12) for i in range(30)])
        assert len(data.hotpotqa(file, context="gold")) == 24, "no more than the paper has"
        assert len(data.hotpotqa(file, context="all")) == 30

    def test_an_example_without_ten_paragraphs_is_skipped(self, file: Path) -> None:
        short = sized("short", 4)
        short["context"].pop()
        write_hotpotqa(file, [short, sized("x", 4)])
        for context in ("gold", "all"):
            assert [e.id for e in data.hotpotqa(file, context=context)] == ["x"]
        write_hotpotqa(file, [short])
        with pytest.raises(
            InputError, match=r"expected examples with ten paragraphs.*hotpotqa\.github\.io"
        ):
            data.hotpotqa(file, context="gold")

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "not JSON",
            "{}",
            "[]",
            "[1, 2]",
            '[["_id"]]',
            '[{"_id": "x", "question": "?"}]',
            '"text"',
        ],
    )
    def test_foreign_json(self, file: Path, content: str) -> None:
        file.write_text(content)
        with pytest.raises(InputError, match=rf"{file} is not what.*expected .*hotpotqa\.github\.io"):
            data.hotpotqa(file, context="gold")

    def test_a_later_example_that_lacks_something(self, file: Path) -> None:
        broken: dict[str, Any] = sized("y", 4)
        del broken["answer"]
        write_hotpotqa(file, [sized("x", 4), broken])
        with pytest.raises(InputError, match="with _id, answer, context"):
            data.hotpotqa(file, context="gold")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"supporting_facts": None},
            {"supporting_facts": {"title": ["A"], "sent_id": [0]}},
            {"supporting_facts": [["A", "first"]]},
            {"supporting_facts": [["A", None]]},
            {"supporting_facts": [["A", 0.5]]},
            {"supporting_facts": [["A"]]},
            {"supporting_facts": [[["A"], 0]]},
            {"context": None},
            {"context": ["One."] * 10},
            {"context": [["A"]] * 10},
            {"context": [["A", "One."]] * 10},
            {"context": [["A", [1]]] * 10},
            {"answer": None},
            {"answer": ["Paris"]},
            {"question": 1},
        ],
    )
    def test_a_later_example_of_another_shape(self, file: Path, wrong: dict[str, Any]) -> None:
        write_hotpotqa(file, [sized("x", 4), sized("y", 4) | wrong])
        for context in ("gold", "all"):
            with pytest.raises(
                InputError, match=r"expected a question and.* in example 'y'\. It takes"
            ):
                data.hotpotqa(file, context=context)


class TestMMLU:
    def test_words_labels_and_the_correct_choice(self, file: Path) -> None:
        found = data.mmlu(write_mmlu(file, mmlu_rows()))
        assert len(found) == 50
        for e, item in zip(found, LABELS["items"], strict=True):
            assert (e.id, e.group) == (f"row-{item['row']}", "words")
            assert features(e) == [f"w{i}" for i in range(item["n_words"])]
            assert e.gold.nonzero()[0].tolist() == sorted(item["influential"])
            assert e.answer == [f"a{item['row']}", "b", "c", "d, e"][item["row"] % 4]

    def test_limit(self, file: Path) -> None:
        write_mmlu(file, mmlu_rows())
        assert [e.id for e in data.mmlu(file, limit=3)] == [e.id for e in data.mmlu(file)][:3]

    def test_words_that_repeat_have_their_own_places(self) -> None:
        text = " a  an a\tan "
        assert [text[a:b] for a, b in word_spans(text)] == text.split()
        assert len(set(word_spans(text))) == 4

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "one,two\n",
            "q,a,b,c,d,E\n",
            "q,a,b,c,d,\n",
            "q,a,b,c,d,AB\n",
            "x" * 200_000,
            '[{"_id": 1}]',
        ],
    )
    def test_a_csv_of_another_shape(self, file: Path, content: str) -> None:
        file.write_text(content)
        with pytest.raises(
            InputError, match=r"expected a CSV of question, four choices.*hendrycks/test"
        ):
            data.mmlu(file)

    def test_other_questions(self, file: Path) -> None:
        rows = mmlu_rows()
        rows[LABELS["items"][7]["row"]][0] += " more"
        with pytest.raises(InputError, match=r"expected \d+ words in row \d+, not \d+\. It takes"):
            data.mmlu(write_mmlu(file, rows))

    def test_too_few_questions(self, file: Path) -> None:
        with pytest.raises(InputError, match="of 783 test questions"):
            data.mmlu(write_mmlu(file, mmlu_rows()[:10]))

    def test_the_labels(self) -> None:
        items = LABELS["items"]
        assert len({item["row"] for item in items}) == len(items) == 50
        for item in items:
            assert set(item) == {"row", "n_words", "influential"}
            assert all(
                type(value) is int for value in (item["row"], item["n_words"], *item["influential"])
            )
            assert 0 <= item["row"] < 783
            assert item["n_words"] >= 8
            assert len(set(item["influential"])) == 5
            assert all(0 <= position < item["n_words"] for position in item["influential"])

    def test_the_labels_hold_no_question(self) -> None:
        others = {key: value for key, value in LABELS.items() if key != "items"}
        assert all(isinstance(value, str) for value in others.values())
        assert len(json.dumps(others)) < 1500


def test_a_file_that_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for path, message in ((tmp_path / "no", "Pass the data with --data"), (tmp_path, "cannot be read")):
        with pytest.raises(InputError, match=message):
            data.hotpotqa(path, context="gold")
        with pytest.raises(InputError, match=message):
            data.mmlu(path)
    with pytest.raises(InputError, match="latin cannot be read"):
        data.mmlu(tmp_path / "latin")


def test_without_a_file_and_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"--data FILE, or .*pip install 'ropelime\[benchmarks\]'"):
        data.mmlu(None)
    with pytest.raises(InputError, match=r"--data FILE, or .*pip install 'ropelime\[benchmarks\]'"):
        data.hotpotqa(None, context="gold")


class Hub:
    """In the place of the hub's loader."""

    def __init__(self, rows: list[dict[str, Any]] | None) -> None:
        self.rows = rows

    def load_dataset(self, source: str, name: str, *, split: str) -> list[dict[str, Any]]:
        if self.rows is None:
            raise ConnectionError("no route\nmore")
        return self.rows


def test_the_hubs_copy_gives_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [sized("x", 4), sized("y", 7)]
    rows = [
        {
            "id": e["_id"],
            "question": e["question"],
            "answer": e["answer"],
            "context": {
                "title": [t for t, _ in e["context"]],
                "sentences": [s for _, s in e["context"]],
            },
            "supporting_facts": {
                "title": [t for t, _ in e["supporting_facts"]],
                "sent_id": [i for _, i in e["supporting_facts"]],
            },
        }
        for e in entries
    ]
    monkeypatch.setitem(sys.modules, "datasets", Hub(rows))
    there = data.hotpotqa(None, context="gold")
    here = data.hotpotqa(write_hotpotqa(file, entries), context="gold")
    assert [(e.id, e.prompt, e.spans) for e in there] == [(e.id, e.prompt, e.spans) for e in here]
    table = mmlu_rows()
    rows = [{"question": r[0], "choices": r[1:5], "answer": "ABCD".index(r[5])} for r in table]
    monkeypatch.setitem(sys.modules, "datasets", Hub(rows))
    answers = [e.answer for e in data.mmlu(write_mmlu(file, table))]
    assert [e.answer for e in data.mmlu(None)] == answers
    monkeypatch.setitem(sys.modules, "datasets", Hub(None))
    with pytest.raises(InputError, match=r"could not be fetched \(no route\). Connect, or pass --data"):
        data.mmlu(None)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data is not here")
def test_the_real_files() -> None:
    path = SHARED / "hotpotqa_dev_distractor_subset.json"
    found = data.hotpotqa(path, context="gold")
    sizes = Counter(e.group for e in found)
    assert [sizes[name] for name, _, _ in data.BUCKETS] == [96, 100, 99, 99, 24]
    assert all(e.gold.any() for e in found)
    assert len({e.id for e in found}) == len(found)
    assert len(data.hotpotqa(path, context="all", limit=160)) == 160
    questions = data.mmlu(SHARED / "mmlu_miscellaneous_test.csv")
    assert len(questions) == 50
    assert all(e.gold.sum() == 5 and e.answer for e in questions)
