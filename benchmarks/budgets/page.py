"""Results of ``python -m benchmarks budget`` become ``docs/budget.md`` and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import figures, paper
from benchmarks.budgets.names import (
    CONTEXTCITE,
    EVIDENCE,
    FAITHFUL,
    FAMILIES,
    LEAVE_ONE_OUT,
    SETTLED,
    SINGLES,
)
from benchmarks.budgets.targets import share, targets
from benchmarks.budgets.trusting import FORETOLD, INDICATORS, calibration
from benchmarks.figures import Curve, CurvePanel
from benchmarks.runner import CHANCE
from benchmarks.summary import METRICS, Results, load
from benchmarks.tables import markdown
from benchmarks.targets import interval
from ropelime.errors import InputError

_INTRO = """\
# Budget: quality against tokens, and how sure it is

Made by `python -m benchmarks report` out of {files}; no figure is typed by hand. Every section
names the command that made it. The prompts are HotpotQA's, its labels say which sentences a person
would cite.

- **F1** and **AUROC** compare the ranking with the labels: the top |gold| features, and all of it.
- **LDS** is the rank correlation of what the weights foretell with what the surrogate says under 64
  masks that no method has seen.
- **Tokens** are the lengths of all masked prompts that a method asks for, with question and answer; a
  cheap reading counts what it runs. **Run** is what our engine runs for them, with what masked prompts
  have in common run once. Shares are of the 64 masks of ContextCite's estimator, which runs every
  token it asks for.
- Intervals in brackets are 90 % bootstrap intervals of the mean.

**What is compared.** *evidence* and *faithful* are the presets, which stop by themselves. *singles*
hides each feature once and stops (cheap readings); the lines below it fit another target to the
same readings. *exact, K* and *cheap, K* fit K Hadamard halves with the regressor of `faithful`;
*cheap, 128 + K exact* takes cheap readings as a control variate for K exact ones. *contextcite, K*
is ContextCite's estimator with K masks, *leave-one-out* the paper's target and kernel on exact
single removals."""

_LONG = """\
## Long contexts

Paragraphs of other examples are put among the ten until there are about so many sentences; the gold
ones stay the same few. Prompts of 400 sentences have some 14,000 tokens, more than the embedded
model can read."""

_REMOVALS = """\
## What hiding leaves out

Three ways to take one sentence away, with the target of `evidence`. A cheap reading hides it from the
question and the answer, but the sentences behind it have seen it. An exact reading in place hides it
from them too, and they are run again. An exact reading that deletes it moves them up as well."""

_TWICE = """\
## The same evidence twice

The gold paragraphs stand in the prompt twice, and both copies are gold. Hiding one copy tells
nothing then, as the other is still there. `evidence` goes on where the answer needs the features
but no single one of them; *singles* does not."""

_SURE = """\
## Intervals

Every third example was read under {many} more masks: halves read exactly for log-probabilities,
local ones read cheaply for evidence. *Covered* is the share of features whose 90 % interval holds
what those say; for evidence shares of all weights are compared, because its unit depends on the
masks. *Width* is half an interval over the largest weight, *reach* how many half widths would hold
nine in ten."""

_TRUST = """\
## Trust

