"""Finds words that this project has replaced and that must not come back.

    python tools/words.py          check the entries that are switched on; status 1 if one is found
    python tools/words.py --all    also count the entries that are switched off

``tools/words.txt`` lists them. A line that needs such a word carries the comment ``words: ok``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ["src", "benchmarks", "docs", "tests"]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
BUILT = "docs/_build"  # by `make docs`, with pages of other projects
SUFFIXES = {".py", ".md", ".js", ".css", ".html", ".ipynb"}


def entries(text: str) -> Iterator[tuple[str, str, bool]]:
    """Pattern, replacement and whether it is checked; an entry behind ``#`` is switched off."""
    for line in text.splitlines():
        pattern, arrow, instead = line.lstrip("# ").partition(" => ")
        if arrow:
            yield pattern, instead, not line.startswith("#")


def files(root: Path) -> dict[str, str]:
    """The text of every file that is checked, by its name."""
    paths = [path for name in FOLDERS for path in sorted((root / name).rglob("*"))]
    written = [path for path in paths if root / BUILT not in path.parents]
    texts = [path for path in (*map(root.joinpath, PAGES), *written) if path.suffix in SUFFIXES]
    return {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in texts if p.is_file()}


def places(pattern: str, texts: dict[str, str]) -> Iterator[str]:
    """Where the pattern occurs, as ``file:line``; a space in it also matches a line break."""
    compiled = re.compile(pattern.replace(" ", r"\s+(?:#\s+)?"), re.IGNORECASE)
    for name, text in texts.items():
        for match in compiled.finditer(text):
            number = text.count("\n", 0, match.start())
            if "words: ok" not in text.split("\n")[number]:
                yield f"{name}:{number + 1}"


def main(root: Path, *, count_all: bool) -> int:
    """Print what was found; the exit status is 1 if an active entry was."""
    texts, failed = files(root), False
    for pattern, instead, active in entries((root / "tools/words.txt").read_text(encoding="utf-8")):
        found = list(places(pattern, texts)) if active or count_all else []
        failed |= active and bool(found)
        if not active and count_all:
            print(f"{len(found):4} /{pattern}/ (switched off)")
        for place in found if active else ():
            print(f"{place}: /{pattern}/ must not come back. Write instead: {instead}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ROOT, count_all="--all" in sys.argv[1:]))
