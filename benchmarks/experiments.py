"""Which methods an experiment compares, and the header of its results file."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import lexical_rows, methods, rows, runner
from benchmarks.data import Example, digest
from benchmarks.gsmile import ChatGenerator, GSmile
from benchmarks.method import Method
from benchmarks.names import CHANCE, EVIDENCE, GSMILE, INSTANT
from benchmarks.runner import Extra
from benchmarks.store import Row, Store, read, renewals
from ropelime._version import __version__
from ropelime.surrogate import Ablation, Surrogate


def run(
    bench: str,
    examples: Sequence[Example],
    surrogate: Surrogate,
    results: Path,
    *,
    context: str | None,
    seed: int,
    limit: int | None,
    command: str,
    generator: str | None = None,
    base_url: str | None = None,
    ablation: str = "delete",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run an experiment, or resume one.

    Args:
        bench: ``"hotpotqa"``, ``"sweep"``, ``"ablation"``, ``"mmlu"`` or ``"budget"``.
        examples: Its examples.
        surrogate: The model that scores.
        results: The results file.
        context: Which paragraphs the examples hold.
        seed: Seed of all masks.
        limit: The limit that the examples were taken under.
        command: The command line, for the report.
        generator: gSMILE's model at a chat endpoint; the surrogate itself if not given.
        base_url: Address of that endpoint.
        ablation: How features are removed; other than by deletion, only methods with exact scoring
            are compared.
        progress: Called with the examples done and in all.
    """
    removed = Ablation.of(ablation)
    deleted = removed.how == "delete"
    compared = methods_of(bench, context, removed)
    extras: dict[str, Extra] = {}
    if bench == "mmlu":
        extras[GSMILE] = _gsmile(surrogate, generator, base_url).row
    if bench in rows.BENCHES:
        extras |= lexical_rows.extras()
    settings: dict[str, Any] = {
        "bench": bench,
        "context": context,
        "surrogate": surrogate.describe(),
        "generator": generator,
        "base_url": base_url,
        "seed": seed,
        "limit": limit,
        "examples": len(examples),
        "data": digest(examples),
        **({} if deleted else {"ablation": str(removed)}),
        "command": command,
        "versions": {"ropelime": __version__, "python": platform.python_version()},
    }
    store = Store(results, settings, [*(m.name for m in compared), CHANCE, *extras])
    runner.run(
        examples,
        compared,
        surrogate,
        store,
        seed=seed,
        **_extent(bench),
        intervals=bench == "budget" and context in ("gold", "all") and deleted,
        ablation=removed,
        extras=extras,
        progress=progress,
    )


def renew(
    path: Path,
    source: Path | None,
    surrogate: Surrogate,
    command: str,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Make the rows that depend on the present presets in a finished results file.

    These are the rows of the default and of ``instant``, of other methods with the default's target,
    and of methods that the file has not had. All others stay as they are, and nothing is compared with
    the weights of many more masks again. New rows have no seconds: all in a file are of the same run.

    Args:
        path: The results file of an experiment, compressed or not.
        source: The data that it was made from; the copy on the hub if None.
        surrogate: The model that scores; the one of the file.
        command: The command line, for the report.
        progress: Called with the examples done and in all.

    Returns:
        How many rows were made.
    """
    header = read(path)[0]
    removed = Ablation.of(header.get("ablation", "delete"))
    bench, known = header["bench"], header["methods"]
    compared = methods_of(bench, header["context"], removed)
    stale = [m for m in compared if m.name not in known or _of_default(m)]

    def make(number: int, example: Example) -> list[Row]:
        seed = (header["seed"], number)
        made = runner.rows_of(example, stale, surrogate, seed=seed, ablation=removed, **_extent(bench))
        return [{key: value for key, value in row.items() if key != "seconds"} for row in made]

    order = [*(m.name for m in compared), CHANCE]
    facts = {**surrogate.describe(), "name": Path(surrogate.name).name}
    changed = renewals(header, command, facts)
    names = [m.name for m in stale]
    return rows.replace(path, source, names, make, order=order, changed=changed, progress=progress)


def _of_default(m: Method) -> bool:
    return m.preset == INSTANT or getattr(m.recipe.target, "name", "") == EVIDENCE


def _extent(bench: str) -> dict[str, bool]:
    """What rows have beside agreement with labels and LDS."""
    return {"curves": bench == "hotpotqa", "detail": bench == "budget"}


def methods_of(bench: str, context: str | None, removed: Ablation) -> list[Method]:
    """The methods that an experiment compares; unless features are deleted, only exact ones."""
    if bench == "hotpotqa":
        found = methods.hotpotqa(context or "gold")
    elif bench == "budget":
        found = methods.budget(context or "all")
    else:
        found = {"sweep": methods.sweep, "ablation": methods.ablation, "mmlu": methods.mmlu}[bench]()
    if removed.how == "delete":
        return found
    return [m for m in found if m.scoring == "exact" and m.preset is None]


def _gsmile(surrogate: Surrogate, generator: str | None, base_url: str | None) -> GSmile:
    from benchmarks.generation import LocalGenerator

    local = LocalGenerator(surrogate)  # type: ignore[arg-type]
    return GSmile(ChatGenerator(generator, base_url) if generator else local, local)
