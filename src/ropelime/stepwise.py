"""Explain steps of an agent: messages first, then the sentences or fields of those that matter.

The prompt of a step holds that of the step before it. Steps that are explained together run the prefix
that they share once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropelime.errors import InputError
from ropelime.explain import Explanation, explain_many
from ropelime.guard import tool_names
from ropelime.method.schedule import Budget
from ropelime.options import Options
from ropelime.progress import Callback
from ropelime.results.decisions import Decision, decide
from ropelime.results.ensemble import for_output
from ropelime.results.explanation import Cost, ExplanationData
from ropelime.steps import Errors, Task
from ropelime.surrogate.base import Surrogate
from ropelime.text import structured
from ropelime.text.features import split
from ropelime.text.prompt import Prompt, Span, from_messages
from ropelime.traces.annotations import Judged
from ropelime.traces.steps import Step

_COARSE = 1 / 3  # of the budget goes to messages, the rest to their parts
_MATTER = 0.9  # the messages that have this share together are cut further
_FEWEST = 16  # parts to cut them into where there are so many, however long the output


@dataclass(frozen=True)
class ExplainedStep:
    """A step of a run, explained.

    Attributes:
        step: The step.
        explanation: What its output rests on, as a whole. What the model wrote before it in the same
            step (``step.reasoning``) is the last message of its prompt.
        actions: The explanation of each tool call by itself, or of the text of a step without any.
        decisions: Who decided on each of these.
    """

    step: Step
    explanation: Explanation
    actions: tuple[ExplanationData, ...]
    decisions: tuple[Decision, ...]

    def to_dict(self) -> dict[str, Any]:
        """Who decided, as plain data."""
        decisions = [decision.to_dict() for decision in self.decisions]
        return {"step": self.step.number, "id": self.step.id, "decisions": decisions}

    def judged(self) -> list[Judged]:
        """Who decided, as results for the tool that the trace came from."""
        return [
            Judged(
                self.step.id,
                self.step.trace_id,
                "caused_by" if len(self.decisions) == 1 else f"caused_by {number}",
                label=decision.verdict,
                score=decision.probability,
                explanation=decision.text,
                metadata={"action": decision.action},
            )
            for number, decision in enumerate(self.decisions, start=1)
        ]


def prompt_of(step: Step) -> list[dict[str, Any]]:
    """What came before the output of a step: its prompt, and what the model wrote before the output."""
    messages = step.prompt()
    if step.reasoning.strip():
        messages.append({"role": "assistant", "content": "", "reasoning_content": step.reasoning})
    return messages


def explain_steps(
    steps: Sequence[Step],
    surrogates: Sequence[Surrogate],
    options: Options,
    *,
    progress: Callback | None = None,
    forgive: Errors = (),
) -> list[ExplainedStep | Exception]:
    """Explain steps of one run, in their order.

    Sentences are found coarse to fine where the explanation needs masks: whole messages are removed
    first, and then the sentences or fields of those that matter. Other features are taken as they are,
    and a prompt of one sentence is cut into its words.

    Args:
        steps: The steps.
        surrogates: As in :func:`ropelime.explain.explain_many`.
        options: How to explain; the budget is that of each step.
        progress: As there.
        forgive: As there.
    """
    tasks = [
        _task(step, options, earlier) for earlier, step in zip([None, *steps], steps, strict=False)
    ]
    spent = [Cost(0, 0, 0.0)] * len(tasks)
    if options.features == "sentence" and options.recipe.target.needs_masks:
        tasks, spent = _finer(tasks, surrogates, progress, forgive)
    found = explain_many(tasks, surrogates, progress=progress, forgive=forgive)
    made: list[ExplainedStep | Exception] = []
    for step, why, before in zip(steps, found, spent, strict=True):
        if isinstance(why, Exception):
            made.append(why)
            continue
        made.append(decided(step, replace(why, cost=why.cost + before)))
    return made


def decided(step: Step, why: Explanation) -> ExplainedStep:
    """A step with the explanation of its output, and who decided on each action in it."""
    spans = step.call_spans or ((0, len(step.output)),)
    tools = tool_names(step.prompt())
    actions = tuple(why if span == why.span else for_output(why, *span) for span in spans)
    return ExplainedStep(step, why, actions, tuple(decide(each, tools=tools) for each in actions))


def _task(step: Step, options: Options, earlier: Step | None) -> Task:
    continues = earlier is not None and earlier.trace_id == step.trace_id
    prompt = from_messages(prompt_of(step))
    if options.features == "sentence" and _sentences(prompt) == 1:
        options = replace(options, features="word")
    return Task(prompt, step.output, options, continues=continues)


def _sentences(prompt: Prompt) -> int:
    return sum(len(structured.sentences(prompt.text[start:end])) for start, end in prompt.parts)


def _finer(
    tasks: list[Task], surrogates: Sequence[Surrogate], progress: Callback | None, forgive: Errors
) -> tuple[list[Task], list[Cost]]:
    """The tasks with features that are finer in messages that matter, and what it cost to know."""
    many = [len(task.prompt.parts) > 1 for task in tasks]
    plain = {"also": None, "interactions": False}
    coarse = [
        replace(task, options=_budgeted(task.options, _COARSE, features="message", **plain))
        for task, wanted in zip(tasks, many, strict=True)
        if wanted
    ]
    found = iter(explain_many(coarse, surrogates, progress=progress, forgive=forgive))
    made, spent = [], []
    for task, wanted in zip(tasks, many, strict=True):
        why = next(found) if wanted else None
        if not isinstance(why, Explanation):  # with an error, it comes again
            made.append(task)
            spent.append(Cost(0, 0, 0.0))
            continue
        spent.append(why.cost)
        sentences = split(task.prompt, "sentence", token_spans=surrogates[0].token_spans)
        most = max(_FEWEST, len(task.prompt.text) // len(task.output))
        cut = finer_spans(why, [(each.start, each.end) for each in sentences], most=most)
        made.append(replace(task, options=_budgeted(task.options, 1 - _COARSE, features=cut)))
    return made, spent


def _budgeted(options: Options, part: float, **changes: Any) -> Options:
    """The options with a part of their budget."""
    budget = options.budget
    left = Budget(
        masks=None if budget.masks is None else max(1, int(part * budget.masks)),
        tokens=None if budget.tokens is None else max(1, int(part * budget.tokens)),
        seconds=None if budget.seconds is None else part * budget.seconds,
    )
    return replace(options, budget=left, **changes)


def finer_spans(coarse: Explanation, sentences: Sequence[Span], *, most: int) -> tuple[Span, ...]:
    """The sentences or fields of the messages that matter, and all other messages as they are.

    Args:
        coarse: The explanation by messages.
        sentences: The sentences and fields of the prompt.
        most: How many sentences there may be; a message with more of them than are left stays whole,
            but for the first, of which neighbours are joined.
    """
    shares = coarse.normalized_weights
    order = np.argsort(-shares, kind="stable")
    before = np.cumsum(shares[order]) - shares[order]
    found: list[Span] = []
    left = most
    for number, i in enumerate(order.tolist()):
        whole = (coarse.features[i].start, coarse.features[i].end)
        inside = [span for span in sentences if whole[0] <= span[0] < whole[1]]
        if number == 0:
            inside = _joined(inside, left)
        if before[number] >= _MATTER or len(inside) > left or not inside:
            found.append(whole)
            continue
        found += inside
        left -= len(inside)
    return tuple(sorted(found))


def _joined(spans: list[Span], most: int) -> list[Span]:
    """Neighbours joined, so that there are no more than that."""
    each = -(-len(spans) // most)
    return [(spans[i][0], spans[min(i + each, len(spans)) - 1][1]) for i in range(0, len(spans), each)]


def refuse(step: Step, others: Sequence[Step]) -> None:
    """Refuse a step that cannot be explained, and name those that can."""
    if step.kind != "model" or not step.messages:
        raise InputError(
            f"Step {step.number} is not a call of a model with a stored prompt, so it cannot be "
            f"explained. Steps that can: {_numbers(others)}.",
            field="step",
        )
    if not step.output.strip():
        raise InputError(f"Step {step.number} has no output to explain.", field="step")
    try:
        from_messages(prompt_of(step))
    except InputError as error:
        raise InputError(f"Step {step.number} cannot be explained: {error}", field="step") from None


def _numbers(steps: Sequence[Step]) -> str:
    return ", ".join(str(step.number) for step in steps[:20] if step.messages) or "none"
