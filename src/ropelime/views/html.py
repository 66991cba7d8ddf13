"""An explanation as a web page: plain data for the component, and a document that holds everything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from ropelime.results.explanation import Explanation
from ropelime.text.display import visible
from ropelime.views.findings import findings
from ropelime.views.uncertainty import places, uncertainty

_DIGITS = 6  # significant ones of a figure in the data: more than a page can show
_HEIGHT = 760  # of the frame in a notebook, in pixels; it can be dragged
# What could end the script element or a line of JavaScript; a JSON reader gives back the same text.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="ropelime-page">
<main>
<h1>Which part of the prompt carried this answer?</h1>
<div id="ropelime"></div>
<noscript>This page is drawn by a script inside it, and scripts are switched off.</noscript>
</main>
<script type="application/json" id="ropelime-data">{data}</script>
<script>{js}</script>
<script>{start}</script>
</body>
</html>
"""
_START = (
    'ropelime.mount(document.getElementById("ropelime"), '
    'JSON.parse(document.getElementById("ropelime-data").textContent));'
)


def payload(e: Explanation) -> dict[str, Any]:
    """What the component in ``static/report.js`` shows, as plain JSON data.

    Text comes in pieces and not as offsets, which Python and JavaScript count differently.
    """
    return {
        "prompt": _blocks(e),
        "features": _features(e),
        "answer": _answer(e),
        # (n, T): how much each feature moves each token, to five digits below the largest of them
        "token_weights": _rounded(e.token_weights),
        "unit": e.config.get("unit", ""),
        # A weight per output token is the mean over the tokens of a part; any other is their sum.
        "mean": str(e.config.get("unit", "")).endswith("per output token"),
        "granularity": e.config.get("features", ""),
        "trust": uncertainty(e).trust,
        "warnings": [visible(text) for text in e.diagnostics.warnings],
        "notes": [visible(text) for text in (*findings(e), *e.diagnostics.notes)],
        "diagnostics": _diagnostics(e),
        "cost": _cost(e),
        "config": [[key, visible(_worded(value))] for key, value in e.config.items()],
    }


def report(e: Explanation) -> str:
    """A document that needs no server and no network: style, script and data are inside it."""
    css, js = static("report.css"), static("report.js")
    scripts = " ".join(f"'sha256-{_digest(script)}'" for script in (js, _START))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'sha256-{_digest(css)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    answer = " ".join(visible(e.output).split())
    title = answer if len(answer) <= 60 else answer[:59] + "…"
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"{title} · RoPE-LIME"),
        css=css,
        data=_script_json(payload(e)),
        js=js,
        start=_START,
    )


def frame(e: Explanation) -> str:
    """The report in a frame of its own, for notebooks: neither side can style or script the other."""
    return (
        '<iframe title="RoPE-LIME explanation" sandbox="allow-scripts" '
        f'width="100%" height="{_HEIGHT}" style="border: 0; resize: vertical; overflow: auto" '
        f'srcdoc="{html.escape(report(e))}"></iframe>'
    )


def static(name: str) -> str:
    """One of the files that a page loads: ``report.css`` or ``report.js``."""
    return (resources.files("ropelime.views") / "static" / name).read_text(encoding="utf-8")


