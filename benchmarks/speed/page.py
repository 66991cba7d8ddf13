"""Results of ``python -m benchmarks speed`` become ``docs/performance.md`` and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import figures
from benchmarks.figures import Curve
from benchmarks.speed.names import COMPILED, OURS, SCALED, SPARSE, TASKS
from benchmarks.speed.summary import COMMANDS, Speed, Sum, load, total
from benchmarks.speed.targets import targets
from benchmarks.store import Row
from benchmarks.tables import markdown
from benchmarks.targets import Target

_INTRO = """\
# Performance

Made by `python -m benchmarks report` out of {files}; no figure is typed by hand. Every section begins
with the command that measures it. Figures belong to the machine, the day and its load.

**How it is measured.** Contenders score the same prompts with the same model object, dtype and threads
in one process. They take turns: everybody once, then everybody again; the median of the rounds is
given (on a GPU after one round that is not counted). *Tokens* are the lengths of all masked prompts
with the answer; *tokens run* are those that went through the model: fewer where work is shared, more
where prompts are padded. *Memory* is the most that a run took on top of what was taken before it, so
without the weights: resident memory on a CPU, allocated memory on a GPU. Our engine reads the full
prompt on top of the masks. A default explanation hides every part once, by cheap readings: whatever the
others do, it is a leave-one-out, an approximate one.

**The floor** is the time that the operations would take at the machine's own matrix rate: the product
of two square matrices (2048 rows on a CPU, 8192 on a GPU) in the model's dtype, measured before,
between and after the rounds; the median is taken. A masked prompt of L tokens to be run, the answer's
last token left out, with T tokens of answer, takes

    2 · weights of all linear layers · L
    + layers · 4 · heads · size of a head · L² / 2
    + 2 · weights of the head · T

operations: the layers, causal attention, and the head where the answer is predicted and nowhere else.
Nothing in this is shared between masked prompts, so *floor / seconds* says how close a contender comes
to a perfect loop, and can pass 100 % only by sharing work."""

_SHARED = """\
## What is shared, and what is not

Masks are read once each, in an order in which neighbours begin alike. What two neighbours have in
common at their beginning, the template, the instruction and the features before the first that
differs, is run once; everything after it is run again, because it has seen something else.
Leave-one-out masks share half of their tokens on average, masks that keep a few features of many share
little more than the template. Rows are packed one behind the other without padding, logits are
computed where the answer is predicted and nowhere else, the last layer attends from there and from
nowhere else, and divergences and span means are reduced before the next chunk is run, so that memory
depends on the length of a prompt and not on the number of masks. Cheap readings share everything but
the end of the prompt, and are an approximation.

A token looks at all keys before it. What the layers take grows with the tokens run, what attention
takes with the tokens run times the length of the prompt, in a cheap reading too, and in a prompt of
many thousand tokens that is nearly all: tokens run a second then fall as the prompt grows, for us as
for a loop, while operations a second do not. On a GPU neighbouring tails of cheap readings form groups:
the keys that all of a group see are gathered once and attended to by all its tokens together, what is
left to a tail by itself, and both results are joined by the sums of their exponentials. That gathers
2√N prompts instead of N for the N tails of leave-one-out. On a CPU every tail is given a copy of the
keys that it sees. One product of all tails with the keys of the prompt, and what a tail may not see
struck out of it, was tried there and gains little: the copies are cheap beside the products and the
exponentials.

On a CPU the engine lets the C library keep freed memory while it runs, and gives it back after each
run. Resident memory still rises with the first masks of a process: torch keeps the code that it makes
for matrix products of each size, rows are of many lengths, and the last 256 sizes are kept (left to
itself torch would keep 1,024, twice).

A processor with matrix tiles (AMX) multiplies so fast that all the rest counts: there the weights are
laid out once for a run of many tokens, and torch's fused attention is used. One without them is busy
with the products themselves: a plain loop comes to about half of the floor, so that an engine that
wasted nothing at all would be twice as fast, and only what is shared can make it more than that."""

_COMPILING = """\
torch.compile is applied layer by layer and leaves the packed attention alone, a loop over rows that it
cannot see through. *First use* is the first run; compiling is included in the first of a process. It
pays only where what it saves a run, times the runs, is more. So it is left to the user, who knows how
long a run will last: `--compile`, or `load_surrogate(..., compiled=True)`. torch keeps what it has
compiled on disk, and later processes need seconds where the first needs a minute. CUDA graphs were not
used: they want fixed sizes, and no two chunks are of one size."""

_TITLES = {
    "contest": "The same prompts for everybody",
    "shape": "A whole explanation, by size of the model",
    "scaling": "Cost against the number of features",
    "start": "The first explanation of a process",
    "compiled": "Compiled layers",
}
_NONE = "–"


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page and its figure.

    Args:
        paths: Results files of ``python -m benchmarks speed``.
        docs: A folder that has a folder ``figures``.

    Returns:
        The files that were written.
    """
    loaded = sorted((load(path) for path in paths), key=lambda one: (one.on_gpu, one.path.name))
    drawn: list[Path] = []
    curves = [
        panel for one in loaded if one.section == "scaling" and one.rows for panel in _panels(one)
    ]
    if curves:
        drawn = figures.curves(curves, docs / "figures" / "scaling")
    page = docs / "performance.md"
    page.write_text(_page(loaded), encoding="utf-8", newline="\n")
    return [page, *drawn]


