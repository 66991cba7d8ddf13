"""What the API takes and gives, as it is documented in ``/openapi.json``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import reduce
from itertools import islice
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from typing_extensions import NotRequired, TypedDict

from ropelime.options import Options
from ropelime.results.grounding import GroundedSentence
from ropelime.web.jobs import State
from ropelime.web.settings import Limits

Name = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="Name of a job or explanation.")]
Kind = Literal["choice", "text", "number", "switch"]
T = TypeVar("T")
_FEW = 5  # unknown fields that are named
_DEEPEST = 32  # levels of lists and mappings in a message
_MOST = 2**53  # numbers from here on lose digits in a browser


class _FailFast:
    """As pydantic's FailFast, which some releases cannot put into a union."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return {**handler(source), "fail_fast": True}


Items = Annotated[list[T], _FailFast()]  # the first wrong item is enough: a body may hold a million


def _clean(text: str) -> str:
    """A message that can be sent: it may quote the request, and a lone surrogate cannot be encoded."""
    return text[:2000].encode("utf-8", "replace").decode()


_Message = Annotated[str, BeforeValidator(_clean)]


class FieldProblem(BaseModel):
    """What is wrong with one field of a request."""

    field: _Message = Field(description="The field; numbers after dots count from 0.")
    message: _Message


class Problem(BaseModel):
    """Why a request was refused."""

    detail: _Message = Field(description="What is wrong, and what to do about it.")
    errors: list[FieldProblem] = Field(default=[], description="The same for each wrong field.")

    def response(self, status: int, headers: Mapping[str, str] | None = None) -> JSONResponse:
        """The response that reports it."""
        return JSONResponse(self.model_dump(), status, headers)