def _script_json(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _blocks(e: Explanation) -> list[dict[str, Any]]:
    """The prompt as written, in blocks: chunks or messages with their names, and what is between."""
    prompt = e.prompt
    if prompt.kind == "messages":
        named = [(m.start, m.end, m.role) for m in prompt.messages if m.end > m.start]
    elif prompt.kind == "context":
        named = [(a, b, _title(prompt.where(i))) for i, (a, b) in enumerate(prompt.parts)]
    else:
        named = [(0, len(prompt.text), "")]
    blocks: list[dict[str, Any]] = []
    at = 0
    for start, end, label in [*named, (len(prompt.text), len(prompt.text), "")]:
        between = prompt.text[at:start]
        if bare := between.strip("\r\n"):
            at += between.index(bare)
            blocks.append({"label": "", "pieces": _pieces(e, at, at + len(bare))})
        if end > start:
            blocks.append({"label": visible(label), "pieces": _pieces(e, start, end)})
        at = end
    return blocks


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


def _pieces(e: Explanation, start: int, end: int) -> list[dict[str, Any]]:
    """A stretch of the prompt, cut where features begin and end."""
    pieces: list[dict[str, Any]] = []

    def add(first: int, last: int, feature: int | None) -> None:
        if first < last:
            pieces.append({"text": visible(e.prompt.text[first:last]), "feature": feature})

    at = start
    i = bisect_right(e.features, start, key=lambda feature: feature.end)
    while i < len(e.features) and e.features[i].start < end:
        first, last = max(e.features[i].start, start), min(e.features[i].end, end)
        add(at, first, None)
        add(first, last, i)
        at, i = last, i + 1
    add(at, end, None)
    return pieces


def _features(e: Explanation) -> list[dict[str, Any]]:
    known, place = uncertainty(e), places(e)
    return [
        {
            "score": _figure(e.normalized_weights[i]),
            "weight": _figure(e.weights[i]),
            "interval": _interval(known.weights, i),
            "score_interval": _interval(known.normalized_weights, i),
            "rank": place[i],
        }
        for i in range(len(e.features))
    ]


def _interval(intervals: Any, i: int) -> list[float | None] | None:
    return None if intervals is None else [_figure(end) for end in intervals[i]]


def _answer(e: Explanation) -> dict[str, Any]:
    """The answer in pieces, each with the output tokens [first, last) that it is made of.

    Tokens can share a character (one of several bytes, say); they share a piece then.
    """
    pieces: list[dict[str, Any]] = []
    at = 0

    def add(end: int, tokens: list[int] | None) -> None:
        pieces.append({"text": visible(e.output[at:end]), "tokens": tokens})

    for number, (start, end) in enumerate(e.output_spans):
        if start > at:
            add(start, None)
            at = start
        if end > at:
            add(end, [number, number + 1])
            at = end
        elif pieces and pieces[-1]["tokens"]:
            pieces[-1]["tokens"][1] = number + 1
    if at < len(e.output):
        add(len(e.output), None)
    sentences = [list(e.tokens_in(start, end)) for start, end in e.output_sentences]
    return {"pieces": pieces, "sentences": sentences}


def _diagnostics(e: Explanation) -> list[list[str]]:
    """Each figure with its name and its meaning in plain words."""
    d = e.diagnostics
    fit = f"{max(d.r2, 0):.0%}" if math.isfinite(d.r2) else "none"
    return [
        [
            "Likelihood of the answer",
            f"{_chance(d.logprob_full)} → {_chance(d.logprob_empty)}",
            "What the surrogate gives a token of the answer on average, with the whole prompt and with "
            f"none of the features ({_minus(d.logprob_full)} and {_minus(d.logprob_empty)} nats). The "
            "larger the fall, the more there is to explain.",
        ],
        [
            "Fit",
            fit,
            "So much of what the masks did to the answer comes out by adding up single shares (R²).",
        ],
        [
            "Readings that count",
            f"{d.effective_samples:.0f} of {len(e.surrogate_scores.masks) - 1}",
            "Masked prompts that are far from the real one count less; this is what is left of them.",
        ],
    ]


def _cost(e: Explanation) -> list[list[str]]:
    d, cost = e.diagnostics, e.cost
    rows = [
        ["masked prompts read", f"{cost.masks:,}"],
        ["tokens run", f"{cost.tokens:,}"],
        ["masks drawn", f"{d.masks_scored:,} of {d.masks_requested:,} asked for"],
    ]
    if cost.seconds is not None:
        rows.append(["seconds", f"{cost.seconds:.1f}"])
    return rows


def _worded(value: Any) -> str:
    if isinstance(value, Mapping):
        name = str(value.get("name", ""))
        rest = ", ".join(f"{k} {_worded(v)}" for k, v in value.items() if k != "name")
        return f"{name} ({rest})" if name and rest else name or rest
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_worded, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value is None else str(value)


def _chance(logprob: float) -> str:
    chance = math.exp(min(logprob, 0.0))  # a function in a surrogate's place may give anything
    return f"{chance:.0%}" if chance >= 0.01 else "under 1%"


def _minus(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _figure(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _rounded(weights: Any) -> list[list[float]]:
    largest = float(np.abs(weights).max(initial=0.0))
    decimals = 5 - math.floor(math.log10(largest)) if largest > 0 else 0
    rounded: list[list[float]] = (np.round(weights, decimals) + 0.0).tolist()
    return rounded
