"""Server routes: the server itself."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from model_checkpoint.api.answers.basics import refusals
from model_checkpoint.api.answers.server_answers import ServerFacts
from model_checkpoint.api.reading.server_facts import describe_server
from model_checkpoint.api.routes.route_services import WithServices

router = APIRouter(prefix="/api", tags=["server"])


@router.get("/meta", response_model=ServerFacts, responses=refusals())
def get_meta(services: WithServices, request: Request) -> Any:
    """What is served here, and what may be done to it."""
    return describe_server(services.library, request.app.version)