def _page(loaded: Sequence[Speed]) -> str:
    blocks = [_INTRO.format(files=", ".join(f"`{one.path.name}`" for one in loaded))]
    for section, title in _TITLES.items():
        blocks.append(f"## {title}")
        mine = [one for one in loaded if one.section == section]
        if not mine:
            blocks.append(f"No results were given. This makes them: `{COMMANDS[section]}`")
        if section == "scaling" and any(one.rows for one in mine):
            blocks.append("![Seconds and memory against the number of features](figures/scaling.svg)")
        if section == "compiled":
            blocks.append(_COMPILING)
        for one in mine:
            blocks += [*_origin(one), *_TABLES[section](one)]
    blocks += [_SHARED, "## Targets", *_verdicts(targets(loaded))]
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def _origin(one: Speed) -> list[str]:
    """What was run, on what, and when."""
    header = one.header
    model = header["surrogate"]
    versions = {**header["versions"], "torch": model["torch"], "transformers": model["transformers"]}
    facts = [
        f"{one.device}; {model['name']} in {model['dtype']}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"{header['rounds']} rounds" if header["rounds"] > 1 else "one round",
        str(header["date"]),
    ]
    return [
        f"### {one.device}: {model['name']}",
        f"```\n{header['command']}\n```",
        "; ".join(facts) + ".",
    ]


def _contest(one: Speed) -> list[str]:
    prompts = {row["prompt"]: row["features"] for row in one.rows}
    if not prompts:
        return ["Nothing is complete yet."]
    sizes = ", ".join(str(n) for n in prompts.values())
    count = "one prompt" if len(prompts) == 1 else f"{len(prompts)} prompts"
    blocks = [
        f"Over {count} of {sizes} sentences. {_rates(one.rows)} *Ours* is how many times as many "
        "tokens our engine scores in a second."
    ]
    for task in TASKS:
        ours = total(one.of(OURS, task=task))
        lines = []
        for method in one.header["methods"]:
            rows = one.of(method, task=task)
            if not rows or any("skipped" in row for row in rows):
                continue
            name = method + (f", batch {rows[0]['batch']}" if "batch" in rows[0] else "")
            lines.append([name, *_cells(rows, ours), *_first_use(one, rows)])
        blocks += [f"**{task}**", markdown(_head(one), lines) if lines else "Not measured yet."]
    return blocks


_HEAD = [
    "",
    "masked prompts",
    "tokens",
    "tokens run",
    "seconds",
    "tokens/s",
    "memory",
    "floor / seconds",
    "ours",
]


def _head(one: Speed) -> list[str]:
    return [*_HEAD, "first use"] if COMPILED in one.header["methods"] else _HEAD


def _first_use(one: Speed, rows: Sequence[Row]) -> list[str]:
    """The cell for it, where there is such a column: the longest, compiling is done once."""
    longest = max((row["first"] for row in rows if "first" in row), default=None)
    return [_seconds(longest)] if COMPILED in one.header["methods"] else []


def _cells(rows: Sequence[Row], ours: Sum | None) -> list[str]:
    whole = total(rows)
    if whole is None:
        return [_why(rows), *[""] * (len(_HEAD) - 2)]
    times = f"{ours.pace / whole.pace:.2f} ×" if ours else _NONE
    return [
        f"{whole.prompts:,}",
        f"{whole.tokens:,}",
        f"{whole.run:,}",
        f"{whole.seconds:.3g}" if whole.seconds < 100 else f"{whole.seconds:,.0f}",
        f"{whole.pace:,.0f}",
        _megabytes(whole.memory),
        f"{whole.ratio:.0%}",
        times,
    ]


def _why(rows: Sequence[Row]) -> str:
    """The reason why there are no figures."""
    for row in rows:
        if "failed" in row:
            return f"failed: {row['failed']}".replace("|", "\\|")
        if "absent" in row:
            return str(row["absent"])
    return _NONE


