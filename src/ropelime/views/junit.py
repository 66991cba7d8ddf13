"""Checked assertions as JUnit XML, which most CI servers show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from ropelime.results.assertions import Verdict
from ropelime.text.display import visible


@dataclass(frozen=True)
class Case:
    """One assertion, or one line that could not be checked.

    Attributes:
        line: Where it stands in the file, from 1.
        name: What the line calls itself.
        what: The assertion in words.
        verdict: Whether it holds; None if it could not be checked.
        wrong: Why it could not be.
        seconds: What it took.
    """

    line: int
    name: str
    what: str
    verdict: Verdict | None = None
    wrong: str = ""
    seconds: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether it was checked and does not hold."""
        return self.verdict is not None and not self.verdict.holds


def junit(file: str, cases: Sequence[Case]) -> str:
    """The cases as one test suite, named after the file."""
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.fails for case in cases)),
        "errors": str(sum(case.verdict is None for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "ropelime check", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _text(file), **counts, "skipped": "0"})
    for case in cases:
        entry = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": _text(case.name),
                "name": _text(f"line {case.line}: {case.what}"),
                "time": f"{case.seconds:.3f}",
            },
        )
        if case.verdict is None:
            said = {"message": _text(case.wrong), "type": "InputError"}
            ElementTree.SubElement(entry, "error", said).text = _text(case.wrong)
        elif case.fails:
            said = {"message": _text(case.verdict.why), "type": "AssertionError"}
            ElementTree.SubElement(entry, "failure", said).text = _text(case.verdict.why)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _text(text: str) -> str:
    """XML has no control characters, not even escaped ones."""
    return visible(text)
