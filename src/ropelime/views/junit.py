"""Checked assertions as JUnit XML, which most CI servers display."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from ropelime.results.assertions import Verdict
from ropelime.text.display import visible


@dataclass(frozen=True)
class Case:
    """One assertion, or one line that could not be checked."""

    line: int  # in the file, from 1
    name: str  # of that line
    what: str  # the assertion in words
    verdict: Verdict | None = None  # None if it could not be checked
    wrong: str = ""  # why it could not be checked
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
    # visible(): XML has no control characters, not even escaped ones.
    root = ElementTree.Element("testsuites", {"name": "ropelime check", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": visible(file), **counts, "skipped": "0"})
    for case in cases:
        name = visible(f"line {case.line}: {case.what}")
        labels = {"classname": visible(case.name), "name": name, "time": f"{case.seconds:.3f}"}
        entry = ElementTree.SubElement(suite, "testcase", labels)
        if case.verdict is None:
            kind, why, error = "error", visible(case.wrong), "InputError"
        elif case.fails:
            kind, why, error = "failure", visible(case.verdict.why), "AssertionError"
        else:
            continue
        ElementTree.SubElement(entry, kind, {"message": why, "type": error}).text = why
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
