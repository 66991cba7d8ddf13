"""The audit of an answer and the summary of many as web pages: tables, without a script."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ropelime.results.audit import AuditData, Mark
from ropelime.results.summary import PartSummary, SummaryData
from ropelime.text.display import shorten, visible
from ropelime.views.html import document, static
from ropelime.views.sentences import KINDS, cost_facts, label, marks_sentence, summary_sentence

_TITLE = 60  # characters of the answer in the title
_LABEL = 24  # characters of a mark that is shown as it is written
_MOST = 200  # rows of a table of parts; the JSON file has all


@dataclass(frozen=True)
class _Cell:
    """HTML of a cell; figures are aligned to the right."""

    body: str
    figure: bool = False

    @property
    def side(self) -> str:
        return ' class="rl-number"' if self.figure else ""


def audit_page(audit: AuditData) -> str:
    """The answer with its marks, and a table of them."""
    rows = [
        [
            _text(label(mark)),
            _badge(mark.verdict),
            _text(mark.statement.text),
            _text(mark.name),
            _why(mark),
        ]
        for mark in audit.marks
    ]
    names = (", ".join(source.name for source in each.sources) for each in audit.uncited)
    uncited = [
        [_text(e.text), _text("; ".join(filter(None, (f"{name} ({e.chance})", e.unsaid))))]
        for e, name in zip(audit.uncited, names, strict=True)
    ]
    note = '<p class="rl-notes">They rest on a document, and no mark says so.</p>'
    heads = ("mark", "verdict", "statement", "cites", "why")
    cards = [
        _card("The answer", f'<div class="rl-words">{_answer(audit)}</div>'),
        _card("Marks", _table(heads, rows, "mark")) if rows else "",
        _card("Uncited sentences", note + _table(("sentence", "comes from"), uncited))
        if uncited
        else "",
    ]
    title = f"{shorten(visible(audit.answer), _TITLE)} · audit · RoPE-LIME"
    return _page(title, "Are the citations of this answer right?", marks_sentence(audit), cards)


def summary_page(summary: SummaryData) -> str:
    """Tables of the parts, the ungrounded sentences and the cost."""
    facts = "".join(
        f'<div><dt>{_escaped(name)}</dt><dd class="rl-value">{_escaped(value)}</dd></div>'
        for name, value in cost_facts(summary)
    )
    cards = [_card("Answers and cost", f'<dl class="rl-facts">{facts}</dl>')]
    cards += [_parts(title, summary.of_kind(kind)) for kind, title in KINDS.items()]
    if summary.ungrounded_sentences:
        rows = [
            [_text(each.text), _text(each.answer), _Cell(f"{each.probability:.0%}", figure=True)]
            for each in summary.ungrounded_sentences
        ]
        more = summary.ungrounded - len(rows)
        note = f'<p class="rl-notes">{more:,} more are not listed.</p>' if more else ""
        heads = ("sentence", "answer", "from the prompt")
        cards.append(_card("Sentences without a source", _table(heads, rows) + note))
    if summary.problems:
        listed = "".join(f"<li>{_escaped(problem)}</li>" for problem in summary.problems)
        cards.append(_card("Lines that were skipped", f'<ul class="rl-warnings">{listed}</ul>'))
    heading = "What did these answers rest on?"
    return _page(f"{summary.answers:,} answers · RoPE-LIME", heading, summary_sentence(summary), cards)


def _page(title: str, heading: str, lead: str, cards: Iterable[str]) -> str:
    head = f'<div class="rl-head"><p class="rl-lead">{_escaped(lead)}</p></div>'
    body = f'<div class="ropelime">\n{head}\n<div class="rl-cards">\n{"".join(cards)}</div>\n</div>'
    return document(visible(title), heading, body, css=static("report.css") + static("tables.css"))


def _answer(audit: AuditData) -> str:
    """The answer; its marks lead to their rows, and uncited sentences are underlined."""
    text, pieces, at = audit.answer, [], 0
    edges = [(each.start, each.end, '<span class="rl-uncited">', "</span>") for each in audit.uncited]
    numbered = enumerate(audit.marks, 1)
    for (start, end), group in groupby(numbered, key=lambda pair: (pair[1].start, pair[1].end)):
        own = list(group)
        chips = "".join(_chip(i, mark, alone=len(own) == 1) for i, mark in own)
        kept = len(label(own[0][1])) > _LABEL  # a link around words of the answer
        edges.append((end if kept else start, end, chips, ""))
    for start, end, before, after in sorted(edges):
        if start < at:
            continue
        inside = text[start:end] if after else ""
        pieces += [_escaped(text[at:start]), before, _escaped(inside), after]
        at = end
    return "".join([*pieces, _escaped(text[at:])])


def _chip(number: int, mark: Mark, *, alone: bool) -> str:
    shown = label(mark)
    if not alone or len(shown) > _LABEL:
        shown = f"[{', '.join(map(str, mark.documents)) or '?'}]"
    said = f"{mark.verdict}: {mark.why}"
    return (
        f'<a class="rl-badge" data-verdict="{mark.verdict}" href="#mark-{number}" '
        f'title="{_escaped(said)}">{_escaped(shown)}</a>'
    )


def _why(mark: Mark) -> _Cell:
    quoted = mark.better.text if mark.better else ""
    if mark.verdict == "confirmed":
        quoted = next((s.text for s in mark.statement.sources if s.document in mark.documents), "")
    more = f'<br><q class="rl-dim">{_escaped(shorten(quoted, 200))}</q>' if quoted else ""
    return _Cell(f"<span>{_escaped(mark.why)}{more}</span>")


def _parts(title: str, parts: Sequence[PartSummary]) -> str:
    if not parts:
        return ""
    rows = [
        [
            _text(part.name),
            _Cell(f"{part.mattered:,} of {part.given:,}", figure=True),
            _share(part.mean_share),
            _Cell(f"{part.first:,}", figure=True),
            _Cell(f"{part.cited:,}", figure=True),
        ]
        for part in parts[:_MOST]
    ]
    never = sum(not part.mattered for part in parts)
    notes = [f"{never:,} of {len(parts):,} never mattered."]
    notes += [f"The first {_MOST} are shown."] if len(parts) > _MOST else []
    heads = ("name", "mattered", "mean share", "first", "sentences")
    return _card(title, f'<p class="rl-notes">{" ".join(notes)}</p>' + _table(heads, rows))


def _table(heads: Sequence[str], rows: Sequence[Sequence[_Cell]], name: str = "") -> str:
    """A table whose first cells name their rows; the rows have the ids ``name-1``, ``name-2``, ..."""
    top = (f'<th scope="col"{own.side}>{head}</th>' for head, own in zip(heads, rows[0], strict=True))
    lines = [f"<thead><tr>{''.join(top)}</tr></thead>", "<tbody>"]
    for i, (first, *rest) in enumerate(rows, 1):
        cells = (
            f'<td data-head="{head}"{own.side}>{own.body}</td>'
            for head, own in zip(heads[1:], rest, strict=True)
        )
        start = f'<tr id="{name}-{i}">' if name else "<tr>"
        lines.append(f'{start}<th scope="row">{first.body}</th>{"".join(cells)}</tr>')
    body = "\n".join([*lines, "</tbody>"])
    return f'<table class="rl-cells">{body}</table>'


def _card(title: str, body: str) -> str:
    head = f'<div class="rl-bar"><h2>{_escaped(title)}</h2></div>'
    return f'<section class="rl-card">{head}{body}</section>\n'


def _text(text: str) -> _Cell:
    return _Cell(_escaped(text))


def _share(share: float) -> _Cell:
    # The width is an attribute: the page's policy allows no inline style.
    bar = f'<svg aria-hidden="true"><rect width="{min(share, 1):.1%}" height="100%"/></svg>'
    return _Cell(f'<span><span class="rl-share">{bar}</span>{share:.0%}</span>', figure=True)


def _badge(verdict: str) -> _Cell:
    return _Cell(f'<span class="rl-badge" data-verdict="{verdict}">{verdict}</span>')


def _escaped(text: str) -> str:
    return html.escape(visible(text))
