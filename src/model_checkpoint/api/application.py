"""Application: gate, routers and pages put together; every error as the one document of refusals.

The OpenAPI document at ``/api/openapi.json`` is made from the answers and parameters that are really used.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from model_checkpoint.api.answers.basics import Problem
from model_checkpoint.api.errors import ApiRefusal
from model_checkpoint.api.gate.admission import Admission
from model_checkpoint.api.gate.gatekeeper import Gatekeeper
from model_checkpoint.api.jobs.job_runner import JobRunner
from model_checkpoint.api.jobs.plan_store import PlanDrawer
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.api.live.changes import Change, ChangeLog, ShelfWatch
from model_checkpoint.api.live.event_stream import EventHub
from model_checkpoint.api.pages.joined_pages import join_pages
from model_checkpoint.api.pages.page_files import read_pages
from model_checkpoint.api.pages.page_server import PageServer
from model_checkpoint.api.routes import (
    checkpoint_routes,
    event_routes,
    integrity_routes,
    retention_routes,
    run_routes,
    server_routes,
)
from model_checkpoint.api.routes.route_services import RouteServices
from model_checkpoint.api.warm_up import look_ahead
from model_checkpoint.database.errors import DatabaseUnreachable, RowRefused, SchemaOutdated, SchemaTooNew
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    ExpressionInvalid,
    OptionInvalid,
    PlanOutdated,
    WrongReference,
)
from model_checkpoint.hooks import HookVetoed
from model_checkpoint.plan.errors import QueryInvalid

log = logging.getLogger("model_checkpoint.api")

ROUTERS = (
    server_routes.router,
    run_routes.router,
    checkpoint_routes.router,
    retention_routes.router,
    integrity_routes.router,
    event_routes.router,
)
_STATUSES: Sequence[tuple[tuple[type[Exception], ...], int]] = (
    ((OptionInvalid, QueryInvalid, ExpressionInvalid, RowRefused), 400),
    ((HookVetoed,), 403),
    ((CheckpointNotFound, WrongReference), 404),
    ((PlanOutdated, SchemaTooNew, SchemaOutdated), 409),
    ((DatabaseUnreachable,), 503),
)


def make_services(library: Library) -> RouteServices:
    """What the routes work with, on one library."""
    changes = ChangeLog(ShelfWatch(library).look)
    jobs = JobRunner(lambda id: changes.add(Change("job", id)))
    return RouteServices(library=library, jobs=jobs, plans=PlanDrawer(library), changes=changes, hub=EventHub(changes))


def make_app(library: Library, admission: Admission) -> Gatekeeper:
    """The whole server as one ASGI application, behind its gate; it closes the library when it ends.

    Example:
        >>> library = Library(["memory://doc-app"])
        >>> app = make_app(library, Admission(hosts=frozenset({"127.0.0.1"}), token="secret"))
        >>> type(app).__name__
        'Gatekeeper'
        >>> library.close()
    """
    return Gatekeeper(make_open_app(library), admission)


def make_open_app(library: Library) -> FastAPI:
    """The routers and pages without the gate: for tests, and for the OpenAPI document; never to be served."""
    services, pages = make_services(library), PageServer(lambda: join_pages(read_pages()))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        look_ahead(app.routes, library, pages.read)
        yield
        services.close()

    app = FastAPI(
        title="model_checkpoint",
        version=_version(),
        description="Runs, checkpoints, metrics and what became of them. See `docs/api.md`.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its pages would be loaded from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.services = services
    for router in ROUTERS:
        app.include_router(router)
    _answer_failures(app)
    app.router.default = pages  # as it is, without what a route of data needs
    return app


def _version() -> str:
    try:
        return version("model-checkpoint")
    except PackageNotFoundError:  # run from its sources
        return "0"


def _answer_failures(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(one) for one in first["loc"])
        return _refused(422, "ParameterInvalid", f"{where}: {first['msg']}.")

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> JSONResponse:
        words = {404: ("NotFoundHere", "there is nothing at this address."), 405: ("MethodNotAllowed", "not answered.")}
        code, text = words.get(error.status_code, ("Refused", str(error.detail)))
        return _refused(error.status_code, code, text, headers=dict(error.headers or {}))

    @app.exception_handler(Exception)
    def _failed(request: Request, error: Exception) -> JSONResponse:
        return _refused(500, "ServerFailed", "the server failed; its log says why.")  # the gate logs it

    @app.exception_handler(CheckpointException)
    def _typed(request: Request, error: CheckpointException) -> JSONResponse:
        status = status_of(error)
        if status >= 500:
            log.error("%s %s: %s", request.method, request.url.path, error)
        if isinstance(error, QueryInvalid):
            place: dict[str, Any] = {"at": error.at, "length": error.length, "suggestion": error.suggestion}
            return _refused(status, "QueryInvalid", error.message, **place)
        return _refused(status, type(error).__name__, error.message)


def status_of(error: CheckpointException) -> int:
    """The HTTP status that says the same as an error.

    Example:
        >>> status_of(OptionInvalid("no")), status_of(CheckpointNotFound("nothing"))
        (400, 404)
    """
    if isinstance(error, ApiRefusal):
        return error.status
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 409)


def _refused(status: int, code: str, text: str, *, headers: dict[str, str] | None = None, **place: Any) -> JSONResponse:
    return JSONResponse(Problem(error=text, code=code, **place).model_dump(), status, headers=headers)
