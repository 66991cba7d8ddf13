"""The audit of an answer, the summary of many, and the steps of a run in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ropelime.results.audit import AuditData
from ropelime.results.decisions import Decision, Hop, origins
from ropelime.results.summary import SummaryData
from ropelime.text.display import plain, shorten
from ropelime.traces.steps import Step, TraceData
from ropelime.views.sentences import KINDS, cost_facts, label, marks_sentence, summary_sentence

_DECIDED = {"user": "green", "tool": "bold red", "unclear": "yellow"}
_COLOURS = {
    "confirmed": "green",
    "refuted": "bold red",
    "unsupported": "bold red",
    "unknown": "bold red",
}
_STATEMENT = 160  # characters of a statement
_PARTS = 20  # rows of a table of parts


def show_audit(audit: AuditData, *, console: Console | None = None) -> None:
    """Print a row for each mark and for each sentence that should have one."""
    console = console or Console()
    table = _table("mark", "verdict", "statement", "cites", "why")
    for mark in audit.marks:
        verdict = Text(mark.verdict, style=_COLOURS[mark.verdict])
        table.add_row(
            _cell(label(mark)), verdict, *map(_cell, (mark.statement.text, mark.name, mark.why))
        )
    for each in audit.uncited:
        sources = ", ".join(source.name for source in each.sources)
        why = f"probably rests on {sources} ({each.chance})"
        cells = (each.text, "", "; ".join(filter(None, (why, each.unsaid))))
        table.add_row(_cell("none"), Text("uncited", style="yellow"), *map(_cell, cells))
    if table.row_count:
        console.print(table)
    console.print(Text(marks_sentence(audit)))


def show_summary(summary: SummaryData, *, console: Console | None = None) -> None:
    """Print what mattered, what never did, the sentences without a source, and the cost."""
    console = console or Console()
    for kind, title in KINDS.items():
        parts = summary.of_kind(kind)
        if not parts:
            continue
        console.print(Rule(Text(title), align="left", style="dim"))
        table = _table("mattered", "mean share", "first", "sentences", "name", right=4)
        for part in parts[:_PARTS]:
            figures = (f"{part.mattered:,} of {part.given:,}", f"{part.mean_share:.0%}")
            cells = (*figures, f"{part.first:,}", f"{part.cited:,}", part.name)
            table.add_row(*map(_cell, cells), style="" if part.mattered else "dim")
        console.print(table)
        if len(parts) > _PARTS:
            console.print(Text(f"{len(parts) - _PARTS:,} more; --json has all of them", style="dim"))
    if summary.ungrounded:
        console.print(Rule(Text("Sentences without a source"), align="left", style="dim"))
        for each in summary.ungrounded_sentences[:_PARTS]:
            line = shorten(plain(each.text), _STATEMENT)
            console.print(Text(line).append(f" ({plain(each.answer)})", style="dim"))
        if summary.ungrounded > _PARTS:
            more = summary.ungrounded - min(_PARTS, len(summary.ungrounded_sentences))
            console.print(Text(f"{more:,} more", style="dim"))
    console.print(Rule(style="dim"))
    console.print(Text(summary_sentence(summary)))
    facts = " · ".join(f"{name} {value}" for name, value in cost_facts(summary))
    console.print(Text(facts, style="dim"))


def show_trace(trace: TraceData, *, console: Console | None = None) -> None:
    """Print a row for each step: what it is, what it was given, what came out, and when."""
    console = console or Console()
    several = len({step.trace_id for step in trace.steps}) > 1
    run: str | None = None
    timed = any(step.seconds is not None for step in trace.steps)
    table = _table("step", "kind", "name", "messages", *(["seconds"] if timed else []), "output")
    for step in trace.steps:
        if several and step.trace_id != run:
            run = step.trace_id
            table.add_row("", "", _line(run or "no run", 40), style="dim")
        name = _line(step.model if step.kind == "model" and step.model else step.name, 28)
        figures = [str(len(step.messages) or ""), *([_seconds(step)] if timed else [])]
        style = "" if step.kind in ("model", "tool", "retrieval") else "dim"
        output = _line(_outcome(step), 100)
        table.add_row(str(step.number), step.kind, name, *figures, output, style=style)
    console.print(table)
    models = len(trace.model_steps)
    line = f"{len(trace.steps):,} steps, {models:,} of models · {trace.form}"
    if trace.problems:
        line += f" · {len(trace.problems):,} problems"
    console.print(Text(plain(line), style="dim"))


def show_decisions(
    step: Step, decisions: Sequence[Decision], *, console: Console | None = None
) -> None:
    """Print who decided on each action of a step."""
    console = console or Console()
    for decision in decisions:
        console.print(Rule(Text(f"Step {step.number}"), align="left", style="dim"))
        console.print(Text(shorten(plain(decision.action), _STATEMENT)))
        console.print(Text(plain(decision.text), style=_DECIDED[decision.verdict]))
        table = _table("share", "interval", "of", right=2)
        for each in decision.influences:
            low, high = each.interval
            table.add_row(f"{each.share:.0%}", f"{low:.0%} to {high:.0%}", _cell(each.name))
        console.print(table)


def show_hops(hops: Sequence[Hop], *, console: Console | None = None) -> None:
    """Print the graph of where the actions of a step came from, as a tree, and where its ways end."""
    console = console or Console()
    console.print(Rule(Text("Followed back"), align="left", style="dim"))
    shown: set[int] = set()
    for hop in hops[:1]:
        _branches(hop.step, hops, shown, console, "")
    ends = ", ".join(f"{share:.0%} {name}" for name, share in origins(hops).items())
    console.print(Text(plain(f"In the end: {ends or 'nothing that mattered much'}")))


def _branches(step: int, hops: Sequence[Hop], shown: set[int], console: Console, indent: str) -> None:
    """The messages that mattered in a step, each with the step that it came from."""
    shown.add(step)
    for action in dict.fromkeys(hop.action for hop in hops if hop.step == step):
        console.print(_line(f"step {step}: {action}", _STATEMENT, indent))
        for hop in [hop for hop in hops if (hop.step, hop.action) == (step, action)]:
            name = f"output of {hop.tool}" if hop.tool else hop.role
            line = f"{hop.share:.0%} message {hop.message + 1}, {name}: {hop.text}"
            console.print(_line(line, _STATEMENT, f"{indent}  "))
            if hop.from_step is None:
                continue
            if hop.from_step in shown or not any(each.step == hop.from_step for each in hops):
                console.print(Text(f"{indent}    from step {hop.from_step}", style="dim"))
            else:
                _branches(hop.from_step, hops, shown, console, f"{indent}    ")


def _line(text: str, most: int, indent: str = "") -> Text:
    """Text that is cut off where there is no room for it."""
    return Text(indent + shorten(plain(text), most), overflow="ellipsis", no_wrap=True)


def _outcome(step: Step) -> str:
    """The beginning of an output on one line; calls are shorter than their JSON."""
    calls = [f"{call.name}({call.arguments})" for call in step.calls]
    return " ".join(filter(None, [step.text, *(calls if step.kind == "model" else ())]))


def _seconds(step: Step) -> str:
    return "" if step.seconds is None else f"{step.seconds:,.1f}"


def _table(*heads: str, right: int = 0) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i < right else "left", overflow="fold")
    return table


def _cell(text: str) -> Text:
    """Text as it is: a string would be parsed as markup."""
    return Text(shorten(plain(text), _STATEMENT))
