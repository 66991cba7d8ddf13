"""The modules that one default explanation passes, in the order in which they are entered.

    python tools/walk.py

Counted on a surrogate that is loaded already, with a profiler: every module of the package in which a
function runs, comprehensions and class bodies not counted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import ropelime
from ropelime.example import ANSWER, CONTEXT, QUESTION

PACKAGE = Path(ropelime.__file__).parent


def walk() -> dict[str, int]:
    """How many functions of each module a default explanation runs."""
    surrogate = ropelime.load_surrogate("smollm2")
    seen: dict[str, set[str]] = {}

    def enter(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE) and frame.f_code.co_name[0] != "<":
            module = str(path.relative_to(PACKAGE).with_suffix(""))
            seen.setdefault(module, set()).add(frame.f_code.co_qualname)

    sys.setprofile(enter)
    try:
        ropelime.explain("\n\n".join((*CONTEXT, QUESTION)), ANSWER, surrogate=surrogate, progress=False)
    finally:
        sys.setprofile(None)
    return {module: len(functions) for module, functions in seen.items()}


if __name__ == "__main__":
    found = walk()
    for module, functions in found.items():
        print(f"{functions:4} {module}")
    print(f"{sum(found.values()):4} functions in {len(found)} modules")
