"""Event routes: what changes, as it does; lineage; that the server is there."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from model_checkpoint.api.answers.basics import refusals
from model_checkpoint.api.answers.history_answers import LineageAnswer
from model_checkpoint.api.reading.lineage_nodes import list_lineage
from model_checkpoint.api.routes.limits import MOST_RUNS, words_of
from model_checkpoint.api.routes.route_services import WithServices

router = APIRouter(prefix="/api", tags=["events"])
_MESSAGE = {
    "type": "object",
    "description": "One message of the stream.",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "retry": {"type": "integer"},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "description": '`{"changes": [{"type", "id", "since"}, ...]}`',
        },
    },
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": _MESSAGE}},
        "description": 'Messages with `data: {"changes": [{"type", "id", "since"}, ...]}`, at most four a second.',
    }
}


@router.get("/events", response_class=Response, responses={**refusals(), **_STREAM})
async def get_events(
    services: WithServices,
    last_event_id: Annotated[str, Header(max_length=64)] = "",
    after: Annotated[str, Query(max_length=64, description="The same as the header Last-Event-ID.")] = "",
    seconds: Annotated[float | None, Query(ge=0, le=86_400, allow_inf_nan=False, description="When to end.")] = None,
) -> StreamingResponse:
    """What changes, as it does: new points, checkpoints, runs, jobs, damage."""
    services.hub.admit()
    start = services.hub.start_after(last_event_id or after)
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(services.hub.stream(start, seconds), media_type="text/event-stream", headers=headers)


@router.get("/lineage", response_model=LineageAnswer, responses=refusals())
def get_lineage(
    services: WithServices,
    experiment: Annotated[str, Query(max_length=250)] = "",
    ids: Annotated[
        str, Query(max_length=16_000, description="These runs and those they went on from alone, with commas between.")
    ] = "",
) -> Any:
    """Where runs came from, and what each changed."""
    chosen = words_of(ids, most=MOST_RUNS, what="ids")
    return {"nodes": list_lineage(services.library, experiment, chosen)}
