"""The README's Python runs and prints what the README says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_prints_what_it_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (shown,) = re.findall(r"<!-- output -->\n```\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    # Shares move by a point or two with the chip's arithmetic; the ranking and the text do not.
    assert _sentences(printed.getvalue()) == _sentences(shown)
    for ours, theirs in zip(_shares(printed.getvalue()), _shares(shown), strict=True):
        assert abs(ours - theirs) <= 10


def _sentences(text: str) -> list[str]:
    return [re.sub(r"^\d+% ", "", line) for line in text.strip().splitlines()]


def _shares(text: str) -> list[int]:
    return [int(share) for share in re.findall(r"^(\d+)%", text, re.MULTILINE)]
