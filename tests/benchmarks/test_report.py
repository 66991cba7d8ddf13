"""The page of results: numbers worked out by hand, on results files of a few lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import paper, report
from benchmarks.data import BUCKETS
from benchmarks.quality import sweep
from benchmarks.store import compress
from benchmarks.summary import COMMANDS, Results, load, spread
from ropelime.errors import InputError
from ropelime.method.samplers import SPARSE_K_SETTINGS

pytestmark = pytest.mark.slow

Row = dict[str, Any]
Make = Callable[..., Path]
GROUPS = [name for name, _, _ in BUCKETS]
SIZES = {"2-3": 3, "4-5": 5, "6-8": 7, "9-11": 10, "12+": 13, "all": 40, "words": 12}
SPARSE, EQUAL, LOO = "sparse-k", "sparse-k, LOO's tokens", "leave-one-out"


def row(example: str, method: str, iou: float, *, group: str = "6-8", **figures: Any) -> Row:
    known = {"example": example, "group": group, "features": SIZES[group], "gold": 2, "method": method}
    scores = {"iou": iou, "f1": 2 * iou / (1 + iou), "auroc": iou}
    if method == "chance":
        return {**known, **scores, **figures}
    return {
        **known,
        **scores,
        "lds": 0.5,
        "masks": 8,
        "tokens": 100,
        "seconds": 0.25,
        **figures,
    }


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def file(bench: str, context: str | None, rows: list[Row], name: str = "", **header: Any) -> Path:
        path = tmp_path / (name or f"{bench}-{context}.jsonl")
        top = {
            "ropelime-results": 1,
            "bench": bench,
            "context": context,
            "surrogate": {"name": "tiny", "dtype": "float32", "device": "cpu", "torch": "2.9.0"},
            "seed": 7,
            "limit": None,
            "command": f"python -m benchmarks {bench} --data mine.json",
            "versions": {"ropelime": "1.2.3"},
            "methods": list(dict.fromkeys(r["method"] for r in rows)),
            **header,
        }
        path.write_text("".join(json.dumps(line) + "\n" for line in [top, *rows]), encoding="utf-8")
        return path

    return file


@pytest.fixture
def gold(make: Make) -> Path:
    """Two examples in every bucket: Sparse-K finds the gold in one of them, leave-one-out in none."""
    rows = []
    for group in GROUPS:
        for number, iou in enumerate((1.0, 0.0)):
            example = f"{group} {number}"
            curves = {"drop1": 2.0 + 2 * number, "drop3": None, "insertion": -1.0, "deletion": -3.0}
            rows += [
                row(example, SPARSE, iou, group=group, **curves),
                row(example, EQUAL, iou, group=group, tokens=90),
                row(example, LOO, 0.0, group=group, tokens=90),
                row(example, "chance", 0.25, group=group),
            ]
    return make("hotpotqa", "gold", rows)


@pytest.fixture
def words(make: Make) -> Path:
    """Four questions; gSMILE without LDS and tokens."""
    rows = []
    for number, iou in enumerate((0.0, 0.25, 0.5, 1.0)):
        cost = {"lds": None, "tokens": None, "generations": 61, "seconds": 6.0}
        rows += [
            row(f"row-{number}", "rope-lime", iou, group="words"),
            row(f"row-{number}", "gsmile", iou / 2, group="words", **cost),
            row(f"row-{number}", "chance", 0.3, group="words"),
        ]
    return make("mmlu", None, rows)


@pytest.fixture
def grid(make: Make) -> Path:
    """One example; the larger c the better, and k does nothing, but for one setting in front."""
    worth = {"M": 0.5, "16k": 0.5, "8k": 0.4, "4k": 0.3, "M/2": 0.2, "M/4": 0.1}
    rows = [
        row("a", s, 0.75 if s == "sparse-k:4sqrt:4k" else worth[s.split(":")[2]])
        for s in SPARSE_K_SETTINGS
    ]
    return make("sweep", None, [*rows, row("a", "chance", 0.25)])


def cells(page: str, first: str, *, after: str = "") -> list[str]:
    """The cells of the first line of a table that begins with a name, behind some heading."""
    line = next(x for x in page[page.index(after) :].splitlines() if x.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def page_of(tmp_path: Path, *files: Path) -> str:
    return report.write(files, tmp_path / "docs")[0].read_text(encoding="utf-8")


class TestSpread:
    def test_mean_and_deviation(self) -> None:
        found = spread(np.array([0.0, 0.5, 1.0, 0.5]))
        assert found is not None
        assert (found.n, found.mean) == (4, 0.5)
        assert found.std == pytest.approx(0.125**0.5)

    def test_the_interval_is_the_same_every_time_and_holds_the_mean(self) -> None:
        values = np.random.default_rng(3).random(50)
        first, second = spread(values), spread(values)
        assert first == second
        assert first is not None
        assert first.low < first.mean < first.high
        # A mean of 50 values has the standard error std / sqrt(50); 90 % lie within 1.645 of them.
        width = 2 * 1.645 * first.std / 50**0.5
        assert first.high - first.low == pytest.approx(width, rel=0.1)

    def test_of_a_constant_is_a_point(self) -> None:
        found = spread(np.array([0.25, 0.25]))
        assert found is not None
        assert (found.low, found.high, found.std) == (0.25, 0.25, 0.0)

    def test_of_nothing_is_nothing(self) -> None:
        assert spread(np.array([])) is None


class TestLoading:
    def test_incomplete_examples_are_left_out_and_counted(self, make: Make) -> None:
        rows = [row("a", SPARSE, 1.0), row("a", "chance", 0.25), row("b", SPARSE, 0.0)]
        results = load(make("hotpotqa", "gold", rows))
        assert [r["example"] for r in results.examples()] == ["a"]
        assert results.missing == 1

    def test_examples_that_were_never_begun_are_counted(self, make: Make) -> None:
        results = load(make("hotpotqa", "gold", [row("a", SPARSE, 1.0)], examples=5))
        assert results.missing == 4

    def test_nulls_are_no_zeros(self, make: Make) -> None:
        rows = [row("a", SPARSE, 1.0, lds=None), row("b", SPARSE, 1.0, lds=0.8)]
        results = load(make("hotpotqa", "all", rows))
        assert results.mean(SPARSE, "lds") == 0.8
        assert results.mean(SPARSE, "drop1") is None

    def test_averages_over_methods_are_taken_in_each_example(self, make: Make) -> None:
        rows = [
            row("a", "x", 0.0),
            row("a", "y", 1.0),
            row("b", "x", 1.0),
            row("b", "y", 1.0, lds=None),
        ]
        results = load(make("ablation", "gold", rows))
        assert results.averaged(["x", "y"], "iou").tolist() == [0.5, 1.0]
        assert results.averaged(["x", "y"], "lds").tolist() == [0.5, 0.5], "y has none in b"

    @pytest.mark.parametrize(
        ("bench", "context"),
        [("speed", None), ("hotpotqa", None), ("ablation", "some"), (None, "gold")],
    )
    def test_a_file_of_another_kind_is_refused(self, make: Make, bench: str, context: str) -> None:
        path = make(bench, context, [row("a", SPARSE, 1.0)], name="other.jsonl")
        with pytest.raises(InputError, match=r"other\.jsonl says .* knows"):
            load(path)

    def test_a_foreign_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.jsonl"
        path.write_text('{"hello": 1}\n', encoding="utf-8")
        with pytest.raises(InputError, match="is not a ropelime results file"):
            report.write([path], tmp_path / "docs")

    def test_rows_without_figures_are_refused(self, make: Make) -> None:
        rows = [row("a", SPARSE, 1.0), {"example": "b", "method": SPARSE}]
        with pytest.raises(InputError, match="line 3: no auroc, f1"):
            load(make("hotpotqa", "gold", rows))

    def test_doubled_rows_are_refused(self, make: Make) -> None:
        with pytest.raises(InputError, match="line 3: a second row"):
            load(make("hotpotqa", "gold", [row("a", SPARSE, 1.0), row("a", SPARSE, 1.0)]))


class TestGold:
    def test_means_deviations_and_chance(self, gold: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, gold)
        after = "### Gold, 9-11 sentences"
        ours = cells(page, SPARSE, after=after)
        assert ours[1].startswith("0.500 ± 0.500 [0.000, 1.000]")
        assert ours[4:8] == ["0.500", "3.00", "–", "–"], "LDS and the drops"
        assert ours[8:] == ["-1.00", "-3.00", "8.0", "100", "0.250"]
        assert cells(page, "chance", after=after)[1:4] == ["0.250", "0.400", "0.250"]
        assert cells(page, "paper, LOO, Qwen-8B", after=after)[1] == "0.193 ± 0.223"
        best = cells(page, "paper, best Sparse-K, Qwen-8B (2√M, min(M, 16k))", after=after)
        assert best[1:4] == ["0.355 ± 0.310", "0.455 ± 0.312", "0.622 ± 0.213"]

    def test_the_summary_comes_first(self, gold: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, gold)
        assert cells(page, SPARSE)[1:] == ["0.500 / 0.500 / 0.500"] * 5
        assert cells(page, "chance")[1:] == ["0.250 / 0.400 / 0.250"] * 5
        assert cells(page, "paper, LOO, Qwen-8B")[5] == "0.246 / 0.298 / 0.566"

    def test_the_command_and_what_it_ran_with_stand_above(self, gold: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, gold)
        above = page[: page.index("| method |")]
        assert "```\npython -m benchmarks hotpotqa --data mine.json\n```" in above
        assert (
            "Surrogate tiny, float32 on cpu; ropelime 1.2.3, torch 2.9.0; seed 7; 10 examples" in above
        )

    def test_examples_where_all_is_gold_are_counted(self, make: Make, tmp_path: Path) -> None:
        rows = [
            row("a", SPARSE, 1.0, group="2-3", gold=3, auroc=None),
            row("b", SPARSE, 0.5, group="2-3"),
        ]
        page = page_of(tmp_path, make("hotpotqa", "gold", rows))
        assert "2 examples, of which AUROC leaves out 1 (every feature gold)" in page
        ours = cells(page, SPARSE, after="### Gold, 2-3")
        assert ours[1].startswith("0.750")
        assert ours[3].startswith("0.500 ± 0.000")

    def test_it_tells_where_sparse_k_is_leave_one_out(self, make: Make, tmp_path: Path) -> None:
        rows = [
            row("a", EQUAL, 0.5),
            row("a", LOO, 0.5, seconds=9.0),
            row("b", EQUAL, 0.5),
            row("b", LOO, 0.5, tokens=99),
        ]
        page = page_of(tmp_path, make("hotpotqa", "gold", rows))
        same = "equals `leave-one-out` in every metric and in its tokens in 1 of 2 examples."
        assert f"AUROC leaves out 0. `sparse-k, LOO's tokens` {same}" in page


def test_all_paragraphs_show_tokens_against_contextcite(make: Make, tmp_path: Path) -> None:
    rows = [
        row("a", "contextcite", 0.5, group="all", tokens=1000),
        row("a", "one-at-a-time", 0.5, group="all", tokens=110),
        row("a", "chance", 0.1, group="all"),
    ]
    page = page_of(tmp_path, make("hotpotqa", "all", rows))
    assert cells(page, "one-at-a-time")[-1] == "0.11"
    assert cells(page, "contextcite")[-1] == "1.00"
    assert cells(page, "chance")[-1] == "–"


class TestSweep:
    def test_ranks_by_f1_and_puts_equal_settings_together(self, grid: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, grid)
        first, second = cells(page, "1"), cells(page, "2")
        assert first[1] == "(4√M, min(M, 4k))"
        assert first[6:8] == ["(4√M, min(M, 8k))", "0.445 ± 0.330"], "the paper's, beside it"
        assert second[1].count("=") == 5, "M and min(M, 16k), for three k"
        assert cells(page, "3")[1].count("=") == 2

    def test_the_grid(self, grid: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, grid)
        assert cells(page, "IoU: k \\ c")[1:4] == ["M", "0.5M", "0.25M"]
        assert cells(page, "4√M") == ["4√M", "0.500", "0.200", "0.100", "0.500", "0.400", "0.750"]
        assert "Chance: 0.250 / 0.400 / 0.250" in page


class TestMmlu:
    def test_quartiles(self, words: Path, tmp_path: Path) -> None:
        ours = cells(page_of(tmp_path, words), "rope-lime", after="### MMLU, IoU")
        assert ours[1].startswith("0.438 ± 0.370 [")
        # Sorted 0, ¼, ½, 1: the median is ⅜, the quartiles 3/16 and 5/8.
        assert ours[2:] == ["0.375 [0.438]", "0.000", "1.000"]

    def test_the_paper_and_chance(self, words: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, words)
        theirs = cells(page, "paper, gSMILE, gpt-4o-mini", after="### MMLU, F1")
        assert theirs[1:] == ["0.368 ± 0.216", "0.400 [0.300]", "0.000", "0.800"]
        assert cells(page, "chance", after="### MMLU, IoU")[1] == "0.300"

    def test_the_difference_is_paired(self, words: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, words)
        after = page[page.index("### MMLU, IoU") : page.index("### MMLU, F1")]
        # Half of 0, ¼, ½ and 1, whose mean is 7/16; the ends are those of the bootstrap.
        assert "Paired difference, rope-lime minus gsmile: +0.219 [" in after

    def test_costs_and_labels_are_told(self, words: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, words)
        after = "### MMLU, cost"
        assert cells(page, "gsmile", after=after)[1:] == ["61", "–", "8.0", "–", "6.000"]
        assert cells(page, "rope-lime", after=after)[1] == "0"
        assert "one annotator, a language model" in page
        assert "not made by people" in page


class TestAblation:
    @pytest.fixture
    def page(self, make: Make, tmp_path: Path) -> str:
        """kl adds .4 and ridge .2 to nothing; one more kernel was run for kl and wls alone."""
        rows = []
        for sampler in ("a", "b"):
            for target in ("kl", "nll"):
                for kernel in ("uniform", "rope-rwmd"):
                    for regressor in ("wls", "ridge"):
                        iou = 0.4 * (target == "kl") + 0.2 * (regressor == "ridge")
                        name = " | ".join((sampler, target, kernel, regressor))
                        rows.append(row("x", name, iou, tokens=100 if sampler == "a" else 300))
        rows.append(row("x", "a | kl | rope-rwmd, layer 0 | wls", 0.9))
        return page_of(tmp_path, make("ablation", "gold", [*rows, row("x", "chance", 0.25)]))

    def test_marginal_means(self, page: str) -> None:
        assert cells(page, "kl", after="### By target")[1::2][:2] == ["8", "0.500"]
        assert cells(page, "nll", after="### By target")[3] == "0.100"
        assert cells(page, "ridge", after="### By regressor")[3] == "0.400"
        assert cells(page, "b", after="### By sampler")[-1] == "300"

    def test_more_kernels_are_compared_where_all_were_run(self, page: str) -> None:
        plain = page[page.index("### By kernel") : page.index("### By regressor")]
        assert "layer 0" not in plain
        for kernel, iou in (
            ("uniform", "0.400"),
            ("rope-rwmd", "0.400"),
            ("rope-rwmd, layer 0", "0.900"),
        ):
            assert cells(page, kernel, after="### Spaces")[1::2][:2] == ["1", iou]

    def test_the_best(self, page: str) -> None:
        best = page[page.index("### The 10 best") :].splitlines()[4:14]
        assert best[0].startswith("| a | kl | rope-rwmd, layer 0 | wls |")
        assert sum(line.startswith("| ") for line in best) == 10


class TestPage:
    def test_what_is_written(self, gold: Path, words: Path, grid: Path, tmp_path: Path) -> None:
        docs = tmp_path / "new" / "docs"
        written = report.write([grid, words, gold], docs)
        names = {"results.md"} | {
            f"figures/{name}.{kind}"
            for name in ("hotpotqa", "mmlu", "sweep")
            for kind in ("svg", "png")
        }
        assert {path.relative_to(docs).as_posix() for path in written} == names
        page = written[0].read_text(encoding="utf-8")
        assert page.index("## HotpotQA, gold") < page.index("## Sparse-K") < page.index("## MMLU")
        for path in written:
            assert path.stat().st_size > 1000
        for name in ("hotpotqa", "mmlu", "sweep"):
            assert f"(figures/{name}.svg)" in page

    def test_same_results_same_bytes(self, gold: Path, words: Path, grid: Path, tmp_path: Path) -> None:
        first = report.write([gold, words, grid], tmp_path / "one")
        second = report.write([grid, gold, words], tmp_path / "two")
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]

    def test_compressed_results_make_the_same_page(self, words: Path, tmp_path: Path) -> None:
        plain = page_of(tmp_path, words)
        packed = page_of(tmp_path, compress(words))
        assert packed == plain.replace("`mmlu-None.jsonl`", "`mmlu-None.jsonl.xz`") != plain

    def test_no_page_judges_its_numbers(self, gold: Path, words: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, gold, words).lower()
        judgements = ("target reached", "missed", "verdict")  # words: ok
        assert not [word for word in judgements if word in page]

    def test_missing_sections_say_what_would_make_them(self, words: Path, tmp_path: Path) -> None:
        page = page_of(tmp_path, words)
        for section, command in COMMANDS.items():
            assert (f"No results yet. Run: `{command}`" in page) == (section != ("mmlu", None))
        assert "figures/hotpotqa" not in page

    def test_a_file_without_complete_examples(self, make: Make, tmp_path: Path) -> None:
        path = make(
            "hotpotqa", "gold", [row("a", SPARSE, 1.0)], methods=[SPARSE, "chance"], examples=418
        )
        written = report.write([path], tmp_path / "docs")
        page = written[0].read_text(encoding="utf-8")
        assert len(written) == 1
        assert "418 more examples are missing or incomplete" in page
        assert "| method |" not in page

    def test_two_files_of_one_section_are_refused(self, gold: Path, make: Make, tmp_path: Path) -> None:
        other = make("hotpotqa", "gold", [row("a", SPARSE, 1.0)], name="again.jsonl")
        with pytest.raises(InputError, match=r"again\.jsonl both hold"):
            report.write([gold, other], tmp_path / "docs")

    def test_the_page_of_notes_is_linked_where_it_is(self, words: Path, tmp_path: Path) -> None:
        page = report.write([words], tmp_path / "docs")[0]
        assert "notes.md" not in page.read_text(encoding="utf-8")
        (tmp_path / "docs" / "notes.md").touch()
        report.write([words], tmp_path / "docs")
        assert "\n\nComments on these tables: [notes.md](notes.md).\n\n" in page.read_text("utf-8")

    def test_examples_without_gold_are_counted(self, make: Make, tmp_path: Path) -> None:
        none = {"gold": 0, "iou": None, "f1": None, "auroc": None}
        rows = [row("a", SPARSE, 1.0), {**row("b", SPARSE, 1.0), **none}]
        page = report.write([make("hotpotqa", "gold", rows)], tmp_path / "docs")[0].read_text("utf-8")
        assert "IoU, F1 and AUROC leave out 1 (no feature gold)" in page
        assert "2 examples; AUROC leaves out 0, IoU, F1 and AUROC leave out 1 without gold." in page

    def test_no_files_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="at least one"):
            report.write([], tmp_path)

    def test_a_file_in_place_of_the_folder_is_refused(self, words: Path) -> None:
        with pytest.raises(InputError, match="not a folder"):
            report.write([words], words)

    def test_without_matplotlib(
        self, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(InputError) as caught:
            report.write([words], tmp_path / "docs")
        assert "pip install 'ropelime[plot]'" in str(caught.value)
        assert not (tmp_path / "docs" / "results.md").exists()


class TestPaper:
    def test_settings_are_ours(self) -> None:
        for rows in paper.SWEEP.values():
            assert {r.setting for r in rows} <= set(SPARSE_K_SETTINGS)
        for group, best in paper.SPARSE_K.items():
            assert best in paper.SWEEP[group]

    def test_buckets_are_ours(self) -> None:
        assert list(paper.SPARSE_K) == list(paper.LEAVE_ONE_OUT) == list(paper.SWEEP) == GROUPS

    def test_the_sweep_is_ordered_by_f1(self) -> None:
        for rows in paper.SWEEP.values():
            assert [r.f1.mean for r in rows] == sorted((r.f1.mean for r in rows), reverse=True)

    def test_f1_and_iou_do_not_contradict(self) -> None:
        for table in (paper.SPARSE_K, paper.LEAVE_ONE_OUT):
            for scores in table.values():
                # F1 = 2 IoU / (1 + IoU) in every example, which is concave.
                assert scores.iou.mean <= scores.f1.mean <= 2 * scores.iou.mean / (1 + scores.iou.mean)

    def test_labels(self) -> None:
        assert paper.label("sparse-k:sqrt:M/4") == "(√M, 0.25M)"
        assert paper.label("sparse-k:4sqrt:8k") == "(4√M, min(M, 8k))"


def test_settings_that_were_not_run_are_blank(make: Make) -> None:
    results: Results = load(make("sweep", None, [row("a", "sparse-k:sqrt:M", 0.5)]))
    page = "\n".join(sweep.tables(results))
    assert cells(page, "√M")[1:3] == ["0.500", "–"]
