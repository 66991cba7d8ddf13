"""The ASGI application: the API, the page with its files, and readable errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

from ropelime import views
from ropelime._version import __version__
from ropelime.errors import InputError
from ropelime.views.timeline import STYLES
from ropelime.web import api
from ropelime.web.guard import Guard
from ropelime.web.jobs import Busy
from ropelime.web.schema import FieldProblem, Problem
from ropelime.web.service import Service
from ropelime.web.settings import ServerSettings

_OURS = Path(__file__).parent / "static"
_VIEWS = Path(views.__file__).parent / "static"  # the component of the HTML report
_FILES = {
    "/": _OURS / "index.html",
    "/api.html": _OURS / "api.html",
    **{f"/static/{name}": _OURS / name for name in ("app.css", "app.js", "api.js", "icon.svg")},
    **{f"/static/{name}": _VIEWS / name for name in ("report.js", "timeline.js", *STYLES)},
}
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_WORDS = {"missing": "It is missing.", "json_invalid": "The body is not JSON."}


def create_app(settings: ServerSettings) -> FastAPI:
    """The whole server as an ASGI application."""
    here = Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        here.jobs.close()

    app = FastAPI(
        title="RoPE-LIME",
        version=__version__,
        description="Which part of my prompt made the model say that?",
        docs_url=None,  # it loads scripts from a CDN; /api.html replaces it
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers={
            RequestValidationError: _invalid,
            HTTPException: _known,
            InputError: _refused,
            Busy: _busy,
            Exception: _unknown,
        },
    )
    app.state.service = here
    app.include_router(api.router)
    for path, file in _FILES.items():
        app.add_route(path, _serve(file))
    app.add_middleware(Guard, settings=settings)
    return app


def _serve(file: Path) -> Callable[[Request], Response]:
    return lambda _: FileResponse(file, media_type=_TYPES[file.suffix])


async def _invalid(_: Request, error: RequestValidationError) -> Response:
    """Say which fields are wrong, without their values."""
    errors = [
        FieldProblem(
            field=".".join(str(part) for part in problem["loc"][1:]),
            message=_WORDS.get(problem["type"], f"{problem['msg']}."),
        )
        for problem in error.errors()[:20]
    ]
    lines = [f"{p.field}: {p.message}" if p.field else p.message for p in errors]
    return Problem(detail="; ".join(lines), errors=errors).response(422)


async def _known(_: Request, error: HTTPException) -> Response:
    return Problem(detail=str(error.detail)).response(error.status_code, error.headers)


async def _refused(_: Request, error: InputError) -> Response:
    if error.field is None:  # it is not about the request
        raise error
    field = FieldProblem(field=error.field, message=str(error))
    return Problem(detail=str(error), errors=[field]).response(422)


async def _busy(_: Request, error: Busy) -> Response:
    return Problem(detail=str(error)).response(429, {"retry-after": "5"})  # seconds


async def _unknown(_: Request, error: Exception) -> Response:
    """Any other error is only in the log: its text may hold paths and prompts."""
    return Problem(detail="Internal error; the server's log has the details.").response(500)
