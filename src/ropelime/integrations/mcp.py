"""A server of the Model Context Protocol: an assistant asks which part of a prompt made an answer.

Explanations run one at a time in a thread, with progress, and stop when the client cancels. What is
wrong with a request is a tool error that the assistant can read and act on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from ropelime._version import __version__
from ropelime.audit import audit
from ropelime.errors import InputError, ModelError, RopeLimeError, worded
from ropelime.explain import Explanation, explain
from ropelime.integrations.messages import as_messages
from ropelime.results.rows import LONGEST, brief, cited_brief
from ropelime.surrogate import load_surrogate
from ropelime.surrogate.base import Surrogate
from ropelime.surrogate.checkpoints import is_panic
from ropelime.text.display import shorten
from ropelime.text.features import split
from ropelime.text.prompt import read_prompt
from ropelime.trace import trace
from ropelime.traces.steps import Step

try:
    import anyio
    import anyio.from_thread
    import anyio.to_thread
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
    from pydantic import Field
    from typing_extensions import TypedDict
except ImportError:
    raise ModelError("The MCP server needs the SDK: pip install 'ropelime[mcp]'") from None

INSTRUCTIONS = """\
Tells which parts of a prompt an answer of a language model depends on. A small open model on this
machine scores the answer with parts of the prompt removed; no text leaves the machine. Pass the prompt
in one form: prompt, context (with question), or messages; and the answer as output, word for word."""
_PAUSE = 0.2  # seconds between two reports of progress

Text = Annotated[str | None, Field(description="The prompt as one text.")]
Chunks = Annotated[
    list[str | dict[str, Any]] | None,
    Field(description="Retrieved documents: texts, or objects with text, source and page."),
]
Question = Annotated[str | None, Field(description="The question about the context.")]
Messages = Annotated[
    list[dict[str, Any]] | None,
    Field(description="Chat messages, each with role and content, or tool_calls."),
]
Output = Annotated[str, Field(description="The answer, word for word as the model gave it.")]
Granularity = Annotated[
    Literal["word", "sentence", "paragraph", "document", "message"],
    Field(description="The parts of the prompt that get a weight."),
]
Preset = Annotated[
    Literal["evidence", "instant", "faithful"],
    Field(description="evidence: leave-one-out; instant: one forward pass; faithful: random masks."),
]
Top = Annotated[int, Field(ge=1, le=50, description="How many parts to return.")]
Report = Callable[[int, int], None]


class Part(TypedDict):
    """A part of the prompt; normalized weights of all parts add up to 1.

    verified: what became of the answer without this part; null if the answering model was not asked.
    """

    rank: int
    text: str
    where: str
    weight: float
    normalized_weight: float
    interval: list[float] | None
    verified: Literal["changed", "same"] | None


class Trust(TypedDict):
    """How far to trust a result, from 0 to 1, and why."""

    trust: float | None
    trust_says: str
    warnings: list[str]


class Ranking(Trust):
    """The first parts of the ranking."""

    parts: list[Part]
    parts_in_all: int
    unit: str
    preset: str


class StepRanking(Ranking):
    """The same with what the model wrote."""

    output: str


class CitedSentence(TypedDict):
    """A sentence, the numbers of its sources, and the chance that it comes from the prompt."""

    text: str
    sources: list[int]
    probability: float


class CitedSource(TypedDict):
    """A part of the prompt that is cited."""

    number: int
    text: str
    where: str


class Citations(Trust):
    """The answer with marks, its sentences and its sources."""

    answer: str
    sentences: list[CitedSentence]
    sources: list[CitedSource]


class CheckedMark(TypedDict):
    """A citation: confirmed, refuted, unsupported or unknown; better is what to cite instead."""

    label: str
    verdict: str
    why: str
    cites: str
    statement: str
    better: str | None


class CheckedCitations(Trust):
    """Whether all citations are right, each of them, and sentences that lack one."""

    ok: bool
    counts: dict[str, int]
    marks: list[CheckedMark]
    uncited: list[str]


@dataclass
class Limits:
    """The most that one call may ask for.

    Attributes:
        characters: Characters of the prompt and of the answer together.
        features: Parts of the prompt.
    """

    characters: int = 200_000
    features: int = 500


@dataclass
class Explainer:
    """What the tools share: the surrogate, which is loaded by the first call, and the limits.

    Attributes:
        surrogate: The model, as ``load_surrogate`` takes it, or the model itself.
        running: Further arguments of ``load_surrogate``.
        limits: The most that one call may ask for.
        traces: The folder that traces are read from; without one no trace is read.
    """

    surrogate: str | Surrogate = "smollm2"
    running: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    traces: Path | None = None

    def check(self, output: str, features: str = "sentence", **given: Any) -> dict[str, Any]:
        """The arguments of ``explain``, if they are within the limits."""
        known = {**given, "messages": as_messages(given.get("messages"))}
        prompt = read_prompt(*(known.get(k) for k in ("prompt", "context", "question", "messages")))
        size, most = len(prompt.text) + len(output), self.limits
        if size > most.characters:
            raise InputError(
                f"Prompt and answer have {size:,} characters and this server takes at most "
                f"{most.characters:,}. Leave out what the answer cannot rest on."
            )
        if (count := len(split(prompt, features))) > most.features:
            raise InputError(
                f"The prompt has {count:,} parts and this server takes at most {most.features:,}. "
                "Choose larger ones with features, such as paragraph."
            )
        return {**known, "output": output}

    def loaded(self) -> Surrogate:
        """The surrogate, loaded once."""
        if isinstance(self.surrogate, str):
            self.surrogate = load_surrogate(self.surrogate, **self.running)
        return self.surrogate

    def step(self, name: str, number: int) -> Step:
        """A step of a trace in the folder of traces."""
        assert self.traces is not None
        folder = self.traces.resolve()
        try:
            path = (folder / name).resolve()
            there = path.is_relative_to(folder) and path.is_file()
        except (OSError, RuntimeError, ValueError):  # too long, a link to itself, a NUL character
            there = False
        if not there:
            name = shorten(name, LONGEST)
            known = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.json*"))[:10]
            raise InputError(
                f"There is no file {name!r} in the folder of traces. It has: {', '.join(known) or '-'}."
            )
        run = trace(path)
        step = run[number]
        if step.kind != "model" or not step.messages or not step.output.strip():
            known = [str(each.number) for each in run.model_steps if each.messages and each.output]
            raise InputError(
                f"Step {number} has no prompt and answer of a model. These have: "
                f"{', '.join(known[:20]) or 'none'}."
            )
        return step


class Tools:
    """The tools of the server; each takes a request, and the context that reports its progress."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._one_at_a_time = anyio.Lock()

    async def explain(
        self, ctx: Context[Any, Any], output: Output, prompt: Text = None, context: Chunks = None,
        question: Question = None, messages: Messages = None, features: Granularity = "sentence",
        preset: Preset = "evidence", top: Top = 5,
    ) -> Ranking:  # fmt: skip
        """Rank the parts of a prompt by how much an answer depends on them."""
        given = _given(prompt, context, question, messages)

        def work(report: Report) -> Any:
            return brief(self._explained(features, preset, report, output=output, **given), top)

        return cast(Ranking, await self._run(ctx, work))

    async def cite(
        self, ctx: Context[Any, Any], output: Output, prompt: Text = None, context: Chunks = None,
        question: Question = None, messages: Messages = None,
    ) -> Citations:  # fmt: skip
        """Find the source of each sentence of an answer in its prompt, or say that there is none."""
        given = _given(prompt, context, question, messages)

        def work(report: Report) -> Any:
            e = self._explained("sentence", "evidence", report, output=output, **given)
            return {"answer": str(e.cite()), **cited_brief(e.cite()), **_trust(e)}

        return cast(Citations, await self._run(ctx, work))

    async def check_citations(
        self, ctx: Context[Any, Any], output: Output, prompt: Text = None, context: Chunks = None,
        question: Question = None, messages: Messages = None,
        count_from: Annotated[int, Field(ge=0, description="The number of the first document.")] = 1,
    ) -> CheckedCitations:  # fmt: skip
        """Check the citations in an answer, such as [1], against the documents that it rests on."""
        given = _given(prompt, context, question, messages)

        def work(report: Report) -> Any:
            known = self._explainer.check(output, **given)
            model = self._explainer.loaded()
            return _audited(audit(**known, surrogate=model, progress=report, count_from=count_from))

        return cast(CheckedCitations, await self._run(ctx, work))

    async def explain_step(
        self, ctx: Context[Any, Any],
        file: Annotated[str, Field(description="The file of the run, in the folder of traces.")],
        step: Annotated[int, Field(ge=1, description="The number of the step, counted from 1.")],
        features: Granularity = "sentence", preset: Preset = "instant", top: Top = 5,
    ) -> StepRanking:  # fmt: skip
        """Rank what a model was given in a step of a recorded run by how much its output needs it."""

        def work(report: Report) -> Any:
            found = self._explainer.step(file, step)
            chat = {"messages": found.prompt(), "output": found.output}
            e = self._explained(features, preset, report, **chat)
            return {"output": shorten(found.output, LONGEST), **brief(e, top)}

        return cast(StepRanking, await self._run(ctx, work))

    def _explained(self, features: str, preset: str, report: Report, **given: Any) -> Explanation:
        known = self._explainer.check(features=features, **given)
        how: dict[str, Any] = {"features": features, "preset": preset, "progress": report}
        e: Explanation = explain(**known, surrogate=self._explainer.loaded(), **how)
        return e

    async def _run(self, ctx: Context[Any, Any], work: Callable[[Report], Any]) -> Any:
        async with self._one_at_a_time:
            try:
                return await anyio.to_thread.run_sync(_surviving, work, _reporter(ctx))
            except (RopeLimeError, MemoryError) as error:
                raise ToolError(worded(error)) from None


