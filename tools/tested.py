"""Prints every package of this environment with its version and licence, as pip's constraints."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

_PREFIX = "License :: OSI Approved :: "


def licence(package: Distribution) -> str:
    """As the package states it: an SPDX expression, a classifier, or the first line of a text."""
    said = {name: package.metadata.get_all(name, []) for name in ("License-Expression", "License")}
    kinds = package.metadata.get_all("Classifier", [])
    classified = ", ".join(kind.removeprefix(_PREFIX) for kind in kinds if _PREFIX in kind)
    text = "".join(said["License"]).strip().splitlines()
    return "".join(said["License-Expression"]) or classified or "".join(text[:1]) or "not stated"


def lines(packages: Iterable[Distribution]) -> list[str]:
    """One line for each package but this one; a build such as 2.13.0+cpu counts as its version."""
    known = {p.metadata["Name"].lower().replace("_", "-"): p for p in packages}
    known.pop("ropelime", None)
    pins = {name: f"{name}=={p.version.split('+')[0]}" for name, p in sorted(known.items())}
    return [f"{pin}  # {licence(known[name])}" for name, pin in pins.items()]


if __name__ == "__main__":
    print(f"# What the tests ran with, on Python {platform.python_version()}. Made by `make tested`.")
    print("\n".join(lines(distributions())))
