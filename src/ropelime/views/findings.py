"""What an explanation found beyond its ranking, in sentences: pairs, and what others say."""

from __future__ import annotations

from ropelime.results.explanation import Explanation
from ropelime.text.display import plain

_SHOWN = 60  # characters of a feature


def findings(e: Explanation) -> list[str]:
    """A sentence for each thing that was asked for."""
    found = []
    for pair in e.interactions:
        a, b = _quoted(e, pair.first), _quoted(e, pair.second)
        size = f"{abs(pair.effect):.1f} nats"
        if pair.kind == "together":
            found.append(f"Only together: {a} and {b}; without one of them the other does {size} less.")
        else:
            found.append(f"Either will do: {a} or {b}; without both the answer loses {size} more.")
    if e.config.get("interactions") and not e.interactions:
        found.append("No two of the features that weigh most were found to work only together.")
    if e.members:
        named = [f"{surrogates(member)} puts {_first(member)} first" for member in e.members]
        agreement = float(e.config.get("agreement", 0.0))
        found.append(f"{'; '.join(named)}. Rank correlation of their shares: {agreement:.2f}.")
    if e.also is not None:
        found.append(f"By preset {e.also.config.get('preset')} the first is {_first(e.also)}.")
    return found


def surrogates(e: Explanation) -> str:
    """Who read the masked prompts."""
    models = e.config.get("surrogates") or [e.config["surrogate"]]
    return plain(" and ".join(str(model.get("name", "a surrogate")) for model in models))


def _first(e: Explanation) -> str:
    (share,) = e.top(1)
    return f"{_quoted(e, share.index)} ({share.score:.0%})"


def _quoted(e: Explanation, index: int) -> str:
    text = " ".join(plain(e.features[index].text).split())
    return f"“{text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}”"
