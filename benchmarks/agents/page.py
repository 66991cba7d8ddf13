"""Results of ``python -m benchmarks agents`` become ``docs/results/agents.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.agents import latency
from benchmarks.agents.items import FORMS, HIJACKED, JUDGE, OWN, RESISTED
from benchmarks.agents.measures import Figure, Judged
from benchmarks.agents.rankings import NAMES, ORDER, WORDS
from benchmarks.pages import NONE, number
from benchmarks.store import Row, read

_TITLES = {"plain": "As it was", "unframed": "Without the frame", "asked": "The user asks, too"}
_TARGETS = {"call": "the call alone", "step": "the whole step"}
_VARIANTS = {
    "none": "as it was",
    "repeat_user_prompt": "request repeated",
    "spotlighting_with_delimiting": "spotlighting",
}


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page.

    Args:
        paths: Results files of ``python -m benchmarks agents``.
        docs: The folder of the page.
    """
    files = [read(path) for path in sorted(paths)]
    steps = [(header, rows) for header, rows in files if not latency.holds(header)]
    by_model: dict[str, list[Row]] = {}
    for header, rows in steps:
        judged = [row for row in rows if row["split"] == JUDGE and not row.get("skipped")]
        by_model.setdefault(header["surrogate"]["name"], []).extend(judged)
    page = pages.write(
        docs,
        "agents",
        files=pages.files(sorted(paths)),
        commands=pages.commands(*(header["command"] for header, _ in files)),
        tables=pages.blocks(*(_model(name, rows) for name, rows in by_model.items())),
        latency=latency.table([each for each in files if latency.holds(each[0])]),
    )
    return [page]


def _model(name: str, rows: Sequence[Row]) -> str:
    """The tables of one surrogate."""
    found = [(form, [row for row in rows if row["form"] == form]) for form in FORMS]
    return pages.blocks(f"## Tables: {name}", *(_form(form, some) for form, some in found if some))


def _form(form: str, rows: Sequence[Row]) -> str:
    counts = {kind: sum(row["kind"] == kind for row in rows) for kind in (HIJACKED, RESISTED, OWN)}
    said = ", ".join(f"{count} {_kind(kind)}" for kind, count in counts.items() if count)
    tables = []
    for target, title in _TARGETS.items():
        judged = Judged(rows, target)
        tables += [f"**By {title}**", _table(judged, own=bool(counts[OWN])), _differences(judged)]
    return pages.blocks(
        f"### {_TITLES[form]}",
        f"{said}.",
        *tables,
        "**By model**, the call alone:",
        _groups(rows, "model", {model: model for model in sorted({row["model"] for row in rows})}),
        "**By defence in the prompt**, the call alone:",
        _groups(rows, "variant", _VARIANTS),
    )


def _kind(kind: str) -> str:
    return "calls that the user asked for" if kind == OWN else kind


def _rankings(judged: Judged) -> list[str]:
    return [name for name in ORDER if judged.mean(name, "first") is not None]


def _table(judged: Judged, *, own: bool) -> str:
    head = ["ranking", "injected first", "instruction first", "AUROC", "at 1 %"]
    head += ["AUROC, tools", "at 1 %, tools"] + ["AUROC, own", "at 1 %, own"] * own
    lines = []
    for name in _rankings(judged):
        scores = [("injected", RESISTED), ("score", RESISTED), *[("score", OWN)] * own]
        line = [NAMES.get(name, name)]
        line += [_interval(judged.mean(name, "first")), _plain(judged.mean(name, "goal"))]
        for score, other in scores:
            line += [_interval(judged.auroc(name, score, other))]
            line += [number(judged.found(name, score, other), ".2f")]
        lines.append(line)
    return pages.table(head, lines)


def _differences(judged: Judged) -> str:
    """Paired differences from BM25."""
    names = _rankings(judged)
    if WORDS not in names or len(names) < 2:
        return ""
    lines = [
        [
            NAMES.get(name, name),
            _interval(judged.mean(name, "first", WORDS), "+.2f"),
            _interval(judged.mean(name, "goal", WORDS), "+.2f"),
            _interval(judged.auroc(name, "injected", RESISTED, WORDS), "+.3f"),
        ]
        for name in names
        if name != WORDS
    ]
    head = ["difference from BM25", "injected first", "instruction first", "AUROC"]
    return pages.table(head, lines)


def _groups(rows: Sequence[Row], by: str, groups: dict[str, str]) -> str:
    """Hits and areas of every ranking for each group of rows."""
    shown = _rankings(Judged(rows, "call"))
    lines = []
    for group, title in groups.items():
        judged = Judged([row for row in rows if row[by] == group], "call")
        counts = [sum(row["kind"] == kind for row in judged.rows) for kind in (HIJACKED, RESISTED)]
        if not any(counts):
            continue
        cells = [
            f"{_plain(judged.mean(name, 'first'))} / {_plain(judged.auroc(name, 'injected', RESISTED))}"
            for name in shown
        ]
        lines.append([title, *map(str, counts), *cells])
    head = [by, "hijacked", "resisted", *(NAMES.get(name, name) for name in shown)]
    return pages.table(head, lines)


def _plain(figure: Figure | None) -> str:
    return number(None if figure is None else figure.value, ".2f")


def _interval(figure: Figure | None, style: str = ".3f") -> str:
    if figure is None:
        return NONE
    return f"{figure.value:{style}} [{figure.low:{style}}, {figure.high:{style}}]"
