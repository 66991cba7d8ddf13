"""Which methods an experiment compares, and the header of its results file."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import lexical_rows, methods, runner
from benchmarks.data import Example, digest
from benchmarks.gsmile import ChatGenerator, GSmile
from benchmarks.method import Method
from benchmarks.names import CHANCE, GSMILE
from benchmarks.runner import Extra
from benchmarks.store import Store
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
    compared = _compared(bench, context)
    if not deleted:
        compared = [m for m in compared if m.scoring == "exact" and m.preset is None]
    extras: dict[str, Extra] = {}
    if bench == "mmlu":
        extras[GSMILE] = _gsmile(surrogate, generator, base_url).row
    if bench in lexical_rows.BENCHES:
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
        curves=bench == "hotpotqa",
        detail=bench == "budget",
        intervals=bench == "budget" and context in ("gold", "all") and deleted,
        ablation=removed,
        extras=extras,
        progress=progress,
    )


def _compared(bench: str, context: str | None) -> list[Method]:
    if bench == "hotpotqa":
        return methods.hotpotqa(context or "gold")
    if bench == "budget":
        return methods.budget(context or "all")
    return {"sweep": methods.sweep, "ablation": methods.ablation, "mmlu": methods.mmlu}[bench]()


def _gsmile(surrogate: Surrogate, generator: str | None, base_url: str | None) -> GSmile:
    from benchmarks.generation import LocalGenerator

    local = LocalGenerator(surrogate)  # type: ignore[arg-type]
    return GSmile(ChatGenerator(generator, base_url) if generator else local, local)
