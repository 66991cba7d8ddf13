"""Findings besides the ranking, in sentences: interactions, other surrogates, another preset."""

from __future__ import annotations

from collections import Counter

from ropelime.results.explanation import ExplanationData
from ropelime.text.display import plain, shorten

_QUOTED = 60  # characters of a feature


def findings(e: ExplanationData) -> list[str]:
    """A sentence for each finding."""
    found = []
    for pair in e.interactions:
        a, b = _quoted(e, pair.first), _quoted(e, pair.second)
        size = f"{abs(pair.effect):.1f} nats"
        if pair.kind == "together":
            found.append(f"Only together: {a} and {b}; without one of them the other adds {size} less.")
        else:
            found.append(f"Either suffices: {a} or {b}; removing both costs the answer {size} more.")
    if e.config.get("interactions") and not e.interactions:
        found.append("No interaction was found between the features with the largest weights.")
    if e.members:
        named = [f"{surrogates(member)} ranks {_first(member)} first" for member in e.members]
        agreement = float(e.config.get("agreement", 0.0))
        found.append(f"{'; '.join(named)}. Rank correlation of their weights: {agreement:.2f}.")
    if e.also is not None:
        found.append(f"Preset {e.also.config.get('preset')} ranks {_first(e.also)} first.")
    return found


def surrogates(e: ExplanationData) -> str:
    """The names of the surrogates."""
    models = e.config.get("surrogates") or [e.config["surrogate"]]
    return plain(" and ".join(str(model.get("name", "a surrogate")) for model in models))


def places(e: ExplanationData) -> list[str]:
    """The rank of each feature, as "2", or as "2=" where several share it."""
    ranks = e.ranks.tolist()
    count = Counter(ranks)
    return [f"{rank}=" if count[rank] > 1 else f"{rank}" for rank in ranks]


def has_signs(e: ExplanationData) -> bool:
    """Whether a weight can oppose the answer: not where weights are means of signals."""
    return not e.signals or bool((e.weights < 0).any() or (e.token_weights < 0).any())


def _first(e: ExplanationData) -> str:
    (first,) = e.top(1)
    return f"{_quoted(e, first.index)} ({first.normalized_weight:.0%})"


def _quoted(e: ExplanationData, index: int) -> str:
    return f"“{shorten(plain(e.features[index].text), _QUOTED)}”"
