"""Results of ``python -m benchmarks long`` become ``docs/results/long.md``."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.long.needles import KINDS, is_right
from benchmarks.store import Row, read

_COMMAND = "python -m benchmarks long"
_ANY = "one, of any kind"
_ONE = tuple(kind for kind in KINDS if kind != "two")
_READ = 7  # of 4,096 tokens in passages of at most 192, a third are the first by words


def write(results: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page.

    Args:
        results: Results files of ``python -m benchmarks long``.
        docs: The folder of the page.
    """
    runs = [_Run(path) for path in sorted(results)]
    holes = {
        "needles": _table(runs, "needles", _needles),
        "words": _table(runs, "words", _words),
        "overlooked": _table(runs, "needles", _overlooked),
        "sentences": _table(runs, "sentences", _sentences),
        "cost": _table(runs, "needles", _cost),
        "answers": _table(runs, "answers", _answers),
        "peers": _table(runs, "cost", _peers),
        "window": _table(runs, "window", _window),
    }
    return [pages.write(docs, "long", **holes)]


class _Run:
    """One results file."""

    def __init__(self, path: Path) -> None:
        self.header, rows = read(path)
        self.rows = [row for row in rows if "skipped" not in row]
        self.kind = str(self.header["kind"])
        self.model = str(self.header.get("surrogate", {}).get("name", ""))
        machine = self.header.get("machine", {"cpu": "", "threads": 0})
        self.machine = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} threads"
        # On a CPU that other processes use too, its own seconds are what a run takes.
        self.clock = "seconds" if machine.get("gpu") else "processor"
        answering = self.header.get("answering")
        self.answers = "given" if answering is None else f"by {answering['name']}"

    def groups(self, *keys: str) -> dict[tuple[Any, ...], list[Row]]:
        """The rows by some of their entries, in their order."""
        found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.rows:
            found[tuple(row[key] for key in keys)].append(row)
        return dict(sorted(found.items(), key=lambda item: [str(x).zfill(9) for x in item[0]]))


def _table(runs: Sequence[_Run], kind: str, make: Callable[[Sequence[_Run]], str]) -> str:
    some = [run for run in runs if run.kind == kind and run.rows]
    if not some:
        return pages.no_results(f"{_COMMAND} {kind}{'' if kind == 'window' else ' --data FILE'}")
    return pages.blocks(pages.commands(*(run.header["command"] for run in some)), make(some))


