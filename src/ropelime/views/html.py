"""An explanation as a web page: JSON data for the component, and a self-contained document."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from ropelime.files import significant
from ropelime.method.targets import TARGETS
from ropelime.results.citations import judge_sentences
from ropelime.results.explanation import ExplanationData
from ropelime.text.display import shorten, visible
from ropelime.typing import Floats
from ropelime.views.findings import QUESTIONS, findings, has_signs, outcomes, places, verifying
from ropelime.views.first import STYLE, first_view
from ropelime.views.layout import blocks, pieces
from ropelime.views.verbatim import code_mark, verbatim

_TITLE = 60  # characters of the answer in the title
_HEIGHT = 760  # of the frame in a notebook, in pixels; it can be resized
# Characters that could end the script element or a line of JavaScript, as JSON escapes.
_ESCAPED = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
PLACE = '<div id="ropelime"></div>'
_NO_SCRIPT = "<p>JavaScript is switched off: these are the first parts only.</p>"
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
        "groups": _groups(e),
        "features": _features(e),
        "order": [ranked.index for ranked in e.top()],
        "answer": _answer(e),
        # (n, T): how much each feature changes each token, to five digits below the largest
        "token_weights": _rounded(e.token_weights),
        "unit": e.config.get("unit", ""),
        # Of the whole answer: what each signal gives each feature, where weights are made of several.
        "signals": {name: [_figure(each) for each in own] for name, own in e.signals.items()},
        "signs": has_signs(e),  # whether a weight can oppose the answer
        # Whether the weight of a part of the answer is the mean over its tokens; else it is the sum.
        "mean": target is not None and target.per_token,
        "granularity": e.config.get("features", ""),
        "trust": _trust(e),
        "verified": _verified(e),
        "warnings": [visible(text) for text in e.diagnostics.warnings],
        "findings": [visible(text) for text in findings(e)],
        "notes": [visible(text) for text in e.diagnostics.notes],
        "diagnostics": _diagnostics(e),
        "cost": _cost(e),
        "config": [[key, visible(_worded(value))] for key, value in _config(e).items()],
    }


def report(e: ExplanationData) -> str:
    """A self-contained document with its style, script and data; it needs no server."""
    return document(
        f"{shorten(visible(e.output), _TITLE)} · RoPE-LIME",
        "Which part of the prompt carried this answer?",
        f"{PLACE}\n<noscript>{_NO_SCRIPT}{first_view(e)}</noscript>",
        css=static("report.css"),
        scripts=(static("report.js"), _START),
        data=payload(e),
    )


def document(
    title: str,
    heading: str,
    body: str,
    *,
    css: str,
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
) -> str:
    """A page whose policy allows its own style and scripts, and nothing else.

    Args:
        title: Its title, as text.
        heading: Its first heading, as text.
        body: What follows, as HTML.
        css: Its style.
        scripts: They run in this order, after the body.
        data: What the scripts read, as JSON in an element of its own.
    """
    allowed = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    rules = [
        "default-src 'none'",
        *([f"script-src {allowed}"] if scripts else []),
        f"style-src 'sha256-{digest(css)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    after = [f"<script>{script}</script>" for script in scripts]
    if data is not None:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        for character, escape in _ESCAPED.items():  # far faster than str.translate
            text = text.replace(character, escape)
        after.insert(0, f'<script type="application/json" id="ropelime-data">{text}</script>')
    return static("page.html").format(
        policy="; ".join(rules),
        title=html.escape(title),
        css=css,
        heading=html.escape(heading),
        body=body,
        scripts="".join(f"{line}\n" for line in after),
    )


def frame(e: ExplanationData) -> str:
    """The first view, and the report in an isolated frame below it, for notebooks."""
    return (
        f'{first_view(e)}\n<details style="{STYLE}">'
        "<summary>The whole report</summary>\n"
        '<iframe title="RoPE-LIME explanation" sandbox="allow-scripts" loading="lazy" '
        f'width="100%" height="{_HEIGHT}" style="border: 0; resize: vertical; overflow: auto" '
        f'srcdoc="{html.escape(report(e))}"></iframe></details>'
    )


def static(name: str) -> str:
    """The text of a file in ``static``."""
    return (resources.files("ropelime.views") / "static" / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """The hash by which a page's policy allows a style or a script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _blocks(e: ExplanationData) -> list[dict[str, Any]]:
    """The prompt in blocks: chunks or messages with their names, and the text between them."""
    return [
        {"label": visible(block.label), "pieces": text_pieces(e, block.start, block.end)}
        for block in blocks(e.prompt)
    ]


def _groups(e: ExplanationData) -> dict[str, Any]:
    """The features of each document or message; chunks of one source are one document."""
    prompt, titles = e.prompt, {"context": "Documents", "messages": "Messages", "prompt": ""}
    groups: dict[str, list[int]] = {}
    for i, feature in enumerate(e.features if titles[prompt.kind] else ()):
        where = prompt.where(feature.part)
        name = prompt.origin(feature.part).source or where[:1].upper() + where[1:]
        groups.setdefault(name, []).append(i)
    sums = [{"label": visible(name), "features": own} for name, own in groups.items()]
    whole = len(sums) == len(e.features)  # the parts are documents or messages themselves
    return {"title": titles[prompt.kind], "sums": [] if whole else sums}


