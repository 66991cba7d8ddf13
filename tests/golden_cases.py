"""Explanations that must not change when the code does: what each one is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

CONTEXT = [
    "Paris is the capital of France. It lies on the Seine. Many people visit it every year.",
    "The Louvre is a museum in Paris. A picture hangs there. Leonardo painted the picture in Italy.",
]
QUESTION = "Who painted the picture in the Louvre?"
ANSWER = "The picture was painted by Leonardo."
OTHER = "It was painted by Monet."
RAG: Mapping[str, Any] = {"context": CONTEXT, "question": QUESTION, "output": ANSWER}
PLAIN: Mapping[str, Any] = {"prompt": " ".join(CONTEXT), "output": ANSWER}
CHAT: Mapping[str, Any] = {
    "messages": [
        {"role": "system", "content": "Answer in one sentence. Be polite."},
        {"role": "user", "content": "I saw a picture in the Louvre. " + QUESTION},
    ],
    "output": ANSWER,
}
# Nats that each sentence of the context adds to each of two output tokens, and one pair that
# only works together.
EFFECT = np.array([[0.1, 0.0], [0.0, 0.0], [-0.2, 0.0], [0.5, 0.3], [1.5, 0.2], [2.0, 1.0]])


def function(masks: Any) -> Any:
    """A function of masks as a surrogate: additive but for one pair."""
    pair = (masks[:, 3] & masks[:, 5]).astype(float)
    return -6.0 + masks @ EFFECT + 1.5 * pair[:, None]


def second(masks: Any) -> Any:
    """Another one, which disagrees in part."""
    return -5.0 + masks @ EFFECT[::-1] * 0.5


_ONLY_OUTPUT = {
    "evidence": {"target": "nll", "scoring": "exact"},
    "faithful": {},
    "paper": {"target": "nll", "kernel": "hamming"},
}
PRESETS = ("evidence", "faithful", "paper")
EVIDENCE = "evidence:0.5:0.3:0.2"  # the target of the preset here: shift, words and question


def cases() -> dict[str, dict[str, Any]]:
    """Keyword arguments of ``explain`` by name; ``surrogate`` is a kind, ``extend`` a number."""
    found: dict[str, dict[str, Any]] = {}
    for preset in PRESETS:
        by_hand = {**RAG, "preset": preset, **_ONLY_OUTPUT[preset]}
        for kind, base in (
            ("function", by_hand),
            ("tiny", {**RAG, "preset": preset}),
            ("smollm2", {**RAG, "preset": preset}),
        ):
            base = {**base, "surrogate": kind}
            found[f"{kind}-{preset}"] = base
            found[f"{kind}-{preset}-interactions"] = {**base, "interactions": True}
            found[f"{kind}-{preset}-extend"] = {**base, "budget": 12, "extend": 7}
            found[f"{kind}-{preset}-ensemble"] = {**base, "surrogate": [kind, _beside(kind)]}
            if kind != "function":
                found[f"{kind}-{preset}-contrast"] = {**base, "instead_of": OTHER}
    tiny = {"surrogate": "tiny"}
    found["tiny-exact"] = {**RAG, **tiny, "scoring": "exact"}
    found["tiny-in-place"] = {**RAG, **tiny, "ablation": "in-place"}
    found["tiny-placeholder"] = {
        **PLAIN,
        **tiny,
        "ablation": "placeholder:[gone]",
        "preset": "faithful",
    }
    found["tiny-tokens-budget"] = {**RAG, **tiny, "budget": "2000 tokens", "preset": "faithful"}
    found["tiny-plain-words"] = {**PLAIN, **tiny, "features": "word", "seed": 3}
    found["tiny-chat-also"] = {**CHAT, **tiny, "also": "faithful"}
    found["tiny-messages"] = {**CHAT, **tiny, "features": "message", "preset": "faithful"}
    found["tiny-documents-lasso"] = {
        **RAG, **tiny, "features": "document", "sampler": "exhaustive", "target": "logit",
        "kernel": "cosine", "regressor": "lasso",
    }  # fmt: skip
    found["tiny-span"] = {**RAG, **tiny, "span": (0, 11)}
    return found


def _beside(kind: str) -> str:
    return {"function": "second", "tiny": "tiny-qwen3", "smollm2": "tiny"}[kind]


def make(
    options: Mapping[str, Any], surrogates: Callable[[str], Any], explain: Callable[..., Any]
) -> Any:
    """The explanation of a case."""
    chosen = {**options, "progress": False}
    more, span = chosen.pop("extend", 0), chosen.pop("span", None)
    kinds = chosen.pop("surrogate")
    named = [surrogates(k) for k in (kinds if isinstance(kinds, list) else [kinds])]
    models = named if isinstance(kinds, list) else named[0]
    e = explain(**chosen, surrogate=models)
    if more:
        e = e.extend(more, surrogate=models)
    return e if span is None else e.for_output(*span)