def _rates(rows: Iterable[Row]) -> str:
    found = sorted(row["rate"] / 1e12 for row in rows if "rate" in row)
    if not found:
        return ""
    low, high = f"{found[0]:.3g}", f"{found[-1]:.3g}"
    span = low if low == high else f"{low} to {high}"
    return f"The machine's own matrix rate was {span} Tflop/s."


def _shape(one: Speed) -> list[str]:
    if not one.rows:
        return ["Nothing is complete yet."]
    header = one.header
    lines = []
    ours = total(one.of(OURS))
    for method in header["methods"]:
        rows = one.of(method)
        lines.append([method, *_cells(rows, ours), *_first_use(one, rows)])
    return [
        f"{header['features']} features of {header['feature-tokens']} tokens, random tokens and "
        "weights; the full prompt, the empty one and 64 Sparse-K masks with k = 2√M. Our seconds hold "
        "all that an explanation computes: readings, divergences, the rotary kernel and the weighted "
        f"fits. The loop reads and nothing else. {_rates(one.rows)}",
        markdown(_head(one), lines),
    ]


def _scaling(one: Speed) -> list[str]:
    if not one.rows:
        return ["Nothing is complete yet."]
    lines = []
    for row in one.rows:
        if "skipped" in row or not row["example"].endswith("features"):
            continue
        name = [str(row["features"]), f"{row['length']:,}", row["method"]]
        lines.append([*name, *_costs(row)])
    by_masks = [
        [str(row["masks"]), *_costs(row)] for row in one.of(SPARSE) if row["example"].endswith("masks")
    ]
    head = ["masked prompts", "tokens run", "operations", "seconds", "tokens run/s"]
    head += ["floor / seconds", "memory"]
    blocks = [
        f"Features of {one.header['feature-tokens']} random tokens; explanations with the default "
        "recipe from 64 masks that keep √M features, from each feature by itself, and cheap ones "
        "without each feature. *Operations* are here those of what was run: what masked prompts share "
        "counts once, and attention counts the keys that each token looks at, instead of L² / 2. The "
        "kernel and the fit are in the seconds and not in the operations. Time grows no faster than "
        "what is computed where *floor / seconds* does not fall.",
        markdown(["features", "prompt", "masks", *head], lines),
    ]
    if by_masks:
        fixed = next(row["features"] for row in one.of(SPARSE) if row["example"].endswith("masks"))
        blocks += [
            f"Memory against the number of masks, {fixed} features:",
            markdown(["masks", *head], by_masks),
        ]
    return blocks


def _costs(row: Row) -> list[str]:
    if "seconds" not in row:
        return [_why([row]), *[""] * 6]
    counted = "pairs" in row  # older results hold the operations of a loop that shares nothing
    return [
        f"{row['prompts']:,}",
        f"{row['run']:,}",
        f"{row['operations'] / 1e12:,.3g} T" if counted else _NONE,
        _seconds(row["seconds"]),
        f"{row['run'] / row['seconds']:,.0f}",
        f"{row['floor'] / row['seconds']:.1%}" if counted else _NONE,
        _megabytes(row["memory"]),
    ]


def _panels(one: Speed) -> list[figures.CurvePanel]:
    """Seconds and memory against features."""
    rows = [row for row in one.rows if row["example"].endswith("features") and "seconds" in row]
    panels = []
    for key, scale, what in (("seconds", 1.0, "seconds"), ("memory", 1e6, "memory, MB")):
        lines = []
        for method in SCALED:
            mine = [row for row in rows if row["method"] == method]
            values = [row[key] / scale for row in mine]
            lines.append(Curve(method, [row["features"] for row in mine], values))
        title = f"{one.header['surrogate']['name'].split(',')[0]}, {'GPU' if one.on_gpu else 'CPU'}"
        panels.append(figures.CurvePanel(title, "features", what, lines))
    return panels


def _start(one: Speed) -> list[str]:
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
    return [
        "The demo's example with the model on disk. *First* is loading the model and the first "
        "explanation, *since start* all that passed from the start of the process to the end of it, "
        "*second* another explanation in the same process.",
        markdown(head, lines),
    ]


_TABLES: dict[str, Callable[[Speed], list[str]]] = {
    "contest": _contest,
    "shape": _shape,
    "compiled": _shape,
    "scaling": _scaling,
    "start": _start,
}


def _verdicts(found: Sequence[Target]) -> list[str]:
    if not found:
        return ["None of the results that targets were set for was given."]
    lines = [[t.what, t.required, t.ours or _NONE, t.verdict] for t in found]
    return [markdown(["target", "required", "ours", "verdict"], lines)]


def _seconds(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def _megabytes(value: int) -> str:
    return f"{value / 1e6:,.0f} MB"
