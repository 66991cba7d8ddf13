"""Audits and summaries in words, the same for the terminal and for pages."""

from __future__ import annotations

import re

from ropelime.results.audit import AuditData, Mark
from ropelime.results.digest import PartKind
from ropelime.results.summary import SummaryData

KINDS: dict[PartKind, str] = {
    "document": "Documents",
    "message": "Messages",
    "instruction": "Instructions",
    "passage": "Parts of prompts",
}


def marks_sentence(audit: AuditData) -> str:
    """How many marks are right."""
    counts = audit.counts
    if not audit.marks:
        said = ["The answer has no marks"]
    else:
        said = [f"{counts['confirmed']} of {_count(len(audit.marks), 'mark')} confirmed"]
        said += [
            f"{counts[name]} {name}" for name in ("refuted", "unsupported", "unknown") if counts[name]
        ]
    if audit.uncited:
        said.append(f"{_count(len(audit.uncited), 'sentence')} uncited")
    return ", ".join(said) + "."


def summary_sentence(summary: SummaryData) -> str:
    """How much of the answers rests on their prompts, and how much of the prompts matters."""
    said = []
    for kind, title in KINDS.items():
        parts = summary.of_kind(kind)
        never = sum(not part.mattered for part in parts)
        if never:
            said.append(f"{never:,} of {len(parts):,} {title[:1].lower() + title[1:]} never mattered")
    if not said and summary.parts:
        said.append("every part of the prompts mattered")
    said.append(f"{summary.ungrounded:,} of {_count(summary.sentences, 'sentence')} without a source")
    return f"{_count(summary.answers, 'answer')}: {'; '.join(said)}."


def cost_facts(summary: SummaryData) -> list[tuple[str, str]]:
    """What was summed up and what it cost, as names and figures."""
    cost = summary.cost
    facts = [("answers", f"{summary.answers:,}")]
    facts += [("rows with an error", f"{summary.errors:,}")] if summary.errors else []
    facts += [("lines skipped", f"{summary.skipped:,}")] if summary.skipped else []
    facts += [
        ("masked prompts scored", f"{cost.masks:,}"),
        ("tokens processed", f"{cost.tokens:,}"),
    ]
    facts += [] if cost.seconds is None else [("seconds", f"{cost.seconds:,.1f}")]
    if cost.calls:
        cached = f", {cost.cached:,} from the cache" if cost.cached else ""
        facts.append(("answers of a model", f"{cost.calls:,}{cached}"))
        facts.append(
            ("its tokens in and out", f"{cost.prompt_tokens:,} and {cost.completion_tokens:,}")
        )
    return facts + ([] if cost.price is None else [("price of its answers", f"{cost.price:.6f}")])


def label(mark: Mark) -> str:
    """A mark as it is written, without the address of a link, or by the documents it cites."""
    if mark.end > mark.start:
        link = re.match(r"\(?\[(.+)\]\(", mark.label)
        return f"[{link[1]}]" if link else mark.label
    return f"[{', '.join(map(str, mark.documents))}]" if mark.documents else mark.label


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
