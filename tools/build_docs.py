"""Builds the documentation site: HTML, Markdown twins of the pages, ``llms.txt``; warnings are errors.

``python tools/build_docs.py docs/_build`` builds it into ``docs/_build/html``. Before that,
``python tools/build_docs.py --install`` installs what the build needs into this environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = {"filelock", "numpy", "regex", "rich", "sentencex"}  # by `import ropelime`; torch is not


def main(arguments: Sequence[str]) -> int:
    """Install or build; the exit status is that of the step that failed."""
    if arguments == ["--install"]:
        return install()
    return build(Path(arguments[0]))


def install() -> int:
    """The package without its dependencies, then those that are needed here."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    if status := subprocess.call([*pip, "--no-deps", "--editable", str(ROOT)]):
        return status
    return subprocess.call([*pip, *needed(requires("ropelime") or [])])


def needed(requirements: Sequence[str]) -> list[str]:
    """Of the package's requirements, those of the site."""
    names = {text: re.split(r"[^\w.-]", text)[0].lower() for text in requirements}
    extra = re.compile(r"extra == ['\"]docs['\"]")  # builders quote it in two ways
    docs = [text.split(";")[0].strip() for text in requirements if extra.search(text)]
    return docs + [text for text, name in names.items() if name in IMPORTED and "extra ==" not in text]


def build(place: Path) -> int:
    """Markdown first: the HTML build takes the twins into the site. Both share what is parsed."""
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    for builder in ("markdown", "html"):
        step = [*sphinx, "-b", builder, "-d", str(place / "doctrees"), str(ROOT / "docs")]
        if status := subprocess.call(
            [*step, str(place / builder)], env={**os.environ, "PYTHONPATH": path}
        ):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
