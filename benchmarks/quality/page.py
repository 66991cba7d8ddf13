"""Results of the paper's experiments become ``docs/results/results.md`` and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.quality import ablation, hotpotqa, mmlu, sweep
from benchmarks.summary import COMMANDS, Results, Section, load
from ropelime.errors import InputError

_GUIDE = "Comments on these tables: [notes.md](notes.md)."
_TABLES: dict[str, Callable[[Results], list[str]]] = {
    "hotpotqa": hotpotqa.tables,
    "sweep": sweep.tables,
    "mmlu": mmlu.tables,
    "ablation": ablation.tables,
}
_FIGURES: dict[Section, Callable[[Results, Path], list[Path]]] = {
    ("hotpotqa", "gold"): hotpotqa.draw,
    ("sweep", None): sweep.draw,
    ("mmlu", None): mmlu.draw,
}


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page and its figures.

    Args:
        paths: Results files, at most one for each section.
        docs: A folder that has a folder ``figures``.

    Returns:
        The files that were written.
    """
    loaded: dict[Section, Results] = {}
    for path in paths:
        one = load(path)
        if one.section in loaded:
            raise InputError(
                f"{loaded[one.section].path} and {path} both hold results of "
                f"{' '.join(filter(None, one.section))}. Name one of them."
            )
        loaded[one.section] = one
    # The order of the page, whatever order the files came in.
    loaded = {section: loaded[section] for section in COMMANDS if section in loaded}
    drawn: list[Path] = []
    for section, draw in _FIGURES.items():
        if section in loaded and loaded[section].examples():
            drawn += draw(loaded[section], docs / "figures")
    holes = {"_".join(filter(None, section)): _section(loaded, section) for section in COMMANDS}
    holes["guide"] = _GUIDE if (docs / "notes.md").is_file() else ""
    holes["files"] = pages.files(one.path for one in loaded.values())
    return [pages.write(docs, "results", **holes), *drawn]


def _section(loaded: dict[Section, Results], section: Section) -> str:
    if section not in loaded:
        return pages.no_results(COMMANDS[section])
    one = loaded[section]
    tables = _TABLES[section[0]](one) if one.examples() else []
    return pages.blocks(*_origin(one), *tables)


def _origin(results: Results) -> list[str]:
    """The command, what it ran with, and how much of it is there."""
    header, count = results.header, len(results.examples())
    model = dict(header.get("surrogate") or {})
    name, kind = model.pop("name", "unknown"), model.pop("architecture", None)
    dtype, device = model.pop("dtype", "unknown dtype"), model.pop("device", "unknown device")
    versions = {**header.get("versions", {}), **model}
    facts = [
        f"Surrogate {name}" + (f" ({kind})" if kind else "") + f", {dtype} on {device}",
        ", ".join(f"{library} {version}" for library, version in versions.items())
        or "unknown versions",
        f"seed {header.get('seed')}",
        f"{count} examples, of which AUROC leaves out {results.all_gold()} (every feature gold)",
    ]
    if without := results.without_gold():
        facts.append(f"IoU, F1 and AUROC leave out {without} (no feature gold)")
    missing = (
        f"**Not finished: {results.missing} more examples are missing or incomplete.** They are left "
        "out; the same command resumes the run."
    )
    return [
        pages.made_by({"command": COMMANDS[results.section], **header}),
        "; ".join(facts) + ".",
        missing if results.missing else "",
    ]