Trust foretells, without labels, whether the first feature is gold (`evidence`) and how high LDS is
(`faithful`). Explanations are put into five bins of equal size by their trust. *Worst fifth* is how
well it tells the worst fifth of all explanations from the rest, as an area under the ROC curve: for
`evidence` those whose first feature is not gold, and after them those of the lowest AUROC; for
`faithful` those of the lowest LDS. *By F1* ranks `evidence` by F1, and by AUROC where that is the
same. *Cross-validated* is the worst fifth for fits on nine tenths of this file that judge the last
tenth. *Fit* are the coefficients that all of this file gives; those that are shipped stand in
`ropelime/trust.py`."""


def write(paths: Sequence[Path], docs: Path) -> list[Path]:
    """Write the page and its figures.

    Args:
        paths: Results files of ``python -m benchmarks budget``.
        docs: A folder that has a folder ``figures``.

    Returns:
        The files that were written.
    """
    loaded: dict[tuple[str, str], Results] = {}
    for path in paths:
        one = load(path)
        how = one.header.get("ablation")
        key = (str(one.header["context"]) + (f", {how}" if how else ""), model(one))
        if key in loaded:
            raise InputError(f"{loaded[key].path} and {path} both hold {' by '.join(key)}. Name one.")
        if one.examples():
            loaded[key] = one
    files = ", ".join(f"`{path.name}`" for path in sorted(paths))
    blocks = [_INTRO.format(files=files)]
    drawn: list[Path] = []
    ten = {name: one for (context, name), one in loaded.items() if context == "all"}
    if ten:
        drawn += _draw(ten, docs / "figures" / "budget")
        blocks += ["## All ten paragraphs", "![Quality against tokens](figures/budget.svg)"]
        for one in ten.values():
            blocks += [_origin(one), _table(one)]
    gold = [one for (context, _), one in loaded.items() if context == "gold"]
    if gold:
        blocks += ["## Gold paragraphs", *(block for one in gold for block in _gold(one))]
    blocks += _long(loaded)
    for (context, _), one in loaded.items():
        if context == "twice":
            blocks += [_TWICE, _origin(one), _table(one, [EVIDENCE, SINGLES, "exact, 64", CONTEXTCITE])]
    blocks += _removals(loaded)
    settled = [one for one in loaded.values() if any(len(one.values(m, "covered")) for m in SETTLED)]
    if settled:
        blocks += [_SURE.format(many=450), *(_intervals(one) for one in settled)]
        drawn += _draw_intervals(settled, docs / "figures" / "coverage")
        blocks += ["![Share of features whose interval holds](figures/coverage.svg)"]
    judged = [one for one in loaded.values() if one.header["context"] in ("all", "gold")]
    blocks += _trust(judged, docs / "figures" / "trust", drawn)
    verdicts = targets(loaded)
    rows = [[t.what, t.required, t.ours, t.interval, t.verdict] for t in verdicts]
    if rows:
        blocks += ["## Targets", markdown(["target", "required", "ours", "interval", "verdict"], rows)]
    page = docs / "budget.md"
    page.write_text("\n\n".join(blocks) + "\n", encoding="utf-8", newline="\n")
    return [page, *drawn]


def model(results: Results) -> str:
    """What the surrogate of a results file is called."""
    return Path(str(results.header["surrogate"]["name"])).stem


def _origin(one: Results) -> str:
    header = one.header
    facts = header["surrogate"]
    text = f"### {model(one)}, {_context(str(header['context']))}\n\n```\n{header['command']}\n```\n\n"
    text += f"{len(one.examples())} examples; {facts.get('dtype')} on {facts.get('device')}; seed "
    text += f"{header['seed']}."
    if one.missing:
        text += f" **Not finished: {one.missing} examples are missing.**"
    return text


def _context(name: str) -> str:
    words = {"all": "all ten paragraphs", "gold": "gold paragraphs", "twice": "gold paragraphs twice"}
    return words.get(name, f"about {name} sentences")


def _table(one: Results, methods: Sequence[str] | None = None) -> str:
    rows = []
    for name in methods or [m for m in one.rows if m != CHANCE]:
        tokens = one.mean(name, "tokens")
        if tokens is None:
            continue
        cells = [_wide(one, name, metric) for metric in ("f1", "auroc", "lds")]
        run = one.mean(name, "run")
        counts = [f"{tokens:,.0f}", f"{share(one, name, 'tokens'):.3f}"]
        counts += ["–", "–"] if run is None else [f"{run:,.0f}", f"{share(one, name, 'run'):.3f}"]
        rows.append([name, *cells, f"{one.mean(name, 'masks'):.0f}", *counts])
    chance = [f"{one.mean(CHANCE, 'f1') or 0:.3f}", f"{one.mean(CHANCE, 'auroc') or 0:.3f}"]
    rows.append([CHANCE, *chance, *["–"] * 6])
    return markdown(["method", "F1", "AUROC", "LDS", "masks", "tokens", "share", "run", "share"], rows)


def _wide(one: Results, name: str, metric: str) -> str:
    value = one.spread(name, metric)
    return "–" if value is None else f"{value.mean:.3f} {interval(value)}"


def _gold(one: Results) -> list[str]:
    """IoU of each bucket beside the paper's 8B model."""
    names = [EVIDENCE, SINGLES, LEAVE_ONE_OUT, CONTEXTCITE, FAITHFUL, "paper"]
    rows = []
    for group in one.buckets():
        cells = [f"{one.mean(name, 'iou', group) or float('nan'):.3f}" for name in names]
        published = f"{paper.SPARSE_K[group].iou.mean:.3f}"
        rows.append([group, str(len(one.examples(group))), *cells, published])
    head = ["sentences", "examples", *names, f"paper, {paper.HOTPOTQA_MODEL}"]
    return [_origin(one), f"{METRICS['iou']} by the number of sentences:", markdown(head, rows)]


def _long(loaded: dict[tuple[str, str], Results]) -> list[str]:
    blocks = []
    names = [EVIDENCE, FAITHFUL, "cheap, 128", "exact, 64", CONTEXTCITE]
    for who in dict.fromkeys(name for _, name in loaded):
        found = [loaded[c, who] for c in ("all", "100", "400") if (c, who) in loaded]
        if len(found) < 2:
            continue
        rows = []
        for one in found:
            features = np.mean([row["features"] for row in one.examples()])
            for name in names:
                cells = [_wide(one, name, metric) for metric in ("f1", "auroc", "lds")]
                tokens, run = one.mean(name, "tokens"), one.mean(name, "run")
                counts = [f"{tokens or 0:,.0f}", f"{run or 0:,.0f}"]
                rows.append([f"{features:.0f}", str(len(one.examples())), name, *cells, *counts])
        commands = "\n".join(str(one.header["command"]) for one in found)
        head = ["sentences", "examples", "method", "F1", "AUROC", "LDS", "tokens", "run"]
        blocks += [f"### {who}", f"```\n{commands}\n```", markdown(head, rows)]
    return [_LONG, *blocks] if blocks else []