def _needles(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        groups = run.groups("size", "kind")
        for size in sorted({size for size, _ in groups}):
            of_one = [row for kind in _ONE for row in groups.get((size, kind), [])]
            groups[size, _ANY] = of_one
        for (size, kind), found in sorted(groups.items(), key=lambda item: item[0]):
            best = 3 if kind == "two" else 1
            right = [row for row in found if is_right(row, run.header["seed"])]
            rows.append([run.model, run.answers, f"{size:,}", kind, str(len(found)), str(len(right))])
            for name in ("places", "bm25"):
                hits = [max(row[name]) <= best for row in right]
                rows[-1].append(pages.number(statistics.mean(hits) if hits else None, ".2f"))
    head = ["surrogate", "answer", "tokens", "needle", "prompts", "right answers", "found", "BM25"]
    return pages.table(head, rows)


def _words(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        for (size, kind), found in run.groups("size", "kind").items():
            best = 1 if kind in _ONE else 3
            shares = [
                statistics.mean(max(row[name]) <= most for row in found)
                for name, most in (("bm25", best), ("words", best), ("words", _READ))
            ]
            rows.append([f"{size:,}", kind, str(len(found))])
            rows[-1] += [pages.number(share, ".2f") for share in shares]
    head = [
        "tokens",
        "needle",
        "prompts",
        "found by BM25",
        "found by words",
        f"words: in first {_READ}",
    ]
    return pages.table(head, rows)


def _overlooked(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        for (size,), found in run.groups("size").items():
            some = [row for row in found if row["read"] is not None]
            some = [row for row in some if is_right(row, run.header["seed"])]
            if not some:
                continue
            lost = statistics.mean(len(row["read"]) < len(row["gold"]) for row in some)
            said = statistics.mean(row["overlooked"] for row in some)
            rows.append([run.model, run.answers, f"{size:,}", str(len(some))])
            rows[-1] += [pages.number(said, ".2f"), pages.number(lost, ".2f")]
    head = ["surrogate", "answer", "tokens", "right answers", "estimated probability, mean"]
    head += ["needle not read closely"]
    return pages.table(head, rows) if rows else "No prompt was longer than the window."


def _sentences(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        for found in run.groups("size").values():
            f1 = [_f1(row["places"]) for row in found]
            words = [_f1(row["bm25"]) for row in found]
            tokens = statistics.mean(row["tokens"] for row in found)
            count = statistics.mean(row["features"] for row in found)
            rows.append([run.model, f"{count:,.0f}", f"{tokens:,.0f}", str(len(found))])
            rows[-1] += [pages.number(statistics.mean(each)) for each in (f1, words)]
    head = ["surrogate", "sentences", "tokens", "prompts", "F1", "F1 of BM25"]
    return pages.table(head, rows)


def _f1(places: Sequence[int]) -> float:
    """The part of the labelled sentences among as many first ones."""
    return statistics.mean(place <= len(places) for place in places)


def _cost(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        sizes = run.groups("size")
        first = next(iter(sizes.values()))
        base = _Medians(first, run.clock)
        for (size,), found in sizes.items():
            each = _Medians(found, run.clock)
            ratios = [
                each.scored / each.tokens,
                each.memory / base.memory,
                (each.seconds / base.seconds) / (each.tokens / base.tokens),
            ]
            rows.append([run.model, run.machine, f"{size:,}", f"{each.tokens:,.0f}"])
            rows[-1] += [f"{ratio:.2f}" for ratio in ratios]
    head = ["surrogate", "machine", "size", "tokens of the prompt", "scored, in prompts"]
    head += ["peak memory, in that of the first row", "time per token, in that of the first row"]
    return pages.table(head, rows)


class _Medians:
    """Medians of some rows."""

    def __init__(self, rows: Sequence[Row], clock: str) -> None:
        self.tokens, self.scored, self.memory, self.seconds = (
            max(statistics.median(row[name] for row in rows), 1e-9)
            for name in ("tokens", "scored", "memory", clock)
        )


def _peers(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        pace = {
            name: way["seconds"] / way["tokens"]
            for row in run.rows
            for name, way in row["ways"].items()
            if "seconds" in way
        }
        for row in run.rows:
            for name, way in row["ways"].items():
                known = way.get("seconds") or way["tokens"] * pace.get(name, 0.0)
                rows.append([f"{row['tokens']:,}", str(row["features"]), name, f"{way['tokens']:,}"])
                rows[-1] += [
                    f"{way['tokens'] / row['tokens']:,.1f}",
                    f"{known:,.0f}" if known else pages.NONE,
                ]
                rows[-1].append(
                    "measured" if "seconds" in way else "estimated" if known else pages.NONE
                )
    head = ["tokens of the prompt", "parts", "way", "tokens scored", "in prompts", "seconds", ""]
    return pages.table(head, rows)


def _window(runs: Sequence[_Run]) -> str:
    rows = [
        [
            *(run.model, run.machine, f"{row['size']:,}", str(row["masks"]), f"{row['scored']:,}"),
            *(f"{row['seconds']:.1f}", f"{row['rate'] / 1e12:,.1f}", f"{row['part']:.0%}"),
        ]
        for run in runs
        for row in run.rows
    ]
    head = ["shape", "machine", "tokens of the prompt", "masks", "tokens scored", "seconds"]
    head += ["matrix rate, 10¹² operations/s", "part of it that scoring reaches"]
    return pages.table(head, rows)


def _answers(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        for (grouped,), found in run.groups("grouped").items():
            for name in ("ours", "instant"):
                known = _agreement(name, found, run.clock)
                rows.append([run.model, str(len(found)), _way(name, grouped), *known])
    head = ["surrogate", "answers", "way", "parts", "answer tokens", "tokens, in forward passes"]
    head += ["time, in forward passes", "leave-one-out, the same", "rank correlation", "same first"]
    head += ["first of it in first three", "first three in common", "first is what the answer follows"]
    head += ["leave-one-out, the same"]
    return pages.table(head, rows)


def _way(name: str, grouped: bool) -> str:
    return name if name == "instant" else "groups" if grouped else "leave-one-out"


def _agreement(name: str, rows: Sequence[Row], clock: str) -> list[str]:
    passes = [row["tokens"] + row["answer"] for row in rows]

    def times(way: str) -> str:
        ratios = [row[clock][way] / row[clock]["plain"] for row in rows]
        return f"{statistics.median(ratios):.1f}"

    scored = "–"
    if name == "ours":
        ratios = [row["scored"]["ours"] / one for row, one in zip(rows, passes, strict=True)]
        scored = f"{statistics.median(ratios):.1f}"
    known = ("rank correlation", "same first", "first in three", "same three")
    means = [statistics.mean(row[name][key] or 0.0 for row in rows) for key in known]
    counts = [statistics.median(row[key] for row in rows) for key in ("features", "answer")]
    agreement = [pages.number(mean, ".2f") for mean in means]
    found = [_true(name, rows), _true("full", rows)]
    return [*(f"{c:.0f}" for c in counts), scored, times(name), times("full"), *agreement, *found]


def _true(name: str, rows: Sequence[Row]) -> str:
    """In how many of the labelled rows a way ranks first what the answer follows."""
    labelled = [row["true"][name] for row in rows if row.get("true")]
    return f"{sum(labelled)} of {len(labelled)}" if labelled else "–"
