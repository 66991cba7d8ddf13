"""The first view of an explanation as plain HTML: no script, no style sheet, the colours of the page.

Notebooks and editors show it in a page of their own. Their variables for colours are used where they
are set: those of VS Code (``--vscode-...``) and of JupyterLab (``--jp-...``).
"""

from __future__ import annotations

import html

from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten, visible
from ropelime.views.findings import has_share, places

_ROWS = 5
_LONGEST = 240  # characters of a part or of a warning
_INK = "var(--vscode-editor-foreground, var(--jp-content-font-color1, inherit))"
_SOFT = "var(--vscode-descriptionForeground, var(--jp-content-font-color2, inherit))"
_BLUE = "var(--vscode-charts-blue, #3c8cdc)"
_ORANGE = "var(--vscode-charts-orange, #f08c32)"
_LINE = "var(--vscode-panel-border, var(--jp-border-color2, #8884))"
_FONT = "var(--vscode-font-family, var(--jp-content-font-family, system-ui, sans-serif))"
_CELL = "padding:0.25em 0.6em;text-align:left;vertical-align:top;background:none;border:0;"
STYLE = f"color:{_INK};font-family:{_FONT};line-height:1.5"  # of text that is not in a frame
_BAR = "display:inline-block;height:0.6em;"


def first_view(e: ExplanationData) -> str:
    """The answer, its trust and the first parts of the prompt as a table."""
    place, ranked = places(e), e.top(_ROWS)
    largest = max((each.normalized_weight for each in ranked), default=0.0) or 1.0
    lines = []
    for each in ranked:
        share = f"{each.normalized_weight:.0%}" if has_share(e, each.index) else "–"
        sign = "−" if each.weight < 0 else ""
        where = e.prompt.where(e.features[each.index].part)
        width = 8 * each.normalized_weight / largest
        colour = _ORANGE if each.weight < 0 else _BLUE
        bar = (
            f'<span style="display:inline-block;height:0.6em;width:{width:.2f}em;background:{colour}">'
        )
        cells = [place[each.index], f"{bar}</span> {sign}{share}", _text(each.text), _text(where)]
        styles = ("", "white-space:nowrap;", "", "")  # a bar and its figure stay on one line
        both = zip(cells, styles, strict=True)
        marked = "".join(f'<td style="{_CELL}{style}">{cell}</td>' for cell, style in both)
        lines.append(f'<tr style="background:none;border-top:1px solid {_LINE}">{marked}</tr>')
    heads = "".join(
        f'<th scope="col" style="{_CELL}color:{_SOFT};font-weight:500">{name}</th>'
        for name in ("rank", "weight", "part of the prompt", "where")
    )
    rest = len(e.features) - len(ranked)
    parts = "part has" if rest == 1 else "parts have"
    more = f"<p>{rest:,} more {parts} less weight.</p>" if rest else ""
    return (
        f'<div style="{STYLE}">'
        f"<p><strong>{_text(e.output)}</strong></p>{_trust(e)}"
        f'<table style="border-collapse:collapse;color:inherit;margin:0">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}</div>"
    )


def _trust(e: ExplanationData) -> str:
    says = [] if e.trust is None else [f"Trust {e.trust.value:.0%}: {e.trust.text}"]
    lines = [*says, *(f"⚠ {warning}" for warning in e.diagnostics.warnings)]
    return "".join(f'<p style="color:{_SOFT}">{_text(line)}</p>' for line in lines)


def _text(text: str) -> str:
    return html.escape(shorten(visible(text), _LONGEST))
