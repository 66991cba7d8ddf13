"""An explanation in the terminal: what matters of the prompt, shaded by weight, and the ranking."""

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
from ropelime.views.layout import SHADE_FROM, Piece, around, blocks, hidden, mattering, pieces

# Blue supports and orange opposes: distinct for every common kind of colour blindness.
_SUPPORT = ((0xDE, 0xEB, 0xF7), (0x08, 0x51, 0x9C))
_OPPOSE = ((0xFE, 0xE6, 0xCE), (0xA6, 0x36, 0x03))
_WHITE_FROM = 0.72  # of the deepest shade: from here white ink has more contrast than black
_BARS = ("#3c8cdc", "#e07b20")  # visible on black and on white
_SIGNALS_FROM = 140  # columns of a terminal that has room for the signals of a feature
_BAR = (6, 30)  # columns of the longest bar: a quarter of the width, within these limits
_LINES = 24  # of a prompt that is printed whole in any case
_LONGEST = 4  # lines of one part of a prompt that is not printed whole
_GAP = 2  # lines that are not worth folding
_ANSWER = 80  # characters of the answer to a verifying call
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_RAISED = str.maketrans("-=0123456789", "⁻⁼⁰¹²³⁴⁵⁶⁷⁸⁹")


def show(
    explanation: ExplanationData,
    *,
    top: int = 5,
    full: bool = False,
    details: bool = False,
    console: Console | None = None,
) -> None:
    """Print an explanation, in colour only on a terminal.

    Args:
        explanation: What to print.
        top: How many features the ranking lists.
        full: Print all of a long prompt, and not only the parts that matter with what surrounds them.
        details: Print intervals, verdicts, notes and the cost as well.
        console: Where to print it, if not to standard output.
    """
    (console or Console()).print(_View(explanation, top, full, details))


def to_svg(
    explanation: ExplanationData,
    *,
    top: int = 5,
    full: bool = False,
    details: bool = False,
    width: int = 100,
) -> str:
    """The same view as an SVG picture, for documents."""
    console = Console(
        record=True, file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor"
    )
    show(explanation, top=top, full=full, details=details, console=console)
    picture = console.export_svg(title="ropelime", unique_id="ropelime")
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # they are loaded from the web


@dataclass(frozen=True)
class _View:
    """What Rich calls with the console, to adapt to its width and colours."""

    explanation: ExplanationData
    top: int
    full: bool
    details: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        e, width = self.explanation, options.max_width
        coloured = console.color_system is not None
        key = "blue supports the answer" if coloured else "raised numbers are ranks"
        opposes = ", orange opposes it" if coloured else ", ⁻ opposes"
        yield _rule(f"prompt · {key}{opposes if has_signs(e) else ''}")
        shaded = _Shades(e, 0 if coloured else self.top)
        yield from _prompt(shaded, self.top, width, full=self.full)
        yield _rule("answer")
        yield _answer(e)
        count = min(self.top, len(e.features))
        yield _rule(
            f"the {count} largest weights" if e.verified is None else f"the first {count} parts"
        )
        yield _ranking(e, self.top, width, details=self.details)
        if rest := _without_share(e, self.top):
            yield Text(rest, style="dim")
        yield from _judged(e, details=self.details)
        if self.details:
            yield Text(plain(_summary(e)), style="dim")
            for note in e.diagnostics.notes:
                yield Text(plain(note), style="dim")
        for warning in e.diagnostics.warnings:
            yield Text(plain(f"! {warning}"), style="yellow")


def _judged(e: ExplanationData, *, details: bool) -> Iterator[RenderableType]:
    """How far to trust it, what further calls showed, and what else was found."""
    if e.trust is not None:
        said = Text(plain(f"trust {e.trust.value:.0%} · {e.trust.text}"))
        yield said if details else said.append(" (--details says more)", style="dim")
        if details:
            yield _verdicts(e.trust)
    if e.verified is not None:
        yield Text(verifying(e))
        for sent, outcome, answer in outcomes(e):
            style = "bold" if outcome.startswith("changed") else ""
            line = Text(f"  {sent}: ").append(outcome, style=style)
            yield line.append(f" → {shorten(' '.join(answer.split()), _ANSWER)}", style="dim")
    for finding in findings(e):
        yield Text(plain(finding))


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


