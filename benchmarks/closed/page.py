"""Results of ``python -m benchmarks closed`` become ``docs/results/truth.md``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pages
from benchmarks.closed import headline, labelled, place
from benchmarks.closed.attempts import shares
from benchmarks.closed.measures import NO_EFFECT, SIGNALS, lost_without
from benchmarks.names import EVIDENCE
from benchmarks.pages import NONE, number
from benchmarks.store import Row, read
from benchmarks.summary import spread
from ropelime.results.verification import CHANGED_BELOW
from ropelime.typing import Floats, Ints

BASELINE = "BM25(question + 2 × answer)"
_COLUMNS = {
    "necessity1": "necessity 1",
    "necessity3": "necessity 3",
    "kept1": "answer kept without 1",
    "changes": "first changes the answer",
    "verified": "the same after 4 calls",
    "sufficiency2": "sufficiency 2",
    "sufficiency4": "sufficiency 4",
    "lds": "LDS",
    "first": "first is labelled",
    "f1": "F1",
    "auroc": "AUROC",
    "tokens": "tokens",
}
_CALLS = {"changes": 1, "verified": 4}
_COMPARED = ("necessity1", "necessity3", "sufficiency4", "lds", "first", "f1")
_BY_ANSWERS = "*Measured by answers.* The server gives no log-probabilities."
_IN_FULL = "*Evidence* is the preset before the [last part](#how-the-default-was-learnt) counted less"
_KINDS = {
    "hotpotqa": "HotpotQA, ten paragraphs",
    "reference": "HotpotQA, ten paragraphs, with the reference answers",
    "lfqa": "Long answers from documents",
}


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page.

    Args:
        paths: Results files of ``python -m benchmarks closed``.
        docs: The folder of the page.
    """
    files = [read(path) for path in sorted(paths, key=_order)]
    tried = [(header, _ranked(rows)) for header, rows in files if header.get("attempts")]
    page = pages.write(
        docs,
        "truth",
        files=pages.files(paths),
        arena=pages.blocks(*(_section(header, rows) for header, rows in files)),
        place=place.table(tried),
        overlap=_overlap(paths, tried),
        labelled=labelled.table([each for each in tried if each[0]["kind"] == "reference"]),
        nine=_nine([each for each in tried if each[0]["kind"] == "hotpotqa"]),
        turn=_in_turn([each for each in tried if each[0]["kind"] == "hotpotqa"]),
    )
    return [page]


def in_full(header: Row) -> list[str]:
    """The surrogates whose `evidence` was made before the last part counted less."""
    return [name for name in header.get("surrogates", ()) if name not in header.get("last_part", {})]


def _order(path: Path) -> tuple[int, str]:
    return list(_KINDS).index(read(path)[0]["kind"]), path.name


