"""An explanation in the terminal: the prompt shaded by weight, the ranking, and its verdicts."""

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

from ropelime.results.citations import judge_sentences
from ropelime.results.explanation import ExplanationData
from ropelime.results.verdicts import Trust
from ropelime.text.display import plain, shorten
from ropelime.views.findings import (
    findings,
    has_share,
    has_signs,
    outcomes,
    places,
    surrogates,
    verifying,
)

# Blue supports and orange opposes: distinct for every common kind of colour blindness.
_SUPPORT = ((0xDE, 0xEB, 0xF7), (0x08, 0x51, 0x9C))
_OPPOSE = ((0xFE, 0xE6, 0xCE), (0xA6, 0x36, 0x03))
_WHITE_FROM = 0.72  # of the deepest shade: from here white ink has more contrast than black
_BARS = ("#3c8cdc", "#e07b20")  # visible on black and on white
_SHADE_FROM = 0.15  # of the largest weight: smaller ones have no shade
_SIGNALS_FROM = 140  # columns of a terminal that has room for the signals of a feature
_BAR = (6, 30)  # columns of the longest bar: a quarter of the width, within these limits
_ANSWER = 80  # characters of the answer to a verifying call
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_RAISED = str.maketrans("-=0123456789", "⁻⁼⁰¹²³⁴⁵⁶⁷⁸⁹")


def show(explanation: ExplanationData, *, top: int = 5, console: Console | None = None) -> None:
    """Print an explanation with a ranking of ``top`` features, in colour only on a terminal."""
    (console or Console()).print(_View(explanation, top))


def to_svg(explanation: ExplanationData, *, top: int = 5, width: int = 100) -> str:
    """The same view as an SVG picture, for documents."""
    console = Console(
        record=True, file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor"
    )
    show(explanation, top=top, console=console)
    picture = console.export_svg(title="ropelime", unique_id="ropelime")
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they are loaded from the web


@dataclass(frozen=True)
class _View:
    """What Rich calls with the console, to adapt to its width and colours."""

    explanation: ExplanationData
    top: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        e = self.explanation
        coloured = console.color_system is not None
        key, opposes = ("blue supports", "orange") if coloured else ("ranks raised", "⁻")
        key += f", {opposes} opposes" if has_signs(e) else ""
        yield _rule(f"prompt · {key}")
        yield _prompt(e, 0 if coloured else self.top)
        yield _rule("answer")
        yield _answer(e)
        count = min(self.top, len(e.features))
        yield _rule(
            f"the {count} largest weights" if e.verified is None else f"the first {count} parts"
        )
        yield _ranking(e, self.top, options.max_width)
        if rest := _without_share(e, self.top):
            yield Text(rest, style="dim")
        if e.trust is not None:
            yield Text(plain(f"trust {e.trust.value:.0%} · {e.trust.text}"))
            yield _verdicts(e.trust)
        if e.verified is not None:
            yield Text(verifying(e))
            for sent, outcome, answer in outcomes(e):
                style = "bold" if outcome.startswith("changed") else ""
                line = Text(f"  {sent}: ").append(outcome, style=style)
                yield line.append(f" → {shorten(' '.join(answer.split()), _ANSWER)}", style="dim")
        for finding in findings(e):
            yield Text(plain(finding))
        yield Text(plain(_summary(e)), style="dim")
        for note in e.diagnostics.notes:
            yield Text(plain(note), style="dim")
        for warning in e.diagnostics.warnings:
            yield Text(plain(f"! {warning}"), style="yellow")


def _rule(title: str) -> Rule:
    return Rule(Text(title), align="left", style="dim")


def _answer(explanation: ExplanationData) -> Text:
    """The answer; sentences that do not come from the prompt are dim, and say so."""
    answer = Text(plain(explanation.output))
    if explanation.span != (0, len(explanation.output)):
        answer.stylize("reverse", *explanation.span)
    marked, at = Text(), 0
    for sentence in judge_sentences(explanation):
        start, end = sentence.span
        said = answer[start:end]
        if not sentence.grounded:
            said.stylize("dim")
            said.append(" [no source]", style="italic")
        marked.append_text(answer[at:start]).append_text(said)
        at = end
    return marked.append_text(answer[at:])


