"""An explanation in the terminal: the prompt shaded by share, the ranking, and when not to trust it."""

from __future__ import annotations

import io
import re

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ropelime.explanation import Explanation
from ropelime.views.text import plain

# Blue supports and orange opposes: these two stay apart for every common kind of colour blindness.
_SUPPORT = ((0xDE, 0xEB, 0xF7), (0x08, 0x51, 0x9C))
_OPPOSE = ((0xFE, 0xE6, 0xCE), (0xA6, 0x36, 0x03))
_SHADE_FROM = 0.15  # of the largest weight: smaller ones are left plain
_BAR = 24


def render(explanation: Explanation, *, top: int = 5) -> RenderableType:
    """Something that Rich can print.

    Args:
        explanation: What to show.
        top: How many features the ranking lists.
    """
    start, end = explanation.span
    answer = Text(plain(explanation.output))
    if (start, end) != (0, len(explanation.output)):
        answer.stylize("reverse", start, end)
    blocks: list[RenderableType] = [
        Rule("prompt", align="left", style="dim"),
        _prompt(explanation),
        Rule("answer", align="left", style="dim"),
        answer,
        Rule(
            Text(f"the {min(top, len(explanation.features))} largest shares"), align="left", style="dim"
        ),
        _ranking(explanation, top),
        Text(plain(_summary(explanation)), style="dim"),
    ]
    for note in explanation.diagnostics.notes:
        blocks.append(Text(note, style="dim"))
    for warning in explanation.diagnostics.warnings:
        blocks.append(Padding(Text(plain(f"! {warning}"), style="yellow"), (0, 0, 0, 0)))
    return Group(*blocks)


def show(explanation: Explanation, *, top: int = 5, console: Console | None = None) -> None:
    """Print an explanation; colour appears on a terminal only."""
    (console or Console()).print(render(explanation, top=top))


def to_svg(explanation: Explanation, *, top: int = 5, width: int = 100) -> str:
    """The same view as a picture, for documents."""
    console = Console(record=True, file=io.StringIO(), width=width, force_terminal=True)
    console.print(render(explanation, top=top))
    picture = console.export_svg(title="ropelime", unique_id="ropelime")
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they come from elsewhere


def _prompt(explanation: Explanation) -> Text:
    text = Text()
    source, at = explanation.prompt.text, 0
    largest = float(abs(explanation.weights).max()) or 1.0
    for feature, weight in zip(explanation.features, explanation.weights, strict=True):
        text.append(plain(source[at : feature.start]), style="dim")
        body = feature.text.rstrip()
        text.append(plain(body), style=_style(float(weight) / largest))
        text.append(plain(feature.text[len(body) :]))
        at = feature.end
    text.append(plain(source[at:]), style="dim")
    return text


def _ranking(explanation: Explanation, top: int) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    largest = float(explanation.scores.max()) or 1.0
    for rank, share in enumerate(explanation.top(top), 1):
        bar = "█" * max(1, round(_BAR * share.score / largest))
        style = _style(1.0 if share.weight >= 0 else -1.0).bgcolor
        sign = "+" if share.weight >= 0 else "-"
        table.add_row(
            f"{rank}",
            f"{share.score:.0%}",
            Text(f"{sign}{bar:<{_BAR}}", style=Style(color=style)),
            Text(plain(" ".join(share.text.split()))),  # a plain string would be read as markup
        )
    return table


def _summary(explanation: Explanation) -> str:
    cost, d = explanation.cost, explanation.diagnostics
    seconds = f" in {cost.seconds:.1f} s" if cost.seconds is not None else ""
    return (
        f"{explanation.config['surrogate']['name']} read {cost.passes} masked prompts, "
        f"{cost.tokens:,} tokens{seconds} · answer {d.logprob_full:.2f} nats a token with the "
        f"features, {d.logprob_none:.2f} without · R² {d.r2:.2f}"
    )


def _style(share: float) -> Style:
    """A background for a weight between -1 and 1."""
    depth = abs(share)
    if depth < _SHADE_FROM:
        return Style()
    light, dark = _SUPPORT if share > 0 else _OPPOSE
    r, g, b = (round(x + (y - x) * depth) for x, y in zip(light, dark, strict=True))
    return Style(bgcolor=f"#{r:02x}{g:02x}{b:02x}", color="white" if depth > 0.55 else "black")
