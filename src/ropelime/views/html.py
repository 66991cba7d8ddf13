"""An explanation as a web page: JSON data for the component, and a self-contained document."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

import numpy as np

from ropelime.method.targets import TARGETS
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten, visible
from ropelime.views.findings import findings, places

_DIGITS = 6  # significant digits of a number in the data: more than the page displays
_TITLE = 60  # characters of the answer in the title
_HEIGHT = 760  # of the frame in a notebook, in pixels; it can be resized
# Characters that could end the script element or a line of JavaScript, as JSON escapes.
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
<noscript>This page needs JavaScript, which is switched off.</noscript>
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


def payload(e: ExplanationData) -> dict[str, Any]:
    """The data of the component in ``static/report.js``, as plain JSON.

    Text comes in pieces instead of offsets, which Python and JavaScript count differently.
    """
    target = TARGETS.get(str(e.config["target"].get("name")))
    return {
        "prompt": _blocks(e),
        "features": _features(e),
        "answer": _answer(e),
        # (n, T): how much each feature changes each token, to five digits below the largest
        "token_weights": _rounded(e.token_weights),
        "unit": e.config.get("unit", ""),
        # Whether the weight of a part of the answer is the mean over its tokens; else it is the sum.
        "mean": target is not None and target.per_token,
        "granularity": e.config.get("features", ""),
        "trust": None if e.trust is None else asdict(e.trust),
        "warnings": [visible(text) for text in e.diagnostics.warnings],
        "notes": [visible(text) for text in (*findings(e), *e.diagnostics.notes)],
        "diagnostics": _diagnostics(e),
        "cost": _cost(e),
        "config": [[key, visible(_worded(value))] for key, value in e.config.items()],
    }


def report(e: ExplanationData) -> str:
    """A self-contained document with its style, script and data; it needs no server."""
    css, js = static("report.css"), static("report.js")
    scripts = " ".join(f"'sha256-{_digest(script)}'" for script in (js, _START))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'sha256-{_digest(css)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"{shorten(visible(e.output), _TITLE)} · RoPE-LIME"),
        css=css,
        data=_script_json(payload(e)),
        js=js,
        start=_START,
    )


def frame(e: ExplanationData) -> str:
    """The report in an isolated frame, for notebooks."""
    return (
        '<iframe title="RoPE-LIME explanation" sandbox="allow-scripts" '
        f'width="100%" height="{_HEIGHT}" style="border: 0; resize: vertical; overflow: auto" '
        f'srcdoc="{html.escape(report(e))}"></iframe>'
    )


def static(name: str) -> str:
    """The text of a file of the component: ``report.css`` or ``report.js``."""
    return (resources.files("ropelime.views") / "static" / name).read_text(encoding="utf-8")


def _script_json(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _blocks(e: ExplanationData) -> list[dict[str, Any]]:
    """The prompt in blocks: chunks or messages with their names, and the text between them."""
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


def _pieces(e: ExplanationData, start: int, end: int) -> list[dict[str, Any]]:
    """A span of the prompt, cut where features begin and end."""
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


def _features(e: ExplanationData) -> list[dict[str, Any]]:
    place, normalized = places(e), e.normalized_intervals
    return [
        {
            "score": _figure(e.normalized_weights[i]),
            "weight": _figure(e.weights[i]),
            "interval": _interval(e.intervals, i),
            "score_interval": _interval(normalized, i),
            "rank": place[i],
        }
        for i in range(len(e.features))
    ]


def _interval(intervals: Any, i: int) -> list[float | None] | None:
    return None if intervals is None else [_figure(end) for end in intervals[i]]


def _answer(e: ExplanationData) -> dict[str, Any]:
    """The answer in pieces, each with its output tokens [first, last).

    Tokens that share a character, such as one of several bytes, share a piece.
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


def _diagnostics(e: ExplanationData) -> list[list[str]]:
    """The name, the value and the meaning of each figure."""
    d = e.diagnostics
    fit = f"{max(d.r2, 0):.0%}" if math.isfinite(d.r2) else "none"
    return [
        [
            "Likelihood of the answer",
            f"{_chance(d.logprob_full)} → {_chance(d.logprob_empty)}",
            "The surrogate's mean probability of a token of the answer, with the full prompt and "
            f"without its features ({_minus(d.logprob_full)} and {_minus(d.logprob_empty)} nats). The "
            "larger the drop, the more there is to explain.",
        ],
        [
            "Fit",
            fit,
            "How much of the variance between masked prompts the sum of single weights explains (R²).",
        ],
        [
            "Effective sample size",
            f"{d.effective_samples:.0f} of {len(e.surrogate_scores.masks) - 1}",
            "Masked prompts that are far from the full one count less in the fit; this is how many "
            "remain.",
        ],
    ]


def _cost(e: ExplanationData) -> list[list[str]]:
    d, cost = e.diagnostics, e.cost
    rows = [
        ["masked prompts scored", f"{cost.masks:,}"],
        ["tokens processed", f"{cost.tokens:,}"],
        ["masks sampled", f"{d.masks_scored:,} of {d.masks_requested:,} requested"],
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
    chance = math.exp(min(logprob, 0.0))  # a function as a surrogate may return anything
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
