"""What the API takes and gives, as it is documented in ``/openapi.json``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ropelime.web.jobs import State

Granularity = Literal["token", "word", "sentence", "paragraph", "document", "message"]
Name = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="Name of a job or explanation.")]


class FieldProblem(BaseModel):
    """What is wrong with one field of a request."""

    field: str = Field(description="The field; numbers after dots count from 0.")
    message: str


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str = Field(description="What is wrong, and what to do about it.")
    errors: list[FieldProblem] = Field(default=[], description="The same for each field to blame.")


class ChatMessage(BaseModel):
    """One message of a chat; what it has besides is ignored."""

    model_config = ConfigDict(strict=True)

    role: str
    content: str


class ExplainRequest(BaseModel):
    """What to explain: exactly one of ``prompt``, ``context`` and ``messages``, and the answer."""

    model_config = ConfigDict(strict=True, extra="forbid")

    prompt: str | None = Field(default=None, description="The prompt as one text.")
    context: list[str] | None = Field(default=None, description="Documents; they are explained.")
    question: str | None = Field(default=None, description="What was asked about the documents.")
    messages: list[ChatMessage] | None = Field(default=None, description="Chat messages.")
    output: str = Field(description="The answer to explain, as the model gave it.")
    features: Granularity = Field(default="sentence", description="How finely to cut the prompt.")
    model: str | None = Field(default=None, description="One of the server's models.")
    preset: Literal["evidence", "faithful", "paper"] = "evidence"
    scoring: Literal["exact", "cached"] | None = Field(
        default=None, description="How masked prompts are read; as the preset says if not given."
    )
    budget: int | None = Field(default=None, ge=1, description="How many masked prompts to read.")
    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed of the masks.")


class JobView(BaseModel):
    """Where a job stands."""

    id: str = Field(description="Also the name of the explanation once the job is done.")
    state: State
    stage: str = Field(description="What is being done, in words.")
    ahead: int = Field(description="Jobs that come before it.")
    done: int = Field(description="Tokens that were read.")
    total: int = Field(description="Tokens to read in all; 0 while that is not known.")
    seconds: float = Field(description="How long it has been worked on.")
    error: str | None = Field(description="Why it failed or was cancelled.")
    field: str | None = Field(description="The field of the request that was the reason.")


class TopShare(BaseModel):
    """The feature with the largest share."""

    text: str
    score: float


class Summary(BaseModel):
    """One line of the history."""

    id: str
    created: str = Field(description="When it was made, ISO 8601 in UTC.")
    kind: Literal["prompt", "context", "messages"]
    model: str
    features: Granularity
    count: int = Field(description="How many features there are.")
    preset: str
    scoring: str
    seconds: float = Field(description="How long it took.")
    answer: str = Field(description="The beginning of the answer.")
    prompt: str = Field(description="The question, or the beginning of the prompt.")
    top: TopShare


class HistoryPage(BaseModel):
    """A page of the history, the newest first."""

    items: list[Summary]
    next: int | None = Field(description="Pass it as ``before`` for the next page; null on the last.")


class View(BaseModel):
    """An explanation with what the page's component draws."""

    summary: Summary
    request: ExplainRequest = Field(description="What was asked; send it again to make it again.")
    view: dict[str, Any] = Field(description="The data of the component, see the HTML download.")


class ShareView(BaseModel):
    """One feature with its share."""

    index: int
    text: str
    start: int = Field(description="Where it begins in the text of the prompt.")
    end: int
    score: float = Field(description="At least 0; all of them sum to 1.")
    weight: float = Field(description="Signed; positive supports the answer.")


class SpanView(BaseModel):
    """The explanation of one span of the answer, from the readings that are there."""

    start: int
    end: int
    text: str
    shares: list[ShareView] = Field(description="The largest first.")
    warnings: list[str]


class LimitsView(BaseModel):
    """What the server refuses."""

    request_bytes: int
    characters: int
    features: int
    budget: int
    answer_tokens: int
    seconds: int
    waiting: int
    streams: int


class Config(BaseModel):
    """What the server offers."""

    version: str
    models: list[str] = Field(description="The first is the default.")
    features: list[str]
    presets: list[str]
    scoring: list[str]
    limits: LimitsView
    example: ExplainRequest
