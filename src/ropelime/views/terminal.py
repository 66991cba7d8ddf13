"""An explanation in the terminal: the prompt shaded by share, the ranking, and when not to trust it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ropelime.results.explanation import Explanation
from ropelime.text.display import plain
from ropelime.views.findings import findings, surrogates
from ropelime.views.uncertainty import places, uncertainty

# Blue supports and orange opposes: these two stay apart for every common kind of colour blindness.
_SUPPORT = ((0xDE, 0xEB, 0xF7), (0x08, 0x51, 0x9C))
_OPPOSE = ((0xFE, 0xE6, 0xCE), (0xA6, 0x36, 0x03))
_WHITE_FROM = 0.72  # of the deepest shade: there white ink stands out more than black
_BARS = ("#3c8cdc", "#e07b20")  # to be seen on black and on white
_SHADE_FROM = 0.15  # of the largest weight: smaller ones are left plain
_BAR = (6, 30)  # columns of the longest bar: a quarter of the width, within these
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_RAISED = str.maketrans("-=0123456789", "⁻⁼⁰¹²³⁴⁵⁶⁷⁸⁹")


def render(explanation: Explanation, *, top: int = 5) -> RenderableType:
    """Something that Rich can print, made to the width and the colours of where it is printed.

    Args:
        explanation: What to show.
        top: How many features the ranking lists.
    """
    return _View(explanation, top)


def show(explanation: Explanation, *, top: int = 5, console: Console | None = None) -> None:
    """Print an explanation; colour appears on a terminal only."""
    (console or Console()).print(render(explanation, top=top))


def to_svg(explanation: Explanation, *, top: int = 5, width: int = 100) -> str:
    """The same view as a picture, for documents."""
    console = Console(
        record=True, file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor"
    )
    console.print(render(explanation, top=top))
    picture = console.export_svg(title="ropelime", unique_id="ropelime")
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they come from elsewhere


@dataclass(frozen=True)
class _View:
    explanation: Explanation
    top: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        e = self.explanation
        coloured = console.color_system is not None
        key = "blue supports, orange opposes" if coloured else "ranks raised, ⁻ opposes"
        yield _rule(f"prompt · {key}")
        yield _prompt(e, 0 if coloured else self.top)
        yield _rule("answer")
        yield _answer(e)
        yield _rule(f"the {min(self.top, len(e.features))} largest shares")
        yield _ranking(e, self.top, options.max_width)
        if trust := uncertainty(e).trust:
            yield Text(plain(f"trust {trust['value']:.0%} · {trust['text']}"))
        for finding in findings(e):
            yield Text(finding)
        yield Text(plain(_summary(e)), style="dim")
        for note in e.diagnostics.notes:
            yield Text(note, style="dim")
        for warning in e.diagnostics.warnings:
            yield Text(plain(f"! {warning}"), style="yellow")


def _rule(title: str) -> Rule:
    return Rule(Text(title), align="left", style="dim")


def _answer(explanation: Explanation) -> Text:
    start, end = explanation.span
    answer = Text(plain(explanation.output))
    if (start, end) != (0, len(explanation.output)):
        answer.stylize("reverse", start, end)
    return answer


def _prompt(explanation: Explanation, marked: int) -> Text:
    """The prompt with shades; the first ``marked`` features carry their place."""
    text = Text()
    source, at = explanation.prompt.text, 0
    largest = float(abs(explanation.weights).max()) or 1.0
    place = places(explanation)
    first = {share.index for share in explanation.top(marked)}
    for i, (feature, weight) in enumerate(zip(explanation.features, explanation.weights, strict=True)):
        text.append(plain(source[at : feature.start]), style="dim")
        body = feature.text.rstrip()
        text.append(plain(body), style=_style(float(weight) / largest))
        if i in first and weight:
            text.append(f"{'-' if weight < 0 else ''}{place[i]}".translate(_RAISED))
        text.append(plain(feature.text[len(body) :]))
        at = feature.end
    text.append(plain(source[at:]), style="dim")
    return text


def _ranking(explanation: Explanation, top: int, width: int) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    intervals, place = uncertainty(explanation).normalized_weights, places(explanation)
    prompt = explanation.prompt
    for justify in ("left", "right", *(("left",) if intervals is not None else ()), "left"):
        table.add_column(justify=justify, no_wrap=True)
    if prompt.origins:
        table.add_column(overflow="ellipsis", no_wrap=True, style="dim")
    table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    largest = float(explanation.normalized_weights.max()) or 1.0
    longest = min(max(width // 4, _BAR[0]), _BAR[1])
    for share in explanation.top(top):
        sign = "+" if share.weight >= 0 else "-"
        bar = sign + _bar(longest * share.score / largest)
        part = explanation.features[share.index].part
        between: tuple[str, ...] = ()
        if intervals is not None:
            low, high = intervals[share.index]
            between = (f"{low:.0%} to {high:.0%}",)
        table.add_row(
            place[share.index],
            f"{share.score:.0%}",
            *between,
            Text(bar.ljust(longest + 1), style=_BARS[share.weight < 0]),
            *((Text(_end(plain(str(prompt.origin(part))), width // 4)),) if prompt.origins else ()),
            Text(plain(" ".join(share.text.split()))),  # a plain string would be read as markup
        )
    return table


def _end(text: str, width: int) -> str:
    """The end of a text that is too long: of a path, that is where the file is."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _bar(length: float) -> str:
    """A bar of so many columns, to an eighth of one; the smallest is seen too."""
    eighths = max(1, round(8 * length))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def _summary(explanation: Explanation) -> str:
    cost, d = explanation.cost, explanation.diagnostics
    seconds = f" in {cost.seconds:.1f} s" if cost.seconds is not None else ""
    return (
        f"{surrogates(explanation)} read {cost.masks} masked prompts, "
        f"{cost.tokens:,} tokens{seconds} · answer {d.logprob_full:.2f} nats a token with the "
        f"features, {d.logprob_empty:.2f} without · R² {d.r2:.2f}"
    )


def _style(share: float) -> Style:
    """A background for a weight between -1 and 1."""
    depth = abs(share)
    if depth < _SHADE_FROM:
        return Style()
    light, dark = _SUPPORT if share > 0 else _OPPOSE
    r, g, b = (round(x + (y - x) * depth) for x, y in zip(light, dark, strict=True))
    ink = "#ffffff" if depth > _WHITE_FROM else "#000000"
    return Style(bgcolor=f"#{r:02x}{g:02x}{b:02x}", color=ink)