def _removals(loaded: dict[tuple[str, str], Results]) -> list[str]:
    """Single removals read cheaply, exactly, and exactly with everything left in its place."""
    blocks = []
    for (context, who), one in loaded.items():
        if context != "all, in-place" or ("all", who) not in loaded:
            continue
        ten, known = loaded["all", who], {row["example"] for row in one.examples()}
        same = {m: [r for r in rows if r["example"] in known] for m, rows in ten.rows.items()}
        ten = replace(ten, rows=same)
        exact = "leave-one-out, exact"
        rows = []
        for label, source, name in (
            ("hidden from question and answer only (cheap)", ten, SINGLES),
            ("hidden from everything behind it too", one, exact),
            ("deleted, and the gap closed", ten, exact),
        ):
            cells = [_wide(source, name, metric) for metric in ("f1", "auroc")]
            rows.append([label, *cells, f"{source.mean(name, 'run') or 0:,.0f}"])
        table = markdown(["a removed sentence is", "F1", "AUROC", "run"], rows)
        blocks += [f"{_origin(one)} The same examples of the other run.", table]
    return [_REMOVALS, *blocks] if blocks else []


def _intervals(one: Results) -> str:
    rows = []
    for name in SETTLED:
        covered = one.spread(name, "covered")
        if covered is not None:
            width, reach = one.values(name, "halfwidth"), one.values(name, "reach")
            cells = [_wide(one, name, "covered"), f"{np.median(width):.2f}", f"{np.median(reach):.2f}"]
            rows.append([name, str(covered.n), *cells])
    table = markdown(["method", "examples", "covered", "width (median)", "reach (median)"], rows)
    return f"**{model(one)}, {_context(str(one.header['context']))}**\n\n{table}"


def _trust(judged: Sequence[Results], stem: Path, drawn: list[Path]) -> list[str]:
    rows, panels = [], []
    for method in (EVIDENCE, FAITHFUL):
        curves = [Curve("as it says", (0.0, 1.0), (0.0, 1.0))]
        for one in judged:
            found = calibration(one, method)
            if found is None:
                continue
            label = f"{model(one)}, {_context(str(one.header['context']))}"
            curves.append(Curve(label, found.said.tolist(), found.true.tolist()))
            said = " ".join(f"{a:.2f}→{b:.2f}" for a, b in zip(found.said, found.true, strict=True))
            names = ["constant", *INDICATORS[method]]
            fit = ", ".join(f"{n} {c:.2f}" for n, c in zip(names, found.fitted, strict=True))
            count = str(sum(found.counts))
            f1 = "–" if found.by_f1 is None else f"{found.by_f1:.3f}"
            areas = [f"{found.worst:.3f}", f1, f"{found.crossed:.3f}"]
            rows.append([method, label, count, said, *areas, fit])
        what = {"first": "share of first features that are gold", "lds": "LDS"}[FORETOLD[method]]
        panels.append(CurvePanel(method, "trust", what, curves, log=""))
    if not rows:
        return []
    drawn += figures.curves(panels, stem)
    head = [
        "preset",
        "results",
        "examples",
        "trust→true",
        "worst fifth",
        "by F1",
        "cross-validated",
        "fit",
    ]
    picture = "![Trust against what it foretells](figures/trust.svg)"
    return [_TRUST, picture, markdown(head, rows)]


def _draw(ten: dict[str, Results], stem: Path) -> list[Path]:
    """F1 and LDS against tokens, a row of panels for each model."""
    panels = []
    for name, one in ten.items():
        for metric, title in (("f1", "F1"), ("lds", "LDS")):
            curves = []
            for family, members in FAMILIES.items():
                points = [(one.mean(m, "tokens"), one.mean(m, metric)) for m in members]
                known = [(x, y) for x, y in points if x is not None and y is not None]
                if known:
                    across, up = zip(*known, strict=True)
                    curves.append(Curve(family, across, up))
            panels.append(CurvePanel(f"{name}: {title}", "tokens", title, curves, log="x"))
    return figures.curves(panels, stem)


def _draw_intervals(settled: Sequence[Results], stem: Path) -> list[Path]:
    """Coverage of each method, a line for each results file, beside what is claimed."""
    curves = [Curve("as they say", (0.0, len(SETTLED) - 1.0), (0.9, 0.9))]
    for one in settled:
        means = [one.mean(m, "covered") for m in SETTLED]
        known = [(float(i), y) for i, y in enumerate(means) if y is not None]
        across, up = zip(*known, strict=True)
        curves.append(Curve(f"{model(one)}, {_context(str(one.header['context']))}", across, up))
    panel = CurvePanel(
        "Intervals of 90 %", "", "share of features covered", curves, log="", names=SETTLED
    )
    return figures.curves([panel], stem)
