"""The ASGI application: the API, the page with its files, and readable errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from ropelime import views
from ropelime._version import __version__
from ropelime.web import api
from ropelime.web.guard import Guard
from ropelime.web.jobs import Busy
from ropelime.web.schema import FieldProblem, Problem
from ropelime.web.service import Refused, Service
from ropelime.web.settings import ServerSettings

_OURS = Path(__file__).parent / "static"
_VIEWS = Path(views.__file__).parent / "static"  # the component of the HTML report
_FILES = {
    "/": _OURS / "index.html",
    "/api.html": _OURS / "api.html",
    "/static/app.css": _OURS / "app.css",
    "/static/app.js": _OURS / "app.js",
    "/static/api.js": _OURS / "api.js",
    "/static/report.css": _VIEWS / "report.css",
    "/static/report.js": _VIEWS / "report.js",
    "/static/icon.svg": _OURS / "icon.svg",
}
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_RETRY = "5"  # seconds


def create_app(settings: ServerSettings) -> FastAPI:
    """The whole server as an ASGI application.

    Args:
        settings: Its settings.
    """
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
    )
    app.state.service = here
    app.include_router(api.router)
    for path, file in _FILES.items():
        app.add_api_route(path, _serve(file), include_in_schema=False, methods=["GET"])
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _known)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(Exception, _unknown)
    app.add_middleware(Guard, settings=settings)
    return app


def _serve(file: Path) -> Callable[[], Awaitable[FileResponse]]:
    async def send() -> FileResponse:
        return FileResponse(file, media_type=_TYPES[file.suffix])

    return send


def _problem(
    status: int,
    detail: str,
    errors: list[FieldProblem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    # It may quote the request, and a lone surrogate cannot be encoded.
    body = Problem(detail=_clean(detail), errors=errors or []).model_dump()
    return JSONResponse(body, status, headers)


def _clean(text: str) -> str:
    return text[:2000].encode("utf-8", "replace").decode()


def _invalid(_: Request, error: Exception) -> Response:
    """Say which fields are wrong, without their values."""
    assert isinstance(error, RequestValidationError)
    found = [
        FieldProblem(
            field=_clean(".".join(str(part) for part in problem["loc"][1:])), message=_words(problem)
        )
        for problem in error.errors()[:20]
    ]
    lines = [f"{p.field}: {p.message}" if p.field else p.message for p in found]
    return _problem(422, "; ".join(lines), found)


def _words(problem: dict[str, object]) -> str:
    if problem["type"] == "missing":
        return "It is missing."
    if problem["type"] == "json_invalid":
        return "The body is not JSON."
    return _clean(str(problem["msg"])) + "."


def _known(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, str(error.detail), headers=error.headers)


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    message = _clean(str(error))
    return _problem(422, message, [FieldProblem(field=error.field or "", message=message)])


def _busy(_: Request, error: Exception) -> Response:
    return _problem(429, str(error), headers={"retry-after": _RETRY})


def _unknown(_: Request, error: Exception) -> Response:
    """Any other error is only in the log: its text may hold paths and prompts."""
    return _problem(500, "Internal error; the server's log has the details.")
