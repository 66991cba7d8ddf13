"""What further calls of the answering model showed: the outcome of each, and what follows from it.

An estimate says which parts of the prompt the answer should depend on. A verifying call removes parts,
or keeps some alone, and asks the answering model itself. Its outcome is a fact about that model, and
ranks and trust follow it; the weights stay what was estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ropelime.results.verdicts import Trust, Verdict
from ropelime.typing import Ints

KINDS = ("without", "only", "again")
Seen = Literal["changed", "same"]
CHANGED_BELOW = 0.5  # of the similarity: answers that are less alike are different answers
# Trust in a first part that was seen to change the answer: by a model that gave its answer twice, and
# by one that was not asked twice. Judgements, not fits: what is left is chance in the model's answers.
_SEEN_TWICE, _SEEN = 0.95, 0.85
_CHANCE = 0.3  # the most, where the model does not give the same answer to the same prompt
_REFUTED = 0.3  # the most, where none of the first parts changed the answer by itself,
_IRRELEVANT = 0.1  # and where all of them together did not either


@dataclass(frozen=True)
class VerifyingCall:
    """One further call of the answering model.

    Attributes:
        kind: ``"without"`` some features, ``"only"`` some of them, or the same prompt ``"again"``.
        features: The features that were removed, or that were kept; none of them for ``"again"``.
        before: The answer to the whole prompt that this one is compared with. Where there are several,
            the most similar one.
        after: The answer to this call.
        similarity: Of the two answers, 0 to 1; None where there is an error.
        changed: Whether that is another answer; None where there is an error.
        cost: What the call cost, if prices were given and the server counted the tokens.
        cached: Whether it was answered by the cache, at no cost.
        error: Why the server declined the call, or the answers could not be compared.
    """

    kind: str
    features: tuple[int, ...]
    before: str
    after: str
    similarity: float | None
    changed: bool | None
    cost: float | None = None
    cached: bool = False
    error: str = ""


@dataclass(frozen=True)
class Verified:
    """What the answering model showed in all verifying calls.

    Attributes:
        model: The answering model.
        base_url: Its server.
        sampling: Other arguments of the calls.
        measure: The name of the similarity of answers.
        threshold: The similarity below which an answer counts as changed.
        requested: How many calls were allowed.
        calls: Those that were made, in their order.
        stopped: Why they ended early; empty if they did not.
        trust_before: The trust of the estimate.
    """

    model: str
    base_url: str
    sampling: Mapping[str, Any]
    measure: str
    threshold: float
    requested: int
    calls: tuple[VerifyingCall, ...]
    stopped: str = ""
    trust_before: Trust | None = None

    @property
    def changed(self) -> tuple[int, ...]:
        """The features without which the answer is another one, in the order of the calls."""
        return self._alone(changed=True)

    @property
    def unchanged(self) -> tuple[int, ...]:
        """The features without which the answer stays the same."""
        return self._alone(changed=False)

    def alone(self, feature: int) -> Seen | None:
        """What came of removing a feature alone; None if that was not tried, or declined."""
        if feature in self.changed:
            return "changed"
        return "same" if feature in self.unchanged else None

    @property
    def stable(self) -> bool | None:
        """Whether the same prompt gave the same answer; None if it was not sent again."""
        again = [
            call.changed for call in self.calls if call.kind == "again" and call.changed is not None
        ]
        return not any(again) if again else None

    @property
    def together(self) -> bool | None:
        """Whether several features that have no effect alone changed the answer together."""
        return self._outcome("without", several=True)

    @property
    def suffices(self) -> bool | None:
        """Whether the first features alone gave the same answer; None if that was not tried."""
        changed = self._outcome("only", several=None)
        return None if changed is None else not changed

    @property
    def cost(self) -> float | None:
        """What the calls cost in all; None if that is not known of every one."""
        made = [call for call in self.calls if not call.error or call.cost is not None]
        costs = [0.0 if call.cached else call.cost for call in made]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader should know before relying on it."""
        found = []
        if self.stable is False:
            found.append(
                f"{self.model} gave another answer to the same prompt: what changed without a part may "
                "be chance. An answer counts as changed if it resembles none to the whole prompt."
            )
        if self.stopped:
            made = f"{len(self.calls)} of {self.requested} calls"
            found.append(f"Verification ended after {made}: {self.stopped}")
        return tuple(found)

    def groups(self, n: int) -> Ints:
        """(n,) what was seen of each feature, as an order: 0 goes before 1, and 1 before 2.

        0. Its ablation alone changed the answer.
        1. It was not tried, or its ablation alone did not change the answer. That does not refute it:
           two parts that say the same can stand in for each other.
        2. Its ablation changed nothing, alone or together with the others that changed nothing.
        """
        group = np.ones(n, dtype=np.int64)
        if self.together is False:
            group[list(self._all_together())] = 2
        group[list(self.changed)] = 0
        return group

    def trust(self, first: int) -> Trust | None:
        """The trust of the estimate after what was seen; ``first`` is the first feature now."""
        value = 0.5 if self.trust_before is None else self.trust_before.value
        if self.stable is False:
            twice = (
                f"{self.model} does not answer the same prompt alike: treat the ranking as a hint only."
            )
            return self._trust(min(value, _CHANCE), twice)
        if self.together is None and self.alone(first) is None:
            return self.trust_before
        value, text = self._seen(value) if first in self.changed else self._refuted(value)
        if self.suffices is not None:
            text += f" The first parts alone {'suffice' if self.suffices else 'do not suffice'}."
        return self._trust(value, text)

    def _trust(self, value: float, text: str) -> Trust:
        """A new verdict about the first part; the others stay what they were."""
        before = () if self.trust_before is None else self.trust_before.verdicts
        seen = Verdict("cause", value, text)
        return Trust(value, text, tuple(seen if v.name == "cause" else v for v in before))

    def _seen(self, value: float) -> tuple[float, str]:
        text = f"Seen: without the first part {self.model} answers differently"
        if self.stable:
            return max(value, _SEEN_TWICE), f"{text}; with it, it gave the same answer twice."
        sent = any(call.kind == "again" for call in self.calls)
        again = "had no answer when it was sent again" if sent else "was not sent again"
        return max(value, _SEEN), f"{text}. The same prompt {again}."

    def _refuted(self, value: float) -> tuple[float, str]:
        tried = len(self.unchanged)
        parts = "the first part" if tried == 1 else f"each of {tried} parts at the top"
        text = f"Seen: {self.model} gives the same answer without {parts}"
        if self.together:
            return value, f"{text}, but not without all of them: they stand in for each other."
        if self.together is False:
            return min(value, _IRRELEVANT), f"{text}, and without all of them: they are not needed."
        needed = "it is not needed" if tried == 1 else "none of them is needed"
        return min(value, _REFUTED), f"{text}: by itself, {needed}."

    def _alone(self, *, changed: bool) -> tuple[int, ...]:
        alone = [call for call in self.calls if call.kind == "without" and len(call.features) == 1]
        return tuple(call.features[0] for call in alone if call.changed is changed)

    def _all_together(self) -> tuple[int, ...]:
        calls = [c for c in self.calls if c.kind == "without" and len(c.features) > 1]
        return calls[-1].features if calls else ()

    def _outcome(self, kind: str, *, several: bool | None) -> bool | None:
        outcomes = [
            call.changed
            for call in self.calls
            if call.kind == kind and (several is None or (len(call.features) > 1) is several)
        ]
        return outcomes[-1] if outcomes else None
