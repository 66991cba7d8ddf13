"""The JSON API: jobs, the history and its explanations."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from ropelime import example
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.explain import Explanation
from ropelime.options import Options
from ropelime.views import html
from ropelime.web.events import Events
from ropelime.web.jobs import Job
from ropelime.web.limits import Refused
from ropelime.web.schema import (
    Config,
    ExplainRequest,
    FeatureView,
    HistoryPage,
    JobView,
    LimitsView,
    Name,
    OptionView,
    Problem,
    SpanView,
    Summary,
    View,
)
from ropelime.web.service import Service

_TEXTS = {
    400: "Unknown host name, or a body that cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another server.",
    404: "Not found.",
    413: "The request is too large.",
    415: "The request is not JSON, or does not say that it is.",
    422: "A field is wrong or exceeds a limit; `errors` says which and why.",
    429: "The server is busy; try again later.",
}


def _problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": Problem, "description": _TEXTS[code]} for code in (400, 401, *codes)}


def service(request: Request) -> Service:
    """The service of the application, for the routes."""
    found: Service = request.app.state.service
    return found


Here = Annotated[Service, Depends(service)]
At = Annotated[int, Query(ge=0, lt=2**53)]
# The guard checks the token before any route runs; this only documents it.
_BEARER = HTTPBearer(auto_error=False, description="The token, where the server requires one.")
router = APIRouter(prefix="/api", dependencies=[Depends(_BEARER)])


@router.get("/config", tags=["server"], responses=_problems(), operation_id="config")
def config(here: Here) -> Config:
    """What the server offers: surrogates, options, limits, and an example to start with."""
    settings = here.settings
    return Config(
        version=__version__,
        surrogates=list(settings.surrogates),
        options=[OptionView.of(option) for option in fields(Options)],
        limits=LimitsView(**asdict(settings.limits)),
        example=ExplainRequest(
            context=list(example.CONTEXT), question=example.QUESTION, output=example.ANSWER
        ),
    )


@router.post(
    "/jobs",
    tags=["jobs"],
    status_code=202,
    responses=_problems(403, 413, 415, 422, 429),
    operation_id="explain",
)
def submit(request: ExplainRequest, here: Here, response: Response) -> JobView:
    """Request an explanation; it is made when its turn comes.

    Poll the job, or keep its stream of events open: a job that nobody polls is cancelled.
    """
    job = here.submit(request)
    response.headers["location"] = f"/api/jobs/{job.id}"
    return _job(here, job)


@router.get("/jobs/{name}", tags=["jobs"], responses=_problems(404, 422), operation_id="job")
def job(name: Name, here: Here) -> JobView:
    """The state of a job."""
    return _job(here, _known(here, name))


@router.delete(
    "/jobs/{name}", tags=["jobs"], responses=_problems(403, 404, 413, 415, 422), operation_id="cancel"
)
def cancel(name: Name, here: Here) -> JobView:
    """Cancel a job; one that is over stays as it is."""
    found = _known(here, name)
    here.jobs.cancel(found)
    return _job(here, found)


@router.get(
    "/jobs/{name}/events",
    tags=["jobs"],
    operation_id="events",
    response_class=Response,
    responses={
        **_problems(404, 422, 429),
        200: {
            "description": "Server-sent events, each with a job as its data, until the job is over. "
            "Closing the stream cancels the job.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def events(name: Name, here: Here) -> Response:
    """Follow a job; closing the stream before the job is over cancels it."""
    found = _known(here, name)
    return Events(here.jobs, found, lambda: _job(here, found).model_dump_json())


@router.get("/explanations", tags=["history"], responses=_problems(422), operation_id="history")
def history(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
) -> HistoryPage:
    """The explanations, the newest first."""
    rows = here.history.page(limit + 1, before)
    return HistoryPage(
        items=[Summary(**row) for _, row in rows[:limit]],
        next=rows[limit - 1][0] if len(rows) > limit else None,
    )


@router.get(
    "/explanations/{name}", tags=["history"], responses=_problems(404, 422), operation_id="explanation"
)
def explanation(name: Name, here: Here) -> View:
    """One explanation, with what the page draws."""
    entry = here.history.entry(name)
    kept = here.history.explanation(name)
    if entry is None or kept is None:
        raise _missing("explanation")
    summary, sent = entry
    return View(summary=Summary(**summary), request=ExplainRequest(**sent), view=html.payload(kept))


@router.delete(
    "/explanations/{name}",
    tags=["history"],
    status_code=204,
    response_model=None,
    responses=_problems(403, 404, 413, 415, 422),
    operation_id="forget",
)
def forget(name: Name, here: Here) -> None:
    """Delete one explanation for good."""
    if not here.history.remove(name):
        raise _missing("explanation")


@router.get(
    "/explanations/{name}/span", tags=["history"], responses=_problems(404, 422), operation_id="span"
)
def span(name: Name, start: At, end: At, here: Here) -> SpanView:
    """The explanation of one span of the answer, in characters; nothing is scored again."""
    found = _cut(_kept(here, name), start, end)
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
            )
            for ranked in found.top()
        ],
        warnings=list(found.diagnostics.warnings),
    )


@router.get(
    "/explanations/{name}/explanation.json",
    tags=["history"],
    operation_id="json",
    response_class=Response,
    responses={
        **_problems(404, 422),
        200: {
            "description": "The explanation as `ropelime.load` reads it.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
    },
)
def download_json(name: Name, here: Here) -> Response:
    """Download an explanation as JSON."""
    text = _kept(here, name).to_json()
    return Response(text, media_type="application/json", headers=_attachment(name, "json"))


@router.get(
    "/explanations/{name}/report.html",
    tags=["history"],
    operation_id="report",
    response_class=Response,
    responses={
        **_problems(404, 422),
        200: {
            "description": "A self-contained page.",
            "content": {"text/html": {"schema": {"type": "string"}}},
        },
    },
)
def download_html(name: Name, here: Here) -> Response:
    """Download an explanation as one self-contained HTML file."""
    return HTMLResponse(html.report(_kept(here, name)), headers=_attachment(name, "html"))


def _job(here: Service, job: Job) -> JobView:
    return JobView(
        id=job.id,
        state=job.state,
        stage=job.stage,
        ahead=here.jobs.ahead(job),
        done=job.done,
        total=job.total,
        seconds=round(job.seconds, 1),
        error=job.error,
        field=job.field,
    )


def _known(here: Service, name: str) -> Job:
    found = here.jobs.find(name)
    if found is None:
        raise _missing("job")
    return found


def _kept(here: Service, name: str) -> Explanation:
    found = here.history.explanation(name)
    if found is None:
        raise _missing("explanation")
    return found


def _cut(explanation: Explanation, start: int, end: int) -> Explanation:
    try:
        return explanation.for_output(start, end)
    except InputError as error:
        raise Refused("start", str(error)) from None


def _missing(what: str) -> HTTPException:
    return HTTPException(404, f"There is no {what} of that name.")


def _attachment(name: str, ending: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="ropelime-{name[:8]}.{ending}"'}