class _Shades:
    """Text of the prompt with its shades; the first ``marked`` features carry their rank."""

    def __init__(self, e: ExplanationData, marked: int) -> None:
        self.e = e
        self._largest = float(abs(e.weights).max()) or 1.0
        self._places = places(e)
        self._first = {ranked.index for ranked in e.top(marked)}

    def text(self, piece: Piece, most: int | None = None) -> Text:
        """One piece, cut in its middle where it is longer than ``most`` characters."""
        source, i = self.e.prompt.text[piece.start : piece.end], piece.feature
        if most is not None and len(source) > most:
            source = f"{source[: most * 2 // 3].rstrip()} … {source[-(most // 3) :].lstrip()}"
        if i is None:
            return Text(plain(source), style="dim")
        body, weight = source.rstrip(), float(self.e.weights[i])
        text = Text().append(plain(body), style=_style(weight / self._largest))
        if i in self._first and weight and piece.end == self.e.features[i].end:
            text.append(f"{'-' if weight < 0 else ''}{self._places[i]}".translate(_RAISED))
        return text.append(plain(source[len(body) :]))


def _prompt(shaded: _Shades, top: int, width: int, *, full: bool) -> Iterator[Text]:
    """The prompt in its blocks; of a long one what matters, with its surroundings."""
    e = shaded.e
    whole = full or _lines(e.prompt.text, width) <= _LINES
    wanted, skipped, folded = mattering(e, top), [], set[int]()
    for block in blocks(e.prompt):
        cut = pieces(e, block.start, block.end)
        shown = set(range(len(cut))) if whole else around(cut, wanted)
        inside = {piece.feature for piece in cut if piece.feature is not None}
        if inside and not shown:  # nothing in it matters
            skipped.append(block.name)
            folded |= inside
            continue
        yield from _folded(e, skipped, folded)
        skipped, folded = [], set()
        if block.name:
            yield Text(plain(f"[{block.name}]"), style="bold")
        elif block.start > 0 and e.prompt.kind == "context":
            yield Text()  # the question does not belong to the last chunk
        yield _block(shaded, cut, shown or set(range(len(cut))), None if whole else width)
    yield from _folded(e, skipped, folded)


def _folded(e: ExplanationData, names: list[str], features: set[int]) -> Iterator[Text]:
    """A line for blocks that are not shown, if there are any."""
    if names:
        unit = "message" if e.prompt.kind == "messages" else "chunk"
        many = f"{len(names):,} {unit}{'' if len(names) == 1 else 's'}, "
        many *= any(names) and e.config.get("features") not in ("document", "message")
        yield Text(f"⋯ {many}{hidden(e, features)} (--full)", style="dim italic")


def _block(shaded: _Shades, cut: list[Piece], shown: set[int], width: int | None) -> Text:
    """A block of the prompt; runs of pieces that are not shown are folded, unless they are short."""
    text, run = Text(), list[Piece]()
    most = None if width is None else _LONGEST * width

    def fold() -> None:
        size = sum(piece.end - piece.start for piece in run)
        inside = {piece.feature for piece in run if piece.feature is not None}
        if width is None or size <= _GAP * width or not inside:
            for piece in run:
                text.append_text(shaded.text(piece, most))
        else:
            line = "" if not text or text.plain.endswith("\n") else "\n"
            text.append(f"{line}⋯ {hidden(shaded.e, inside)} (--full)\n", style="dim italic")
        run.clear()

    for i, piece in enumerate(cut):
        if i in shown:
            fold()
            text.append_text(shaded.text(piece, most))
        else:
            run.append(piece)
    fold()
    text.rstrip()
    return text


def _lines(text: str, width: int) -> int:
    """About how many lines a text takes."""
    return sum(1 + len(line) // width for line in text.splitlines())


def _ranking(explanation: ExplanationData, top: int, width: int, *, details: bool) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    intervals = explanation.normalized_intervals if details else None
    place = places(explanation)
    prompt = explanation.prompt
    signals = explanation.signals if details and width >= _SIGNALS_FROM else {}
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
    if depth < SHADE_FROM:
        return Style()
    light, dark = _SUPPORT if weight > 0 else _OPPOSE
    r, g, b = (round(x + (y - x) * depth) for x, y in zip(light, dark, strict=True))
    ink = "#ffffff" if depth > _WHITE_FROM else "#000000"
    return Style(bgcolor=f"#{r:02x}{g:02x}{b:02x}", color=ink)