def create_server(explainer: Explainer) -> MCPServer[Any]:
    """The server with its tools; ``server.run()`` serves standard input and output."""
    server: MCPServer[Any] = MCPServer(
        "ropelime", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    tools = Tools(explainer)
    offered: dict[str, Callable[..., Any]] = {
        "Explain an answer": tools.explain,
        "Cite the sources of an answer": tools.cite,
        "Check the citations of an answer": tools.check_citations,
    }
    if explainer.traces is not None:
        offered["Explain a step of a recorded run"] = tools.explain_step
    for title, function in offered.items():
        notes = ToolAnnotations(title=title, read_only_hint=True, open_world_hint=False)
        server.add_tool(function, title=title, annotations=notes)
    return server


def _surviving(work: Callable[[Report], Any], report: Report) -> Any:
    """Do some work; the panic of a library in Rust, which is not an Exception, fails it alone."""
    try:
        return work(report)
    except BaseException as error:
        if not is_panic(error):
            raise
        raise ModelError(f"The surrogate has failed: {worded(error)}") from None


def _given(*prompt: Any) -> dict[str, Any]:
    return dict(zip(("prompt", "context", "question", "messages"), prompt, strict=True))


def _trust(e: Explanation) -> dict[str, Any]:
    known = brief(e, 0)
    return {name: known[name] for name in ("trust", "trust_says", "warnings")}


def _audited(result: Any) -> dict[str, Any]:
    """An audit as the assistant needs it."""
    marks = [
        {
            "label": mark.label,
            "verdict": mark.verdict,
            "why": mark.why,
            "cites": mark.name,
            "statement": shorten(mark.statement.text, LONGEST),
            "better": None if mark.better is None else mark.better.name,
        }
        for mark in result.marks
    ]
    uncited = [shorten(each.text, LONGEST) for each in result.uncited]
    rest = {"marks": marks, "uncited": uncited, **_trust(result.explanation)}
    return {"ok": result.ok, "counts": result.counts, **rest}


def _reporter(ctx: Context[Any, Any]) -> Report:
    """Progress that only grows, though each round of masks counts anew; it ends a cancelled call."""
    before = last = 0
    shown = 0.0

    def report(done: int, total: int) -> None:
        nonlocal before, last, shown
        anyio.from_thread.check_cancelled()
        if done < last:
            before += last
        last = done
        now = time.monotonic()
        if now - shown >= _PAUSE or done >= total:
            shown = now
            anyio.from_thread.run(ctx.report_progress, before + done, before + total)

    return report