def text_pieces(e: ExplanationData, start: int, end: int) -> list[dict[str, Any]]:
    """A span of the prompt, cut where features begin and end."""
    code = verbatim(e.prompt.text[start:end])
    return [
        {
            "text": visible(e.prompt.text[piece.start : piece.end]),
            "feature": piece.feature,
            **code_mark(code, piece.start - start, piece.end - start),
        }
        for piece in pieces(e, start, end)
    ]


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


def _interval(intervals: Floats | None, i: int) -> list[float | None] | None:
    return None if intervals is None else [_figure(end) for end in intervals[i]]


def _answer(e: ExplanationData) -> dict[str, Any]:
    """The answer in pieces, each with its output tokens [first, last).

    Tokens that share a character, such as one of several bytes, share a piece.
    """
    cut: list[tuple[int, int, list[int]]] = []
    at = 0
    for number, (start, end) in enumerate(e.output_spans):
        if start > at:
            cut.append((at, start, []))
        if end > at:
            cut.append((max(at, start), end, [number, number + 1]))
        elif cut and cut[-1][2]:
            cut[-1][2][1] = number + 1
        at = max(at, start, end)
    cut.append((at, len(e.output), []))
    code = verbatim(e.output)
    shown = [
        {"text": visible(e.output[a:b]), "tokens": own or None, **code_mark(code, a, b)}
        for a, b, own in cut
        if a < b
    ]
    grounded = judge_sentences(e)
    return {
        "pieces": shown,
        "sentences": [list(e.tokens_in(*sentence.span)) for sentence in grounded],
        # Of each sentence: the chance that it comes from the prompt, and whether it is said to.
        "grounding": [
            {"probability": _figure(sentence.probability), "grounded": sentence.grounded}
            for sentence in grounded
        ],
    }


def _trust(e: ExplanationData) -> dict[str, Any] | None:
    """Trust, and the verdicts with the question that each of them answers."""
    if e.trust is None:
        return None
    return {
        "value": e.trust.value,
        "text": visible(e.trust.text),
        "verdicts": [
            {
                "name": verdict.name,
                "title": QUESTIONS[verdict.name],
                "probability": verdict.probability,
                "text": visible(verdict.text),
            }
            for verdict in e.trust.verdicts
        ],
    }


def _diagnostics(e: ExplanationData) -> list[list[str]]:
    """The name, the value and the meaning of each figure."""
    d = e.diagnostics
    nats = f"{d.logprob_full:.2f} and {d.logprob_empty:.2f} nats".replace("-", "\N{MINUS SIGN}")
    likelihood = (
        "The surrogate's mean probability of a token of the answer, with the full prompt and without "
        f"its features ({nats}). The larger the drop, the more there is to explain."
    )
    fit = "How much of the variance between masked prompts the sum of single weights explains (R²)."
    count = "Masked prompts far from the full one count less in the fit; this is how many remain."
    chances = f"{_chance(d.logprob_full)} → {_chance(d.logprob_empty)}"
    scored = len(e.surrogate_scores.masks) - 1
    rows = [["Likelihood of the answer", chances, likelihood]]
    if not d.masks_requested:  # nothing was fitted
        return rows
    return [
        *rows,
        *([["Fit", f"{max(d.r2, 0):.0%}", fit]] if d.has_residuals(len(e.features)) else []),
        ["Effective sample size", f"{d.effective_samples:.0f} of {scored}", count],
    ]


def _cost(e: ExplanationData) -> list[list[str]]:
    d, cost = e.diagnostics, e.cost
    return [
        ["masked prompts scored", f"{cost.masks:,}"],
        ["tokens processed", f"{cost.tokens:,}"],
        ["masks sampled", f"{d.masks_scored:,} of {d.masks_requested:,} requested"],
        *([] if cost.seconds is None else [["seconds", f"{cost.seconds:.1f}"]]),
    ]


def _verified(e: ExplanationData) -> dict[str, Any] | None:
    """The verifying calls; None if there were none."""
    if e.verified is None:
        return None
    calls = [
        {
            "kind": call.kind,
            "features": list(call.features),
            "changed": call.changed,
            "similarity": None if call.similarity is None else _figure(call.similarity),
            "sent": visible(sent),
            "outcome": outcome,
            "before": visible(call.before),
            "after": visible(answer),
        }
        for call, (sent, outcome, answer) in zip(e.verified.calls, outcomes(e), strict=True)
    ]
    first, title = e.top(1)[0].index, visible(verifying(e))
    return {
        "title": title[:1].upper() + title[1:],
        "seen": first in e.verified.changed and e.verified.stable is not False,
        "model": visible(e.verified.model),
        "calls": calls,
    }


def _config(e: ExplanationData) -> Mapping[str, Any]:
    """The options; the messages of an answer are on the page as the prompt."""
    answer = e.config.get("answer")
    if not isinstance(answer, Mapping):
        return e.config
    return {**e.config, "answer": {k: v for k, v in answer.items() if k != "messages"}}


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


def _figure(value: float) -> float | None:
    return significant(value) if math.isfinite(value) else None


def _rounded(weights: Floats) -> Any:
    largest = float(np.abs(weights).max(initial=0.0))
    decimals = 5 - math.floor(math.log10(largest)) if largest > 0 else 0
    return (np.round(weights, decimals) + 0.0).tolist()
