"""Verify an explanation: a few further calls of the answering model, spent where they settle most.

The order of the calls follows their outcomes (:func:`next_step`):

1. Where it is not known that the explained answer is this model's own, the same prompt comes first.
2. The parts are removed one by one, the first-ranked first, until the answer changes.
3. Once it has, the same prompt is sent again: a model that gives another answer to that, too, may have
   changed its answer by chance. While nothing changes this would settle nothing.
4. Then the three parts at the top are kept alone: do they suffice?
5. If four parts changed nothing one by one, they are removed together: two of them may say the same.
6. What is left of the calls removes further parts one by one.

Each call but those of the same prompt goes through the cache of answers. The number of calls and about
what they cost are said before the first one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from numbers import Real
from typing import Any

from ropelime.answering import AnsweringModel, E
from ropelime.clients.openai import server
from ropelime.clients.sdk import key_of, sdk
from ropelime.errors import (
    DeclinedError,
    EmptyAnswerError,
    InputError,
    Interrupted,
    RopeLimeError,
    worded,
)
from ropelime.progress import Callback
from ropelime.results.explanation import ExplanationData, with_verified
from ropelime.results.verification import CHANGED_BELOW, Verified, VerifyingCall
from ropelime.text.ablated import Chat, ablated, messages_of
from ropelime.text.lexical import pinned, question
from ropelime.text.similarity import Similarity, answer_f1

_KEPT = 3  # parts that are kept alone
_TOGETHER = 4  # parts that changed nothing one by one, and are then removed together
_INTERRUPTED = "It was interrupted."
_CHARACTERS = 4  # of a token, where the server has not counted them
Step = tuple[str, tuple[int, ...]]  # the kind of a call, and its features


def next_step(
    order: Sequence[int], calls: Sequence[VerifyingCall], *, own: bool, most: int
) -> Step | None:
    """The call that settles most after those that were made; None if nothing is left to try.

    Args:
        order: The features, the first-ranked first.
        calls: The calls so far.
        own: Whether the explained answer is known to be the model's own.
        most: How many features may be removed at once.
    """
    tried = {call.kind for call in calls}
    alone = {c.features[0]: c.changed for c in calls if c.kind == "without" and len(c.features) == 1}
    together = any(len(c.features) > 1 for c in calls if c.kind == "without")
    changed = any(c.changed for c in calls if c.kind == "without")
    if "again" not in tried and (changed or not own):
        return "again", ()
    if "only" not in tried and changed and len(order) > 2:
        first = sorted(order, key=lambda i: alone.get(i) is not True)  # stable
        return "only", tuple(sorted(first[: min(_KEPT, len(order) - 2)]))
    unchanged = [i for i in order if alone.get(i) is False][:_TOGETHER]
    left = [i for i in order if i not in alone]
    enough = len(unchanged) == min(_TOGETHER, len(order)) and 2 <= len(unchanged) <= most
    if enough and not changed and not together:
        return "without", tuple(sorted(unchanged))
    return ("without", (left[0],)) if left else None


@dataclass(frozen=True)
class Verifier:
    """How an explanation is verified.

    Attributes:
        calls: The most calls of the answering model.
        similarity: How similar two answers are, from 0 to 1; if None, :func:`answer_f1` for the
            question of the prompt. An answer has changed if it is below 0.5.
        max_cost: The most that the calls may cost together, at the model's price.
    """

    calls: int
    similarity: Similarity | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        calls, most = self.calls, self.max_cost
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
            raise InputError(f"verify takes a whole number of calls of at least 1, not {calls!r}.")
        number = isinstance(most, (int, float)) and not isinstance(most, bool)
        if most is not None and not (number and 0 <= most < math.inf):
            raise InputError(f"max_cost must be a number that is not negative, not {most!r}.")
        if self.similarity is not None:
            if not callable(self.similarity):
                raise InputError(
                    f"similarity must be a function of two answers, not {self.similarity!r}."
                )
            _compare(self.similarity, "An answer.", "An answer.")

    def check(self, answering: AnsweringModel) -> None:
        """Refuse what cannot work before anything is paid."""
        sdk()
        if self.max_cost is not None and answering.price is None:
            raise InputError(
                "max_cost needs the price of a million tokens in and out: price=(0.15, 0.6), or "
                "--price-in and --price-out."
            )

    def run(
        self,
        e: E,
        answering: AnsweringModel,
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        say: Callable[[str], None] | None = None,
        report: Callback | None = None,
    ) -> E:
        """The explanation with what the calls showed, added to what this model showed before.

        Where a call fails, what was paid for before it is kept, and ``e.verified.stopped`` says why.
        An error is raised only if there is nothing to keep. After Ctrl-C the same is in
        :attr:`Interrupted.kept`.

        Args:
            e: The explanation.
            answering: The model.
            messages: The messages as they were sent, where the prompt is a chat.
            say: Called with what will be done and about what it costs, before the first call.
            report: Called with the calls done and in all.
        """
        self.check(answering)
        chat = messages_of(e.prompt, messages)
        answering.call(e.prompt, ablated(e.prompt, e.features, (), chat))  # refuses a missing key, ...
        each = _estimate(e, answering)
        self._say(each, answering, say)
        similarity = cache(self._similarity(e))  # answers are compared again after each call
        own = _is_own(e, answering) or self.calls == 1
        following = partial(next_step, _order(e), own=own, most=_most(e))
        calls = seen = _compared(similarity, e.output, _seen_before(e, answering))
        outcome = partial(self.outcome, e, answering, requested=len(seen) + self.calls)
        stopped = ""
        failed: RopeLimeError | None = None
        try:
            while (made := len(calls) - len(seen)) < self.calls and (step := following(calls)):
                if not self._affords(calls[len(seen) :], each):
                    stopped = f"The next call could exceed max_cost={self.max_cost:g}."
                    break
                try:
                    call, declined = _attempt(e, answering, chat, step)
                    failed, calls = declined or failed, (*calls, call)
                    calls = _compared(similarity, e.output, calls)
                except RopeLimeError as error:  # of the server, or of the caller's similarity
                    failed, stopped, calls = error, str(error), _settled(calls, str(error))
                    break
                if report is not None:
                    report(made + 1, self.calls)
        except KeyboardInterrupt:
            new = len(calls) > len(seen) or e.verified is None  # else it may hold another model's calls
            kept = outcome(_settled(calls, _INTERRUPTED), stopped=_INTERRUPTED)
            raise Interrupted(kept if new else e) from None
        answered = any(call.after or not call.error for call in calls[len(seen) :])
        if failed is not None and not answered:
            raise failed
        return outcome(calls, stopped=stopped)

    def outcome(
        self,
        e: E,
        answering: AnsweringModel,
        calls: Sequence[VerifyingCall],
        *,
        requested: int,
        stopped: str,
    ) -> E:
        """The explanation with these calls."""
        similarity = self.similarity or answer_f1
        made = Verified(
            **answering.describe(),
            measure=getattr(similarity, "__name__", type(similarity).__name__),
            threshold=CHANGED_BELOW,
            requested=requested,
            calls=tuple(calls),
            stopped=stopped,
        )
        return with_verified(e, made)

    def _affords(self, made: Sequence[VerifyingCall], each: _Each) -> bool:
        """Whether a further call stays within what the calls may cost."""
        spent = sum(_paid(call, each) for call in made)
        return self.max_cost is None or spent + (each.cost or 0.0) <= self.max_cost

    def _similarity(self, e: ExplanationData) -> Similarity:
        return self.similarity or answer_f1(question(e.prompt, e.features))

    def _say(self, each: _Each, answering: AnsweringModel, say: Callable[[str], None] | None) -> None:
        total = None if each.cost is None else self.calls * each.cost
        if self.max_cost is not None and total is not None and total > self.max_cost:
            raise InputError(
                f"{self.calls} verifying calls may cost about {total:.6f} in all, which is more than "
                f"max_cost={self.max_cost:g}. Make fewer calls, or raise max_cost."
            )
        if say is not None:
            calls = "one further call" if self.calls == 1 else f"at most {self.calls} further calls"
            cost = "" if total is None else f" · cost at most about {total:.6f}"
            where = f"{answering.model} at {server(answering.base_url)}"
            tokens = f"at most about {each.prompt:,} tokens in and about {each.answer:,} out each"
            say(f"ropelime: verifying by {calls} of {where} · {tokens}{cost}")


def kept(e: E, verifier: Verifier, answering: AnsweringModel, error: RopeLimeError) -> E:
    """The explanation where no call was answered, with the reason."""
    return verifier.outcome(e, answering, (), requested=verifier.calls, stopped=str(error))


def _settled(calls: Sequence[VerifyingCall], why: str) -> tuple[VerifyingCall, ...]:
    """The calls, where those whose answer was not compared have this error."""
    return tuple(replace(c, error=why) if c.changed is None and not c.error else c for c in calls)


def _paid(call: VerifyingCall, each: _Each) -> float:
    """What a call cost, or about."""
    if call.cached or call.error:
        return 0.0
    return (each.cost or 0.0) if call.cost is None else call.cost


def _compare(similarity: Similarity, one: str, other: str) -> float:
    """How similar two answers are."""
    try:
        value = similarity(one, other)
    except Exception as error:  # the caller's own function: what was paid for must not be lost
        raise InputError(f"similarity failed: {worded(error)}") from error
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0 <= value <= 1):
        raise InputError(f"similarity must return a number from 0 to 1, and it returned {value!r}.")
    return float(value)


def _compared(
    similarity: Similarity, output: str, calls: Sequence[VerifyingCall]
) -> tuple[VerifyingCall, ...]:
    """The calls with their outcomes, each against the most similar answer to the whole prompt."""
    whole = [output, *(call.after for call in calls if call.kind == "again" and not call.error)]
    compared = []
    for call in calls:
        if not call.error:
            answers = whole[:1] if call.kind == "again" else whole
            similar, before = max(
                ((_compare(similarity, call.after, a), a) for a in answers), key=lambda p: p[0]
            )
            changed = similar < CHANGED_BELOW
            call = replace(call, before=before, similarity=similar, changed=changed)
        compared.append(call)
    return tuple(compared)


def recorded(e: ExplanationData, model: str | None, **how: Any) -> AnsweringModel:
    """The answering model: as it is given, and for the rest as ``ask`` recorded it.

    A key goes to a recorded server only if that is the one it would go to anyway, since an explanation
    can come from a file of somebody else.
    """
    record = _record(e)
    name = record.get("model") if model is None else model
    if name is None:
        raise InputError(
            "The explanation does not say which model answered. Name it: model=..., --model."
        )
    if name == record.get("model"):
        url = record.get("base_url")
        if how.get("base_url") is None and url != server(None):
            if key_of(how.get("api_key")) is not None:
                raise InputError(
                    f"The answer came from {url}. To send your key there, pass base_url={url!r} "
                    "(--base-url)."
                )
            how["base_url"] = url
        known = {"sampling": record.get("sampling"), "price": record.get("price_per_million")}
        how |= {key: value for key, value in known.items() if how.get(key) is None}
    return AnsweringModel(name, **how)


def recorded_messages(e: ExplanationData) -> Any:
    """The messages as ``ask`` sent them, where the prompt does not hold all of them."""
    return _record(e).get("messages")


def _record(e: ExplanationData) -> Mapping[str, Any]:
    """What ``ask`` recorded of the answer; empty if it was not made by ``ask``."""
    record = e.config.get("answer")
    if record is None:
        return {}
    types = {"model": str, "base_url": str, "sampling": Mapping}
    if not isinstance(record, Mapping) or not all(isinstance(record.get(k), types[k]) for k in types):
        raise InputError("config['answer'] is damaged: it must hold model, base_url and sampling.")
    return record


@dataclass(frozen=True)
class _Each:
    """What a call takes, at most or about."""

    prompt: int  # tokens: those of the whole prompt
    answer: int  # tokens: those of the explained answer
    cost: float | None


def _estimate(e: ExplanationData, answering: AnsweringModel) -> _Each:
    usage = _record(e).get("usage") if _is_own(e, answering) else None
    texts = {"prompt_tokens": e.prompt.text, "completion_tokens": e.output}
    counts = [usage.get(name) if isinstance(usage, Mapping) else None for name in texts]
    tokens = [
        count if isinstance(count, int) else len(text) // _CHARACTERS + 1
        for count, text in zip(counts, texts.values(), strict=True)
    ]
    price = answering.price
    cost = None if price is None else sum(t * p / 1e6 for t, p in zip(tokens, price, strict=True))
    return _Each(tokens[0], tokens[1], cost)


def _is_own(e: ExplanationData, answering: AnsweringModel) -> bool:
    """Whether the explained answer is recorded as one of this model, asked in this way."""
    record, known = _record(e), answering.describe()
    return all(record.get(key) == value for key, value in known.items())


def _seen_before(e: ExplanationData, answering: AnsweringModel) -> tuple[VerifyingCall, ...]:
    """The calls of this model, asked in this way, that the explanation holds."""
    seen, known = e.verified, answering.describe()
    same = seen is not None and all(getattr(seen, key) == value for key, value in known.items())
    return tuple(call for call in seen.calls if not call.error) if seen is not None and same else ()


def _order(e: ExplanationData) -> list[int]:
    """The features as they were estimated, the first-ranked first."""
    return [ranked.index for ranked in with_verified(e, None).top()]


def _most(e: ExplanationData) -> int:
    """How many features may be removed: something must be left to answer to."""
    return len(e.features) - (not pinned(e.prompt, e.features).strip())


def _attempt(
    e: ExplanationData, answering: AnsweringModel, chat: Chat, step: Step
) -> tuple[VerifyingCall, RopeLimeError | None]:
    """A call, and the error of this one request where it was declined: others may be answered."""
    try:
        return _call(e, answering, chat, step), None
    except DeclinedError as error:
        return VerifyingCall(*step, e.output, "", None, None, error=str(error)), error


def _call(e: ExplanationData, answering: AnsweringModel, chat: Chat, step: Step) -> VerifyingCall:
    """Make one call; the same prompt is sent past the cache, which would give the same answer."""
    kind, features = step
    rest = set(range(len(e.features))) - set(features)
    removed = {"without": features, "only": rest, "again": ()}[kind]
    call = answering.call(e.prompt, ablated(e.prompt, e.features, removed, chat))
    known = None if kind == "again" else answering.known(call)
    model = replace(answering, cache=answering.cache and kind != "again")
    try:
        given = known or model.answer(call)
    except EmptyAnswerError as error:  # without some parts, a model may have nothing to say
        cost = answering.cost(error.usage)
        return VerifyingCall(kind, features, e.output, "", None, None, cost)
    cost, cached = given.record["cost"], given.record["cached"]
    return VerifyingCall(kind, features, e.output, given.text, None, None, cost, cached)
