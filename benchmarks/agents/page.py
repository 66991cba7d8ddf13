"""Results of ``python -m benchmarks agents`` become ``docs/results/agents.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.agents import fit, latency
from benchmarks.agents.items import FORMS, HIJACKED, JUDGE, LEARN, OWN, RESISTED
from benchmarks.agents.measures import Figure, Judged
from benchmarks.agents.rankings import GUARD, NAMES, ORDER, WORDS
from benchmarks.names import INSTANT
from benchmarks.pages import NONE, number
from benchmarks.store import Row, read

_TITLES = {"plain": "As it was", "unframed": "Without the frame", "asked": "The user asks, too"}
_HEAD = [
    "injected first", "instruction first", "AUROC", "at 1 %", "AUROC, tools", "at 1 %, tools"
]  # fmt: skip
_TARGETS = {"call": "the call alone", "step": "the whole step"}
_AS_IT_WAS = "none"
_VARIANTS = {
    _AS_IT_WAS: "as it was",
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
        by_model.setdefault(header["surrogate"]["name"], []).extend(rows)
    merged = {name: merge(rows) for name, rows in by_model.items()}
    judged = {name: [row for row in rows if row["split"] == JUDGE] for name, rows in merged.items()}
    page = pages.write(
        docs,
        "agents",
        files=pages.files(sorted(paths)),
        commands=pages.commands(*(header["command"] for header, _ in files)),
        tables=pages.blocks(*(_model(name, rows) for name, rows in judged.items())),
        tried=pages.blocks(*(_tried(rows) for rows in merged.values())),
        latency=latency.table([each for each in files if latency.holds(each[0])]),
    )
    return [page]


def merge(rows: Sequence[Row]) -> list[Row]:
    """One row for each step, with the rankings that several files have of it."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.get("skipped"):
            continue
        known = found.setdefault(row["example"], {**row, "outputs": [{}] * len(row["outputs"])})
        known["outputs"] = [
            {"of": new["of"], "rankings": {**old.get("rankings", {}), **new["rankings"]}}
            for old, new in zip(known["outputs"], row["outputs"], strict=True)
        ]
    for row in found.values():
        for output in row["outputs"]:
            _name(output["rankings"])
    return list(found.values())


def _name(rankings: dict[str, Row]) -> None:
    """What ``guard`` names where no tool has probably decided: what is first by ``instant``.

    It counts as wrong where that was not computed.
    """
    if GUARD in rankings and "first" not in rankings[GUARD]:
        instant = rankings.get(INSTANT, {"first": 0.0, "goal": 0.0})
        named = {which: instant[which] for which in ("first", "goal")}
        rankings[GUARD] = {**rankings[GUARD], **named}


def _tried(rows: Sequence[Row]) -> str:
    """What the chance of ``guard`` was estimated from, and how it fared on tasks of either half."""
    lines = []
    for name, inputs in fit.TRIED.items():
        learnt, judged = (list(fit.examples(rows, split, inputs)) for split in (LEARN, JUDGE))
        if {each.followed for each in learnt} != {True, False} or not judged:
            continue
        values = fit.scores(judged, fit.fit(learnt, inputs))
        line = [name, str(len(inputs)), str(len(judged))]
        parts = (fit.scored(learnt, fit.held_out(learnt, inputs)), fit.scored(judged, values))
        for some in parts:
            plain = [row for row in some if row["variant"] == _AS_IT_WAS]
            for form in FORMS:
                of = Judged([row for row in plain if row["form"] == form], "call")
                area = of.auroc(GUARD, "score", RESISTED)
                line.append(
                    f"{_plain(area, '.3f')} / {number(of.found(GUARD, 'score', RESISTED), '.2f')}"
                )
        lines.append(line)
    if not lines:
        return pages.no_results("python -m benchmarks agents --only guard")
    forms = [_TITLES[form].lower() for form in FORMS]
    head = ["inputs", "number", "actions", *(f"learning, {form}" for form in forms)]
    return pages.table([*head, *(f"judged, {form}" for form in forms)], lines)


def _model(name: str, rows: Sequence[Row]) -> str:
    """The tables of one surrogate."""
    found = [(form, [row for row in rows if row["form"] == form]) for form in FORMS]
    return pages.blocks(f"## Tables: {name}", *(_form(form, some) for form, some in found if some))


def _form(form: str, every: Sequence[Row]) -> str:
    rows = [row for row in every if row["variant"] == _AS_IT_WAS]
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
        _groups(every, "variant", _VARIANTS),
        *_of_guard(every),
    )


def _of_guard(rows: Sequence[Row]) -> list[str]:
    """The row of ``guard`` for every model as it was, and for every defence."""
    groups = {
        model: [row for row in rows if row["model"] == model and row["variant"] == _AS_IT_WAS]
        for model in sorted({row["model"] for row in rows})
    }
    for variant, title in _VARIANTS.items():
        groups[f"all, {title}"] = [row for row in rows if row["variant"] == variant]
    lines = []
    for title, some in groups.items():
        judged = Judged(some, "call")
        counts = [len(judged.values(GUARD, "tools", kind)[0]) for kind in (HIJACKED, RESISTED)]
        if any(counts):
            lines.append([title, *map(str, counts), *_figures(judged, GUARD, own=False)])
    if not lines:
        return []
    head = ["model", "hijacked", "resisted", *_HEAD]
    return ["**`guard`, by model and by defence**, the call alone:", pages.table(head, lines)]


def _kind(kind: str) -> str:
    return "calls that the user asked for" if kind == OWN else kind


def _rankings(judged: Judged) -> list[str]:
    return [name for name in ORDER if judged.mean(name, "first") is not None]


def _table(judged: Judged, *, own: bool) -> str:
    head = ["ranking", *_HEAD, *["AUROC, own", "at 1 %, own"] * own]
    lines = [[NAMES.get(name, name), *_figures(judged, name, own=own)] for name in _rankings(judged)]
    return pages.table(head, lines)


def _figures(judged: Judged, name: str, *, own: bool) -> list[str]:
    """The cells of one ranking."""
    found = [_interval(judged.mean(name, "first")), _plain(judged.mean(name, "goal"))]
    for score, other in [("injected", RESISTED), ("score", RESISTED), *[("score", OWN)] * own]:
        found += [_interval(judged.auroc(name, score, other))]
        found += [number(judged.found(name, score, other), ".2f")]
    return found


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


def _plain(figure: Figure | None, style: str = ".2f") -> str:
    return number(None if figure is None else figure.value, style)


def _interval(figure: Figure | None, style: str = ".3f") -> str:
    if figure is None:
        return NONE
    return f"{figure.value:{style}} [{figure.low:{style}}, {figure.high:{style}}]"
