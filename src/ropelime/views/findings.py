"""What the views say besides the figures: verdicts, interactions, other surrogates, verifying calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ropelime.results.explanation import ExplanationData
from ropelime.results.verification import VerifyingCall
from ropelime.text.display import plain, shorten

# The question that each verdict answers, as a heading.
QUESTIONS: Mapping[str, str] = {
    "rests": "The answer rests on the prompt",
    "cause": "The first part is a cause",
    "understood": "The surrogate follows the answer",
}
_QUOTED = 60  # characters of a feature
_NOTHING = 1e-9  # a smaller share is rounding


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


def verifying(e: ExplanationData) -> str:
    """The further calls of the answering model in one line; empty if there were none."""
    if e.verified is None:
        return ""
    seen, made = e.verified, len(e.verified.calls)
    words = [f"verified by {made} further {'call' if made == 1 else 'calls'} of {seen.model}"]
    if seen.cost is not None and made:
        words.append(f"cost {seen.cost:.6f}")
    return plain(" · ".join([*words, f"changed: {seen.measure} below {seen.threshold:g}"]))


def alone(e: ExplanationData, index: int) -> str:
    """What a verifying call without one feature showed; empty if there was none."""
    outcome = None if e.verified is None else e.verified.alone(index)
    if e.verified is None or outcome is None:
        return ""
    if outcome == "same":
        return "same answer without it"
    return "changed the answer" + (", perhaps by chance" if e.verified.stable is False else "")


def outcomes(e: ExplanationData) -> list[tuple[str, str, str]]:
    """For each verifying call: what was sent, what came of it, and the answer."""
    calls = () if e.verified is None else e.verified.calls
    answers = [call.after or call.error or "no answer" for call in calls]
    return [(_sent(e, c), _outcome(c), plain(text)) for c, text in zip(calls, answers, strict=True)]


def _sent(e: ExplanationData, call: VerifyingCall) -> str:
    if call.kind == "again":
        return "The same prompt"
    return f"{call.kind.capitalize()} {' and '.join(_quoted(e, i) for i in call.features)}"


def _outcome(call: VerifyingCall) -> str:
    if call.similarity is None:
        return f"not compared: {call.error}" if call.after else "declined"
    return f"{'changed' if call.changed else 'same'} ({call.similarity:.2f})"


def surrogates(e: ExplanationData) -> str:
    """The names of the surrogates."""
    models = e.config.get("surrogates") or [e.config["surrogate"]]
    return plain(" and ".join(str(model.get("name", "a surrogate")) for model in models))


def places(e: ExplanationData) -> list[str]:
    """The rank of each feature, as "2", or as "2=" where several share it."""
    ranks = e.ranks.tolist()
    count = Counter(ranks)
    return [f"{rank}=" if count[rank] > 1 else f"{rank}" for rank in ranks]


def has_share(e: ExplanationData, index: int) -> bool:
    """Whether a feature has any share: not if it could not be told apart from nothing."""
    return bool(e.weights[index]) and float(e.normalized_weights[index]) > _NOTHING


def has_signs(e: ExplanationData) -> bool:
    """Whether a weight can oppose the answer: not where weights are means of signals."""
    return not e.signals or bool((e.weights < 0).any() or (e.token_weights < 0).any())


def _first(e: ExplanationData) -> str:
    (first,) = e.top(1)
    return f"{_quoted(e, first.index)} ({first.normalized_weight:.0%})"


def _quoted(e: ExplanationData, index: int) -> str:
    return f"“{shorten(plain(e.features[index].text), _QUOTED)}”"
