"""Results files become a page: our tables beside the paper's, chance beside both, targets judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import figures, tables
from benchmarks.budgets import page as budgets
from benchmarks.scale import page as scale
from benchmarks.speed import page as performance
from benchmarks.store import read
from benchmarks.summary import COMMANDS, Results, Section, load
from benchmarks.targets import targets
from ropelime.errors import InputError

_INTRO = """\
# Results

Made by `python -m benchmarks report` out of {files}; no figure of ours is typed by hand.
What was to be reached, and whether it was, stands [at the end](#targets).{reading}

- **IoU, F1, AUROC** compare the top |gold| features with the labels: mean ± standard deviation (divided
  by n) [90 % bootstrap interval of the mean, 2000 resamples]. AUROC is undefined where every feature is
  gold; such examples are counted and left out of it.
- **LDS** is the rank correlation of predicted and true log-probability on 64 held-out masks. With few
  features some or all of them are masks of the fit as well (up to six features have no more than 64
  masks), so there it measures a fit and not a prediction.
- **drop@k** is the fall of the answer's log-probability, in nats, without the top k features, over the
  examples with enough features. **Insertion** (higher is better) and **deletion** (lower is better) are
  areas under the log-probability per token.
- **Masks, tokens, seconds** are means for one example: prompts read by the surrogate, their tokens, and
  the time of reading and fitting. Tokens are the full lengths of the masked prompts, without what the
  engine saves by sharing. Seconds of our methods are their tokens times the mean time of a token in the
  run that reads for all methods together, plus the fit; gSMILE's are measured.
- **Chance** is what a random ranking reaches on average. Rows of the **paper** are copied from its
  appendix.
"""
_READING = "\nHow to read them: [reading.md](reading.md)."
_TITLES: dict[Section, str] = {
    ("hotpotqa", "gold"): "HotpotQA, gold paragraphs",
    ("hotpotqa", "all"): "HotpotQA, all ten paragraphs",
    ("sweep", None): "Sparse-K settings",
    ("mmlu", None): "MMLU, words",
    ("ablation", "gold"): "Ablation, gold paragraphs",
    ("ablation", "all"): "Ablation, all ten paragraphs",
}
_TABLES: dict[str, Callable[[Results], list[str]]] = {
    "hotpotqa": tables.hotpotqa,
    "sweep": tables.sweep,
    "mmlu": tables.mmlu,
    "ablation": tables.ablation,
}
# Results that have a page of their own.
_PAGES: dict[str, Callable[[Sequence[Path], Path], list[Path]]] = {
    "speed": performance.write,
    "budget": budgets.write,
    "batch": scale.write,
}
_FIGURES: dict[Section, Callable[[Results, Path], list[Path]]] = {
    ("hotpotqa", "gold"): figures.hotpotqa,
    ("sweep", None): figures.sweep,
    ("mmlu", None): figures.mmlu,
}


def write(results: Sequence[Path], docs: Path) -> list[Path]:
    """Write the pages of results, of performance and of scale, each where files for it are given.

    Args:
        results: Results files of ``python -m benchmarks``, of experiments at most one for each section.
        docs: The folder to write the pages and ``figures/`` into.

    Returns:
        The files that were written.
    """
    if not results:
        raise InputError("Name at least one results file of `python -m benchmarks`.")
    kinds = {path: read(path)[0].get("bench") for path in results}
    others = [path for path in results if kinds[path] not in _PAGES]
    written = _write_results(others, docs) if others else []
    for kind, page in _PAGES.items():
        if paths := [path for path in results if kinds[path] == kind]:
            _folder(docs)
            written += page(paths, docs)
    return written


def _write_results(results: Sequence[Path], docs: Path) -> list[Path]:
    loaded: dict[Section, Results] = {}
    for path in results:
        one = load(path)
        if one.section in loaded:
            raise InputError(
                f"{loaded[one.section].path} and {path} both hold results of "
                f"{_TITLES[one.section]!r}. Name one of them."
            )
        loaded[one.section] = one
    # The order of the page, whatever order the files came in.
    loaded = {section: loaded[section] for section in _TITLES if section in loaded}
    filled = {section: one for section, one in loaded.items() if one.examples()}
    _folder(docs)
    drawn: list[Path] = []
    for section, draw in _FIGURES.items():
        if section in filled:
            drawn += draw(filled[section], docs / "figures")
    page = docs / "results.md"
    reading = _READING if (docs / "reading.md").is_file() else ""
    page.write_text(_page(loaded, filled, reading), encoding="utf-8", newline="\n")
    return [page, *drawn]


def _folder(docs: Path) -> None:
    try:
        (docs / "figures").mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{docs} is no folder to write into. Name another one.") from None


def _page(loaded: dict[Section, Results], filled: dict[Section, Results], reading: str) -> str:
    files = ", ".join(f"`{one.path.name}`" for one in loaded.values())
    blocks = [_INTRO.format(files=files, reading=reading)]
    for section, title in _TITLES.items():
        blocks.append(f"## {title}")
        if section not in loaded:
            blocks.append(f"No results were given. This makes them: `{COMMANDS[section]}`")
            continue
        blocks += _origin(loaded[section])
        if section in filled:
            blocks += _TABLES[section[0]](filled[section])
    blocks += ["## Targets", *tables.verdicts(targets(filled))]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


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
    blocks = [f"```\n{header.get('command', COMMANDS[results.section])}\n```", "; ".join(facts) + "."]
    if results.missing:
        blocks.append(
            f"**Not finished: {results.missing} more examples are missing or incomplete.** They are "
            "left out; the same command goes on with them."
        )
    return blocks