def _one_message(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Refuse a value of several possible types with one error, not with one for each type."""
    try:
        return check(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        deepest = max(len(each["loc"]) for each in found)  # of the type that fits best
        best = [each for each in found if len(each["loc"]) == deepest]
        first, *others = dict.fromkeys(
            f"{each['loc'][-1]} is missing" if each["type"] == "missing" else each["msg"]
            for each in best
        )
        message = ", or ".join([first, *(other.removeprefix("Input should be ") for other in others)])
        raise PydanticCustomError("type", "{message}", {"message": message}) from None


_OneMessage = WrapValidator(_one_message)


class Chunk(TypedDict):
    """A retrieved chunk and where it comes from; other keys are ignored."""

    __pydantic_config__ = ConfigDict(strict=True, extra="ignore")  # type: ignore[misc]

    text: str
    source: NotRequired[str | None]
    page: NotRequired[Annotated[int | str | None, _OneMessage]]


class ChatMessage(TypedDict):
    """A message as the Chat Completions API takes it: text, text parts or tool calls."""

    __pydantic_config__ = ConfigDict(strict=True, extra="allow")  # type: ignore[misc]

    role: str
    content: NotRequired[Annotated[str | Items[dict[str, Any]] | None, _OneMessage]]
    refusal: NotRequired[str | None]
    tool_calls: NotRequired[Items[dict[str, Any]] | None]
    function_call: NotRequired[dict[str, Any] | None]


def _plain(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether a value can be stored as JSON: finite numbers, whole characters, not nested deeply."""
    if isinstance(value, (dict, list)):
        held = [*value, *value.values()] if isinstance(value, dict) else value
        return depth > 0 and all(_plain(each, depth - 1) for each in held)
    if isinstance(value, str):
        return not any("\ud800" <= c <= "\udfff" for c in value)
    return not isinstance(value, float) or math.isfinite(value)


def _check_message(message: ChatMessage) -> ChatMessage:
    """A message has a content or tool calls, and nothing in it that cannot be stored."""
    if not _plain(message):
        wrong = "It holds a number that is not finite, half a character, or too many levels"
        raise PydanticCustomError("value", "{wrong}", {"wrong": wrong})
    held = (message.get(key) for key in ("content", "refusal", "tool_calls", "function_call"))
    if all(each is None for each in held):
        missing = InitErrorDetails(type="missing", loc=("content",), input=None)
        raise ValidationError.from_exception_data("ChatMessage", [missing])
    return message


class Given(BaseModel):
    """The prompt, the answer and the surrogate of a request."""

    model_config = ConfigDict(strict=True, extra="forbid")

    prompt: str | None = Field(default=None, description="The prompt as one text.")
    context: Items[Annotated[str | Chunk, _OneMessage]] | None = Field(
        default=None, description="Retrieved chunks; they are explained."
    )
    question: str | None = Field(default=None, description="The question about the chunks.")
    messages: Items[Annotated[ChatMessage, AfterValidator(_check_message)]] | None = Field(
        default=None, description="Chat messages."
    )
    output: str = Field(description="The answer to explain, as the model gave it.")
    surrogate: Annotated[str | Items[str] | None, _OneMessage] = Field(
        default=None,
        description="The model that scores the answer: one of the server's, the first if not given. "
        "The weights of several in a list are averaged.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_few(cls, data: Any) -> Any:
        """Leave out unknown fields but for the first of them, which are refused by their names."""
        if not isinstance(data, dict) or len(data) <= len(cls.model_fields):
            return data
        unknown = set(islice((name for name in data if name not in cls.model_fields), _FEW))
        return {name: data[name] for name in data if name in cls.model_fields or name in unknown}


def _fast(annotation: Any) -> Any:
    """A type whose lists are refused at their first wrong item."""
    inner = get_args(annotation)
    if get_origin(annotation) is list:
        return Items[_fast(inner[0])]  # type: ignore[misc]
    if get_origin(annotation) in (Union, UnionType):
        return reduce(or_, map(_fast, inner))
    return annotation


def _declared() -> dict[str, Any]:
    """A field for each option, as :class:`ropelime.options.Options` declares it."""
    fields: dict[str, Any] = {}
    for option in dataclasses.fields(Options):
        known = option.metadata
        taken = Annotated[int, Field(ge=0, lt=_MOST)] if known["json"] is int else _fast(known["json"])
        about = Field(default=option.default, description=known["help"])
        fields[option.name] = (Annotated[taken, _OneMessage], about)
    return fields


if TYPE_CHECKING:

    class ExplainRequest(Given):
        """What to explain, and how."""

else:
    ExplainRequest = create_model(
        "ExplainRequest",
        __base__=Given,
        __doc__="What to explain, and how: exactly one of ``prompt``, ``context`` and ``messages``, "
        "the answer, and the options of ``ropelime.explain``.",
        **_declared(),
    )


class Sent(BaseModel):
    """A run of an agent to store."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str = Field(max_length=200, description="The name of the file.")
    text: str = Field(description="What it holds: JSON or JSON lines, in a form that is known.")


if TYPE_CHECKING:

    class StepRequest(BaseModel):
        """How to explain a step."""

        surrogate: str | list[str] | None
        preset: str

else:
    _known = _declared()
    _preset = _known["preset"][1].description
    StepRequest = create_model(
        "StepRequest",
        __config__=ConfigDict(strict=True, extra="forbid"),
        __doc__="How to explain a step of a run: the options of ``ropelime.explain``.",
        surrogate=(Given.__annotations__["surrogate"], Given.model_fields["surrogate"]),
        **{
            **_known,
            "preset": (
                _known["preset"][0],
                Field("instant", description=_preset),
            ),
        },
    )
M = TypeVar("M", bound=BaseModel)


def parsed(body: bytes, model: type[M]) -> M:
    """The request in a body; a large one takes a while, so call it in a thread."""
    try:
        data = json.loads(body) if body else None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body",), "msg": ""}]) from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body is nested too deeply, or has too long a number.") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in found]) from None


class TopFeature(BaseModel):
    """The feature with the largest weight."""

    text: str
    normalized_weight: float


class RankedView(BaseModel):
    """A sentence of the answer with its ranking by one pass, before the explanation is made."""

    text: str
    top: list[TopFeature] = Field(description="What it depends on most, the first first.")


class JobView(BaseModel):
    """The state of a job."""

    id: str = Field(description="Also the name of the explanation once the job is done.")
    state: State
    stage: str = Field(description="The current step, in words.")
    ahead: int = Field(description="Jobs ahead of it in the queue.")
    done: int = Field(description="The part of `total` that stands for the time taken so far.")
    total: int = Field(description="Tokens to score in all; 0 while that is not known.")
    seconds: float = Field(description="How long it has been running.")
    error: str | None = Field(description="Why it failed or was cancelled.")
    field: str | None = Field(description="The field of the request that was the reason.")
    sentences: list[RankedView] = Field(
        description="With `stream`, each sentence of the answer as soon as it is ranked."
    )


class Summary(BaseModel):
    """One line of the history."""

    id: str
    created: str = Field(description="When it was made, ISO 8601 in UTC.")
    kind: Literal["prompt", "context", "messages"]
    surrogate: list[str] = Field(description="The models that scored the answer, one or several.")
    features: str = Field(description="The granularity, or spans.")
    count: int = Field(description="How many features there are.")
    preset: str
    scoring: str
    seconds: float = Field(description="How long it took.")
    answer: str = Field(description="The beginning of the answer.")
    prompt: str = Field(description="The question, or the beginning of the prompt.")
    top: TopFeature


S = TypeVar("S", Summary, "RunSummary")


def summary_of(row: Mapping[str, Any] | None, name: str, kind: type[S]) -> S | None:
    """A summary as it was stored under a name; None if it is damaged."""
    try:
        found = kind.model_validate(row)
    except ValidationError:
        return None
    return found if found.id == name else None


class HistoryPage(BaseModel):
    """A page of the history, the newest first."""

    items: list[Summary]
    damaged: list[str] = Field(description="Names of entries that cannot be read, only deleted.")
    next: int | None = Field(description="Pass it as ``before`` for the next page; null on the last.")


class RunSummary(BaseModel):
    """One line of the list of runs."""

    id: str
    created: str = Field(description="When it was stored, ISO 8601 in UTC.")
    name: str = Field(description="The name of the file.")
    form: str = Field(description="What it is, such as ``spans``.")
    steps: int = Field(description="How many steps it has,")
    models: int = Field(description="and how many of them call a model.")


class RunsPage(BaseModel):
    """A page of the runs, the newest first."""

    items: list[RunSummary]
    damaged: list[str] = Field(description="Names of entries that cannot be read, only deleted.")
    next: int | None = Field(description="Pass it as ``before`` for the next page; null on the last.")


class RunView(BaseModel):
    """A run with what the page's component draws."""

    summary: RunSummary
    explained: dict[int, str] = Field(description="The names of the explanations of its steps.")
    view: dict[str, Any] = Field(description="The data of the component, see the HTML download.")


class VerdictView(BaseModel):
    """One question about an explanation, answered."""

    name: str = Field(
        description="rests: does the answer rest on the prompt? cause: is the first part a cause? "
        "understood: does the surrogate follow the answer?"
    )
    probability: float = Field(description="The chance that it is so.")
    text: str = Field(description="The same in a sentence.")


class SourceView(BaseModel):
    """A feature that a sentence of the answer comes from."""

    index: int
    start: int = Field(description="Where it begins in the text of the prompt.")
    end: int
    share: float = Field(description="Its share in this sentence.")
    where: str = Field(description="Its chunk, with source and page, or its message.")


class SentenceView(BaseModel):
    """A sentence of the answer, and whether it comes from the prompt."""

    start: int = Field(description="Where it begins in the answer.")
    end: int
    text: str
    probability: float = Field(description="The chance that it comes from the prompt.")
    sources: list[SourceView] = Field(description="The largest share first; empty if it has none.")

    @classmethod
    def of(cls, sentence: GroundedSentence) -> SentenceView:
        """The sentence with its sources."""
        sources = [
            SourceView(index=s.feature, start=s.span[0], end=s.span[1], share=s.share, where=s.where)
            for s in sentence.sources
        ]
        start, end = sentence.span
        chance = sentence.probability
        return cls(start=start, end=end, text=sentence.text, probability=chance, sources=sources)


class View(BaseModel):
    """An explanation with what the page's component draws."""

    summary: Summary
    verdicts: list[VerdictView] = Field(description="Whether to believe it.")
    grounding: list[SentenceView] = Field(description="The sentences of the answer.")
    request: ExplainRequest = Field(description="What was sent; send it again to make it again.")
    view: dict[str, Any] = Field(description="The data of the component, see the HTML download.")


class FeatureView(BaseModel):
    """One feature with its weight."""

    index: int
    text: str
    start: int = Field(description="Where it begins in the text of the prompt.")
    end: int
    normalized_weight: float = Field(description="At least 0; all of them sum to 1.")
    weight: float = Field(description="Signed; positive supports the answer.")
    signals: dict[str, float] = Field(
        description="What each signal gives it, by name; empty where the weight is fitted."
    )


class SpanView(BaseModel):
    """The explanation of one span of the answer, fitted to the scores of the whole one."""

    start: int
    end: int
    text: str
    ranking: list[FeatureView] = Field(description="The largest weight first.")
    warnings: list[str]


class OptionView(BaseModel):
    """An option of a request."""

    name: str
    help: str
    kind: Kind
    default: str | int | bool | None
    choices: list[str] = Field(description="All values of a choice; suggestions for a text.")

    @classmethod
    def of(cls, option: dataclasses.Field[Any]) -> OptionView:
        """What a form needs to know about a field of :class:`ropelime.options.Options`."""
        known, default = option.metadata, cast(Any, option.default)
        choices = list(known["choices"])
        listed = {value for member in get_args(known["json"]) for value in get_args(member) or [member]}
        closed = listed - {type(None)} == set(choices) != set()
        kinds: dict[Any, Kind] = {bool: "switch", int: "number"}
        kind = kinds.get(known["json"], "choice" if closed else "text")
        return cls(name=option.name, help=known["help"], kind=kind, default=default, choices=choices)


class Config(BaseModel):
    """What the server offers."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    version: str
    surrogates: list[str] = Field(description="The first is the default.")
    options: list[OptionView] = Field(description="Those of `ropelime.explain`.")
    limits: Limits
    example: ExplainRequest