def _without_share(explanation: ExplanationData, top: int) -> str:
    """How many features have no share, of those that the ranking does not list."""
    listed = explanation.top(top)
    cut = sum(not has_share(explanation, ranked.index) for ranked in explanation.top()[len(listed) :])
    if not cut:
        return ""
    more = "more " if any(not has_share(explanation, ranked.index) for ranked in listed) else ""
    return f"{cut} {more}{'part has' if cut == 1 else 'parts have'} no share"


def _verdicts(trust: Trust) -> Table:
    """A row for each verdict; the sentence that trust took over is not repeated."""
    table = Table.grid(padding=(0, 1))
    for column in ({"no_wrap": True}, {"no_wrap": True, "justify": "right"}, {"overflow": "fold"}):
        table.add_column(**column)
    for verdict in trust.verdicts:
        said = "as above" if verdict.text == trust.text else plain(verdict.text)
        table.add_row(f"  {plain(verdict.name)}", f"{verdict.probability:.0%}", Text(said))
    return table


def _prompt(explanation: ExplanationData, marked: int) -> Text:
    """The prompt with shades; the first ``marked`` features carry their rank."""
    text = Text()
    source, at = explanation.prompt.text, 0
    largest = float(abs(explanation.weights).max()) or 1.0
    place = places(explanation)
    first = {ranked.index for ranked in explanation.top(marked)}
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


def _ranking(explanation: ExplanationData, top: int, width: int) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    intervals, place = explanation.normalized_intervals, places(explanation)
    prompt = explanation.prompt
    signals = explanation.signals if width >= _SIGNALS_FROM else {}
    for justify in ("left", "right", *(("left",) if intervals is not None else ()), "left"):
        table.add_column(justify=justify, no_wrap=True)
    if signals:
        table.add_column(no_wrap=True, style="dim")
    if prompt.origins:
        table.add_column(overflow="ellipsis", no_wrap=True, style="dim")
    table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    largest = float(explanation.normalized_weights.max()) or 1.0
    longest = min(max(width // 4, _BAR[0]), _BAR[1])
    for ranked in explanation.top(top):
        shared = has_share(explanation, ranked.index)
        size = f"{ranked.normalized_weight:.0%}" if shared else "–"
        cells: list[RenderableType] = [place[ranked.index], size]
        if intervals is not None:
            low, high = intervals[ranked.index]
            cells.append(f"{low:.0%} to {high:.0%}")
        eighths = max(1, round(8 * (longest * ranked.normalized_weight / largest)))  # of a column
        sign = "-" if ranked.weight < 0 else "+"
        bar = sign + "█" * (eighths // 8) + _EIGHTHS[eighths % 8] if shared else ""
        cells.append(Text(bar.ljust(longest + 1), style=_BARS[ranked.weight < 0]))
        if signals:
            shares = ", ".join(f"{name} {own[ranked.index]:.0%}" for name, own in signals.items())
            cells.append(Text(plain(shares)))
        if prompt.origins:
            name = plain(str(prompt.origin(explanation.features[ranked.index].part)))
            cells.append(Text(shorten(name, max(width // 4, 1), keep_end=True)))
        cells.append(Text(plain(" ".join(ranked.text.split()))))  # a string would be parsed as markup
        table.add_row(*cells)
    return table


def _summary(explanation: ExplanationData) -> str:
    cost, d = explanation.cost, explanation.diagnostics
    seconds = f" in {cost.seconds:.1f} s" if cost.seconds is not None else ""
    r2 = f" · R² {d.r2:.2f}" if d.has_residuals(len(explanation.features)) else ""
    return (
        f"{surrogates(explanation)} scored {cost.masks} masked prompts, "
        f"{cost.tokens:,} tokens{seconds} · answer {d.logprob_full:.2f} nats per token with the "
        f"features, {d.logprob_empty:.2f} without{r2}"
    )


def _style(weight: float) -> Style:
    """A background for a weight between -1 and 1."""
    depth = abs(weight)
    if depth < _SHADE_FROM:
        return Style()
    light, dark = _SUPPORT if weight > 0 else _OPPOSE
    r, g, b = (round(x + (y - x) * depth) for x, y in zip(light, dark, strict=True))
    ink = "#ffffff" if depth > _WHITE_FROM else "#000000"
    return Style(bgcolor=f"#{r:02x}{g:02x}{b:02x}", color=ink)
