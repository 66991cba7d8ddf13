"""Results files become pages of documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.agents import page as agents
from benchmarks.believe import page as believe
from benchmarks.budgets import page as budgets
from benchmarks.closed import page as closed
from benchmarks.long import page as long
from benchmarks.quality import page as quality
from benchmarks.scale import page as scale
from benchmarks.speed import accelerators
from benchmarks.speed import page as speed
from benchmarks.store import read
from ropelime.errors import InputError

# Results that have a page of their own; all others go to the page of results.
_PAGES: dict[str, Callable[[Sequence[Path], Path], list[Path]]] = {
    "speed": speed.write,
    "budget": budgets.write,
    "batch": scale.write,
    "closed": closed.write,
    "believe": believe.write,
    "agents": agents.write,
    "long": long.write,
}


def write(results: Sequence[Path], docs: Path) -> list[Path]:
    """Write every page that files are given for.

    Args:
        results: Results files of ``python -m benchmarks``, compressed or not.
        docs: The folder to write the pages and ``figures/`` into.

    Returns:
        The files that were written.
    """
    if not results:
        raise InputError("Name at least one results file of `python -m benchmarks`.")
    kinds = {path: _kind(path) for path in results}
    results = [
        path for path in results if kinds[path] not in ("labels", "answers")
    ]  # they are learnt from
    pages.folder(docs)
    written: list[Path] = []
    if others := [path for path in results if kinds[path] not in _PAGES]:
        written += quality.write(others, docs)
    for kind, page in _PAGES.items():
        if paths := [path for path in results if kinds[path] == kind]:
            written += page(paths, docs)
    return written


def _kind(path: Path) -> str:
    return "speed" if accelerators.holds(path) else str(read(path)[0].get("bench"))
