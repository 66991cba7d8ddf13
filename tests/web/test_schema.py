"""The API against its description: schemathesis sends what the schema allows and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from schemathesis import Case, checks
from starlette.types import ASGIApp, Receive, Scope, Send

from ropelime.web.api import router
from ropelime.web.app import create_app
from ropelime.web.schema import ExplainRequest
from ropelime.web.service import Service
from web_server import DOCUMENTS, settings, until

pytestmark = pytest.mark.slow
HEADERS = {"host": "localhost"}
CHOSEN = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]
EXAMPLES = hypothesis.settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def _described() -> dict[str, Any]:
    """The description of a server that asks for no token."""
    app = FastAPI()
    app.include_router(router)
    found = app.openapi()
    for methods in found["paths"].values():
        for operation in methods.values():
            del operation["security"]
    return found


api = schemathesis.openapi.from_dict(_described())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with narrow limits, so that many a request goes beyond one."""
    folder = tmp_path_factory.mktemp("history")
    app = create_app(settings(folder, waiting=4, features=40, budget=40, patience=5.0))
    service: Service = app.state.service
    app.state.service = service
    APPS[service] = _without_lifespan(app)
    yield service
    service.jobs.close()


APPS: dict[Service, ASGIApp] = {}


def _without_lifespan(app: ASGIApp) -> ASGIApp:
    """The application, which a client may start and stop for each request without ending its jobs."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for name in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{name}.complete"})

    return run


@pytest.fixture(scope="module")
def made(service: Service) -> str:
    """The name of an explanation that is there."""
    job = service.submit(ExplainRequest(**DOCUMENTS))
    until(lambda: job.over)
    assert job.state == "done"
    return job.id


@api.parametrize()
@EXAMPLES
def test_nothing_breaks_it(case: Case[Any], service: Service) -> None:
    answer = case.call(app=APPS[service], headers=HEADERS)
    case.validate_response(answer, checks=CHOSEN)


@api.include(method="GET", path_regex="/explanations/").parametrize()
@EXAMPLES
def test_nothing_breaks_what_is_there(case: Case[Any], service: Service, made: str) -> None:
    case.path_parameters = {"name": made}
    answer = case.call(app=APPS[service], headers=HEADERS)
    case.validate_response(answer, checks=CHOSEN[:4])


def test_the_description_is_what_is_served(service: Service) -> None:
    served = create_app(service.settings).openapi()["paths"]
    operations = [served[path].pop(method) for path in served for method in list(served[path])]
    assert len(operations) == 17
    assert all(operation.pop("security") == [{"HTTPBearer": []}] for operation in operations)
    assert operations == [op for methods in api.raw_schema["paths"].values() for op in methods.values()]
