"""Checks what a built wheel holds: the package with its type marker and its data, and nothing else.

Give it the file: ``python tools/wheel.py dist/ropelime-0.1.0-py3-none-any.whl``.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable

_NEEDED = {
    "ropelime/py.typed": "type checkers would ignore the annotations",
    "ropelime/method/learnt.json": "the package could not be imported",
}


def problems(names: Iterable[str]) -> list[str]:
    """What is wrong with a wheel that holds files of these names."""
    held = list(names)
    foreign = sorted({name.split("/")[0] for name in held if not name.startswith("ropelime")})
    found = [f"{top} does not belong into the wheel" for top in foreign]
    return found + [f"{name} is missing: {why}" for name, why in _NEEDED.items() if name not in held]


if __name__ == "__main__":
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        sys.exit("\n".join(problems(wheel.namelist())) or 0)
