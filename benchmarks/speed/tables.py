"""The tables of the performance page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks import pages
from benchmarks.pages import NONE, table
from benchmarks.speed.names import OURS, SPARSE, TASKS
from benchmarks.speed.summary import Speed, Sum, total
from benchmarks.store import Row

_HEAD = ["", "masked prompts", "tokens", "tokens run", "seconds", "tokens/s", "memory"]
_HEAD += ["of roofline", "speed-up of ropelime"]
_COSTS = ["masked prompts", "tokens run", "operations", "seconds", "tokens run/s", "of roofline"]
_COSTS += ["memory"]


def origin(one: Speed) -> str:
    """The command, the machine, the versions and the date."""
    header = one.header
    model = header["surrogate"]
    versions = {**header["versions"], "torch": model["torch"], "transformers": model["transformers"]}
    facts = [
        f"{one.device}; {model['name']} in {model['dtype']}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"{header['rounds']} rounds" if header["rounds"] > 1 else "one round",
        str(header["date"]),
    ]
    facts += [f"'{method}' and its option no longer exist" for method in header["retired"]]
    title = f"### {one.device}: {model['name']}"
    return pages.blocks(title, pages.commands(header["command"]), "; ".join(facts) + ".")


def contest(one: Speed) -> str:
    """All contenders, a table for each task."""
    prompts = {row["prompt"]: row["features"] for row in one.rows}
    sizes = ", ".join(str(n) for n in prompts.values())
    count = "One prompt" if len(prompts) == 1 else f"{len(prompts)} prompts"
    blocks = [f"{count} of {sizes} sentences. {_rates(one.rows)}"]
    for task in TASKS:
        ours = total(one.of(OURS, task=task))
        lines = []
        for method in one.header["methods"]:
            rows = one.of(method, task=task)
            if not rows or any("skipped" in row for row in rows):
                continue
            name = method + (f", batch {rows[0]['batch']}" if "batch" in rows[0] else "")
            lines.append([name, *_cells(rows, ours)])
        blocks += [f"**{task}**", table(_HEAD, lines) if lines else "Not measured."]
    return pages.blocks(*blocks)


def shape(one: Speed) -> str:
    """A whole explanation with a model of some shape."""
    header = one.header
    ours = total(one.of(OURS))
    lines = [[method, *_cells(one.of(method), ours)] for method in header["methods"]]
    prompt = f"{header['features']} features of {header['feature-tokens']} tokens."
    return pages.blocks(f"{prompt} {_rates(one.rows)}", table(_HEAD, lines))


def scaling(one: Speed) -> str:
    """Cost against the number of features, and against the number of masks."""
    lines = []
    for row in one.rows:
        if "skipped" in row or not row["example"].endswith("features"):
            continue
        name = [str(row["features"]), f"{row['length']:,}", row["method"]]
        lines.append([*name, *_costs(row)])
    by_masks = [row for row in one.of(SPARSE) if row["example"].endswith("masks")]
    blocks = [
        f"Features of {one.header['feature-tokens']} random tokens.",
        table(["features", "prompt", "masks", *_COSTS], lines),
    ]
    if by_masks:
        blocks += [
            f"Memory against the number of masks, {by_masks[0]['features']} features:",
            table(["masks", *_COSTS], [[str(row["masks"]), *_costs(row)] for row in by_masks]),
        ]
    return pages.blocks(*blocks)


def start(one: Speed) -> str:
    """The first explanation of a process."""
    lines = [
        [
            f"{row['features']}",
            f"{row['prompts']}",
            f"{row['run']:,}",
            *(_seconds(row[key]) for key in ("import", "first", "since", "second")),
        ]
        for row in one.rows
    ]
    head = ["sentences", "masked prompts", "tokens run", "import", "first", "since start", "second"]
    return table(head, lines)


def _cells(rows: Sequence[Row], ours: Sum | None) -> list[str]:
    whole = total(rows)
    if whole is None:
        return [_why(rows), *[""] * (len(_HEAD) - 2)]
    return [
        f"{whole.prompts:,}",
        f"{whole.tokens:,}",
        f"{whole.run:,}",
        f"{whole.seconds:.3g}" if whole.seconds < 100 else f"{whole.seconds:,.0f}",
        f"{whole.rate:,.0f}",
        _megabytes(whole.memory),
        f"{whole.of_roofline:.0%}",
        f"{ours.rate / whole.rate:.2f} ×" if ours else NONE,
    ]


def _costs(row: Row) -> list[str]:
    if "seconds" not in row:
        return [_why([row]), *[""] * (len(_COSTS) - 1)]
    return [
        f"{row['prompts']:,}",
        f"{row['run']:,}",
        f"{row['operations'] / 1e12:,.3g} T",
        _seconds(row["seconds"]),
        f"{row['run'] / row['seconds']:,.0f}",
        f"{row['roofline'] / row['seconds']:.1%}",
        _megabytes(row["memory"]),
    ]


def _why(rows: Sequence[Row]) -> str:
    """The reason why there are no numbers."""
    for row in rows:
        if "failed" in row:
            return f"failed: {row['failed']}".replace("|", "\\|")
        if "absent" in row:
            return str(row["absent"])
    return NONE


def _rates(rows: Iterable[Row]) -> str:
    found = sorted(row["rate"] / 1e12 for row in rows if "rate" in row)
    if not found:
        return ""
    low, high = f"{found[0]:.3g}", f"{found[-1]:.3g}"
    return f"Matrix rate: {low if low == high else f'{low} to {high}'} Tflop/s."


def _seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def _megabytes(value: int) -> str:
    return f"{value / 1e6:,.0f} MB"