def _ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows that have rankings: the others had no answer."""
    return [row for row in rows if "rankings" in row]


def _overlap(paths: Sequence[Path], tried: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """How many prompts of the README's table were in view when the last part's share was chosen."""
    seen = {row["example"] for _, rows in tried for row in rows}
    known = {path.name.removesuffix(".xz").removesuffix(".jsonl"): path for path in paths}
    parts = []
    for name in dict.fromkeys(name for name, _ in headline.COLUMNS.values()):
        used = _ranked(read(known[name])[1]) if name in known else []
        if used:
            parts.append(f"{sum(row['example'] in seen for row in used)} of the {len(used)}")
    return f"{' and '.join(parts)} prompts behind the table of the README" if parts else NONE


def _nine(files: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """How often one of the first nine parts changes the answer, where some part does."""
    return _changed(files, lambda row, surrogate: _order_of(place.weights(row, surrogate))[:9])


def _in_turn(files: Sequence[tuple[Row, Sequence[Row]]]) -> str:
    """How often one of four parts changes the answer: the first by `evidence` and by each signal."""

    def dealt(row: Row, surrogate: str) -> list[int]:
        taken: list[int] = []
        each = shares(row, surrogate, SIGNALS).values()
        for weights in (place.weights(row, surrogate), *each):  # the first that is not taken
            taken += [int(part) for part in _order_of(weights) if part not in taken][:1]
        return taken

    return _changed(files, dealt)


def _changed(
    files: Sequence[tuple[Row, Sequence[Row]]], parts: Callable[[Row, str], Sequence[int] | Ints]
) -> str:
    """How often one of some parts changes the answer, for each surrogate."""
    found = []
    for header, rows in files:
        for surrogate in header["surrogates"]:
            hits = [_hit(row, parts(row, surrogate)) for row in rows]
            known = [hit for hit in hits if hit is not None]
            found.append(number(float(np.mean(known)) if known else None, ".2f"))
    return " and ".join(found) or NONE


def _section(header: Row, rows: Sequence[Row]) -> str:
    used = _ranked(rows)
    title = _KINDS[header["kind"]]
    if header["answering"]:
        title += f": {header['answering']['name']} answers"
    if header.get("attempts"):
        title += ", with all that was tried"
    left_out = len(rows) - len(used)
    count = (
        f"{len(used)} prompts with {np.mean([row['features'] for row in used]):.0f} parts on average"
    )
    if left_out:
        count += f"; {left_out} more had no answer"
    if header["limit"] and len(rows) < header["limit"]:
        count += f"; the run was stopped before it reached {header['limit']}"
    known = used[0]["rankings"] if used else {}
    if any(f"{each}: {EVIDENCE}" in known for each in in_full(header)):
        count += f". {_IN_FULL}"
    answers = any(row.get("measured") == "answers" for row in used)
    shown = [key for key in _COLUMNS if any(_values(used, name, key) for name in used[0]["rankings"])]
    compared = [key for key in _COMPARED if key in shown]
    calibration = [
        block
        for surrogate in header.get("surrogates", ())
        for method in ("evidence", "instant")
        for block in _calibration(used, f"{surrogate}: {method}")
    ]
    return pages.blocks(
        f"### {title}",
        pages.made_by(header),
        f"{count}." + (f" {_BY_ANSWERS}" if answers else ""),
        pages.table(
            ["ranking", *(_COLUMNS[key] for key in shown)],
            [[name, *(_cell(used, name, key) for key in shown)] for name in used[0]["rankings"]],
        ),
        f"Difference from {BASELINE}, with 95 % intervals by bootstrap over prompts:",
        pages.table(
            ["ranking", *(_COLUMNS[key] for key in compared)],
            [
                [name, *(_difference(used, name, key) for key in compared)]
                for name in used[0]["rankings"]
                if name != BASELINE
            ],
        ),
        *calibration,
    )


def _calibration(rows: Sequence[Row], name: str) -> list[str]:
    """What weights were followed by: in groups of equal size, the smallest first."""
    if name not in rows[0]["rankings"]:
        return []
    pairs = [pair for row in rows for pair in _lost(row, name)]
    if not pairs:
        return []
    text = f"Weights of *{name}*, and the part of the prompt's effect that was lost without the part:"
    return [text, _groups("weight", "lost", pairs, 12)]


def _lost(row: Row, name: str) -> list[tuple[float, float]]:
    """The weight of each part, and what was lost without it."""
    by_answers = row.get("measured") == "answers"
    if "full" not in row or by_answers or abs(row["full"] - row["none"]) <= NO_EFFECT:
        return []
    return list(zip(row["rankings"][name]["weights"], lost_without(row).tolist(), strict=True))


def _groups(first: str, second: str, pairs: Sequence[tuple[float, float]], count: int) -> str:
    """The means of pairs in groups of equal size, by the first of the pair; the last six of them."""
    found = np.array(sorted(pairs))
    means = [group.mean(0) for group in np.array_split(found, min(count, len(found)))][-6:]
    return pages.table(
        [first, *(number(float(mean[0]), ".3f") for mean in means)],
        [[second, *(number(float(mean[1]), ".3f") for mean in means)]],
    )


def _values(rows: Sequence[Row], name: str, key: str) -> list[float]:
    if key in _CALLS:
        found = [_changing(row, name, _CALLS[key]) for row in rows]
    else:
        found = [row["rankings"][name].get(key) for row in rows]
    return [value for value in found if value is not None]


def _changing(row: Row, name: str, first: int) -> float | None:
    """Whether the answer changes without one of the first parts; None where no single part does it."""
    return _hit(row, _ordered(row, name)[:first])


def _ordered(row: Row, name: str) -> Ints:
    return _order_of(np.array(row["rankings"][name]["weights"]))


def _order_of(weights: Floats) -> Ints:
    return np.argsort(-weights, kind="stable")


def _hit(row: Row, parts: Sequence[int] | Ints) -> float | None:
    """Whether the answer changes without one of these parts; None where no single part changes it."""
    changed = np.array(row.get("kept", [1.0])[1:]) < CHANGED_BELOW
    return float(changed[parts].any()) if changed.any() else None


def _cell(rows: Sequence[Row], name: str, key: str) -> str:
    values = _values(rows, name, key)
    style = ",.0f" if key == "tokens" else ".2f"
    return number(float(np.mean(values)) if values else None, style)


def _difference(rows: Sequence[Row], name: str, key: str) -> str:
    """The mean of paired differences and its interval."""
    pairs: list[tuple[Any, Any]] = [
        (row["rankings"][name].get(key), row["rankings"][BASELINE].get(key)) for row in rows
    ]
    apart = np.array([a - b for a, b in pairs if a is not None and b is not None])
    found = spread(apart, coverage=0.95) if len(apart) > 1 else None
    return NONE if found is None else f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"
