"""The JSON API: jobs, the history and its explanations, and runs of agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ropelime import example
from ropelime._version import __version__
from ropelime.options import Options
from ropelime.text.prompt import naming_field
from ropelime.views import html
from ropelime.views.timeline import timeline, timeline_page
from ropelime.web.events import Events
from ropelime.web.history import HistoryRow
from ropelime.web.jobs import Job
from ropelime.web.schema import (
    Config,
    ExplainRequest,
    FeatureView,
    HistoryPage,
    JobView,
    Name,
    OptionView,
    Problem,
    RunsPage,
    RunSummary,
    RunView,
    S,
    Sent,
    SentenceView,
    SpanView,
    StepRequest,
    Summary,
    VerdictView,
    View,
    parsed,
    summary_of,
)
from ropelime.web.service import Service
from ropelime.web.settings import Limits

_TEXTS = {
    400: "Unknown host name, or a body that cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another server.",
    404: "Not found.",
    408: "The body of the request did not arrive in time.",
    413: "The request is too large.",
    415: "The request is not JSON, or does not say that it is.",
    422: "A field is wrong or exceeds a limit; `errors` says which and why.",
    429: "The server is busy; try again later.",
}
_STREAM = (
    "Server-sent events, each with a job as its data, until the job is over. Closing the stream "
    "cancels the job."
)
T = TypeVar("T")


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Problem, "description": _TEXTS[code]} for code in (400, 401, *codes)}


def _text(media_type: str, description: str, *codes: int) -> dict[str, Any]:
    """Arguments of a route that sends a text of this type, or a problem."""
    sent = {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}
    return {"response_class": Response, "responses": {**_problems(*codes), 200: sent}}


async def _service(request: Request) -> Service:  # what is not a coroutine is run in a thread
    return cast(Service, request.app.state.service)


Here = Annotated[Service, Depends(_service)]
Limit = Annotated[int, Query(ge=1, le=200)]
Before = Annotated[int | None, Query(ge=0, lt=2**53)]
Stream = Annotated[
    bool,
    Query(
        description="Rank each sentence of the answer at once, by one more pass of the first model: "
        "the job has them before it is done. Models behind a server and functions rank none."
    ),
]
At = Annotated[int, Query(ge=0, lt=2**53)]
# The guard checks the token before any route runs; this only documents it.
_BEARER = HTTPBearer(auto_error=False, description="The token, where the server requires one.")
router = APIRouter(
    prefix="/api",
    dependencies=[Depends(_BEARER)],
    generate_unique_id_function=lambda route: route.name,  # operations are called as their functions
)
_jobs = APIRouter(prefix="/jobs", tags=["jobs"])
_runs = APIRouter(prefix="/runs", tags=["runs"])
_history = APIRouter(prefix="/explanations", tags=["history"])


@router.get("/config", tags=["server"], response_model=Config, responses=_problems())
async def config(here: Here) -> Response:
    """What the server offers: surrogates, options, limits, and an example to start with."""
    text = _config(tuple(here.settings.surrogates), here.settings.limits)
    return Response(text, media_type="application/json")


@cache
def _config(surrogates: tuple[str, ...], limits: Limits) -> str:
    found = Config(
        version=__version__,
        surrogates=list(surrogates),
        options=[OptionView.of(option) for option in fields(Options)],
        limits=limits,
        example=ExplainRequest(
            context=list(example.CONTEXT), question=example.QUESTION, output=example.ANSWER
        ),
    )
    return found.model_dump_json()


M = TypeVar("M", bound=BaseModel)


def _body(model: type[M], *, queued: bool = True, empty: bytes = b"") -> Callable[..., Awaitable[M]]:
    """A dependency that reads the body of a request: for a job, if it is ``queued``.

    Args:
        model: What it holds.
        queued: Whether there must be room in the queue.
        empty: What an empty one stands for.
    """

    async def requested(request: Request, here: Here) -> M:
        body = await request.body()
        async with here.parsing:  # a few at a time: what a body becomes takes many times its size
            if queued:
                here.jobs.make_room()  # before the effort
            return await run_in_threadpool(parsed, body or empty, model)

    return requested


def _takes(model: type[BaseModel]) -> dict[str, Any]:
    """The documentation of a body that a dependency reads."""
    schema = model.model_json_schema()
    if "$defs" in schema:  # it is among the components, as responses hold one
        schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@_jobs.post(
    "",
    status_code=202,
    responses=_problems(403, 408, 413, 415, 422, 429),
    openapi_extra=_takes(ExplainRequest),
)
def explain(
    request: Annotated[ExplainRequest, Depends(_body(ExplainRequest))],
    here: Here,
    response: Response,
    stream: Stream = False,
) -> JobView:
    """Request an explanation; it is made when its turn comes.

    Poll the job, or keep its stream of events open: a job that nobody polls is cancelled.
    """
    job = here.submit(request, stream=stream)
    response.headers["location"] = f"/api/jobs/{job.id}"
    return _view(here, job)


@_jobs.get("/{name}", responses=_problems(404, 422))
async def job(name: Name, here: Here) -> JobView:
    """The state of a job."""
    return _view(here, _found("job", here.jobs.find(name)))


@_jobs.delete("/{name}", responses=_problems(403, 404, 413, 415, 422))
async def cancel(name: Name, here: Here) -> JobView:
    """Cancel a job; one that is over stays as it is."""
    job = _found("job", here.jobs.find(name))
    here.jobs.cancel(job)
    return _view(here, job)


@_jobs.get("/{name}/events", **_text("text/event-stream", _STREAM, 404, 422, 429))
async def events(name: Name, here: Here) -> Response:
    """Follow a job; closing the stream before the job is over cancels it."""
    job = _found("job", here.jobs.find(name))
    return Events(here.jobs, job, lambda: _view(here, job).model_dump_json())


@_history.get("", responses=_problems(422))
def history(
    here: Here,
    limit: Limit = 50,
    before: Before = None,
    words: Annotated[str, Query(max_length=200, description="What to search for.")] = "",
) -> HistoryPage:
    """The explanations, the newest first.

    With ``words``, only those whose prompt, answer or sources have them, as one phrase in any case.
    """
    rows = here.history.page(limit + 1, before, words)
    return HistoryPage(**_page(rows, limit, Summary))


@_history.get("/{name}", responses=_problems(404, 422))
def explanation(name: Name, here: Here) -> View:
    """One explanation, with what the page draws."""
    summary, sent = _found("explanation", here.history.entry(name))
    kept = _found("explanation", here.history.explanation(name))
    return View(
        summary=Summary(**summary),
        verdicts=[VerdictView(**asdict(verdict)) for verdict in kept.verdicts],
        grounding=[SentenceView.of(sentence) for sentence in kept.grounding],
        request=ExplainRequest(**sent),
        view=html.payload(kept),
    )


@_history.delete(
    "/{name}", status_code=204, response_model=None, responses=_problems(403, 404, 413, 415, 422)
)
def forget(name: Name, here: Here) -> None:
    """Delete one explanation for good."""
    _found("explanation", here.history.remove(name))


@_history.get("/{name}/span", responses=_problems(404, 422))
def span(name: Name, start: At, end: At, here: Here) -> SpanView:
    """The explanation of one span of the answer, in characters; nothing is scored again."""
    kept = _found("explanation", here.history.explanation(name))
    with naming_field("start"):
        found = kept.for_output(start, end)
    return SpanView(
        start=start,
        end=end,
        text=found.output[start:end],
        ranking=[
            FeatureView(
                index=ranked.index,
                text=ranked.text,
                start=found.features[ranked.index].start,
                end=found.features[ranked.index].end,
                normalized_weight=ranked.normalized_weight,
                weight=ranked.weight,
                signals={name: float(own[ranked.index]) for name, own in found.signals.items()},
            )
            for ranked in found.top()
        ],
        warnings=list(found.diagnostics.warnings),
    )


@_history.get(
    "/{name}/explanation.json",
    response_model=dict[str, Any],
    response_description="The explanation as `ropelime.load` reads it.",
    responses=_problems(404, 422),
)
def json(name: Name, here: Here) -> Response:
    """Download an explanation as JSON."""
    text = _found("explanation", here.history.explanation(name)).to_json()
    return Response(text, media_type="application/json", headers=_attachment(name, "json"))


@_history.get("/{name}/report.html", **_text("text/html", "A self-contained page.", 404, 422))
def report(name: Name, here: Here) -> Response:
    """Download an explanation as one self-contained HTML file."""
    page = html.report(_found("explanation", here.history.explanation(name)))
    return HTMLResponse(page, headers=_attachment(name, "html"))


@_runs.post(
    "",
    status_code=201,
    responses=_problems(403, 408, 413, 415, 422),
    openapi_extra=_takes(Sent),
)
def add_run(sent: Annotated[Sent, Depends(_body(Sent, queued=False))], here: Here) -> RunView:
    """Store a run of an agent, as another tool has written it to a file; nothing is explained yet."""
    return _run_view(here, here.store_run(sent.name, sent.text))


@_runs.get("", responses=_problems(422))
def runs(here: Here, limit: Limit = 50, before: Before = None) -> RunsPage:
    """The runs, the newest first."""
    return RunsPage(**_page(here.history.page(limit + 1, before, of="runs"), limit, RunSummary))


@_runs.get("/{name}", responses=_problems(404, 422))
def run(name: Name, here: Here) -> RunView:
    """One run: its steps, and who decided on the actions of those that were explained."""
    return _run_view(here, name)


@_runs.post(
    "/{name}/steps/{step}",
    status_code=202,
    responses=_problems(403, 404, 408, 413, 415, 422, 429),
    openapi_extra=_takes(StepRequest),
)
def explain_step(
    name: Name,
    step: Annotated[int, Path(ge=1, lt=2**53, description="Its number, counted from 1.")],
    request: Annotated[StepRequest, Depends(_body(StepRequest, empty=b"{}"))],
    here: Here,
    response: Response,
) -> JobView:
    """Request the explanation of a step of a model; a job as for any other explanation."""
    job = here.submit_step(name, step, request)
    response.headers["location"] = f"/api/jobs/{job.id}"
    return _view(here, job)


@_runs.get("/{name}/run.html", **_text("text/html", "A self-contained page.", 404, 422))
def run_report(name: Name, here: Here) -> Response:
    """Download the timeline of a run as one self-contained HTML file."""
    trace = here.trace(name)
    page = timeline_page(trace, here.explained(name, trace))
    return HTMLResponse(page, headers=_attachment(name, "html"))


@_runs.delete(
    "/{name}", status_code=204, response_model=None, responses=_problems(403, 404, 413, 415, 422)
)
def forget_run(name: Name, here: Here) -> None:
    """Delete a run and the explanations of its steps for good."""
    _found("run", here.history.remove_run(name))


router.include_router(_jobs)
router.include_router(_runs)
router.include_router(_history)


def _page(rows: list[HistoryRow], limit: int, kind: type[S]) -> dict[str, Any]:
    """A page of a list, from one entry more than it holds."""
    read = {row.id: summary_of(row.summary, row.id, kind) for row in rows[:limit]}
    return {
        "items": [summary for summary in read.values() if summary is not None],
        "damaged": [name for name, summary in read.items() if summary is None],
        "next": rows[limit - 1].number if len(rows) > limit else None,
    }


def _run_view(here: Service, name: str) -> RunView:
    summary, _ = _found("run", here.history.run(name))
    trace = here.trace(name)
    view = timeline(trace, here.explained(name, trace))
    return RunView(summary=RunSummary(**summary), explained=here.history.steps(name), view=view)


def _view(here: Service, job: Job) -> JobView:
    shown = {name: getattr(job, name) for name in JobView.model_fields if name != "ahead"}
    return JobView(**shown, ahead=here.jobs.ahead(job))


def _found(what: str, found: T | None) -> T:
    if not found:
        raise HTTPException(404, f"There is no {what} of that name.")
    return found


def _attachment(name: str, ending: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="ropelime-{name[:8]}.{ending}"'}
