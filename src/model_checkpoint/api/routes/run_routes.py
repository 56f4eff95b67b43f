"""Run routes: runs, their series, saves, plans."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from model_checkpoint.api.answers.basics import refusals
from model_checkpoint.api.answers.history_answers import LossScaleAnswer, MemoryPlanAnswer, SaveList
from model_checkpoint.api.answers.run_answers import RunDetail, RunPage
from model_checkpoint.api.answers.series_answers import SeriesAnswer
from model_checkpoint.api.reading.run_detail import describe_run
from model_checkpoint.api.reading.run_extras import describe_loss_scale, describe_memory_plan
from model_checkpoint.api.reading.run_lines import SORTS, RunsWanted, list_runs
from model_checkpoint.api.reading.save_timeline import list_saves
from model_checkpoint.api.reading.series_frames import (
    MEDIA_TYPE,
    SeriesWanted,
    as_document,
    packed,
    read_frames,
)
from model_checkpoint.api.routes.limits import (
    MOST_KEYS,
    MOST_ROWS,
    MOST_RUNS,
    MOST_SERIES,
    Cursor,
    Limit,
    RunId,
    Words,
    words_of,
)
from model_checkpoint.api.routes.route_services import WithServices
from model_checkpoint.errors import OptionInvalid

router = APIRouter(prefix="/api/runs", tags=["runs"])
_FARTHEST = 2**53  # the last step of which a page can tell the next one
_BINARY: dict[int | str, dict[str, Any]] = {
    200: {
        "model": SeriesAnswer,
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        "description": "Frames as `docs/api.md` describes them, or JSON with `form=json`.",
    }
}


@router.get("", response_model=RunPage, responses=refusals())
def get_runs(
    services: WithServices,
    *,
    q: Annotated[str, Query(max_length=4000, description='E.g. `val_loss < 0.3 tag:baseline -status:failed "x"`')] = "",
    sort: Annotated[str, Query(max_length=260, description=f"One of {', '.join(SORTS)}, a metric, best.metric")] = "",
    cols: Words = "",
    ids: Annotated[str, Query(max_length=16_000, description="These runs alone, with commas between.")] = "",
    limit: Limit = MOST_ROWS,
    cursor: Cursor = "",
) -> Any:
    """Runs: alive, stalled, dead or ended, each with its evidence and what would be lost."""
    columns = words_of(cols, most=MOST_KEYS, what="cols")
    chosen = words_of(ids, most=MOST_RUNS, what="ids")
    wanted = RunsWanted(text=q, sort=sort or "-heartbeat", columns=columns, ids=chosen, limit=limit, cursor=cursor)
    return list_runs(services.library, wanted)


@router.get("/series", response_class=Response, responses={**refusals(), **_BINARY})
def get_series(
    services: WithServices,
    *,
    ids: Annotated[str, Query(max_length=16_000, description="Runs, with commas between.")],
    keys: Annotated[str, Query(max_length=4000, description="Metrics, with commas between.")],
    x: Literal["step", "time"] = "step",
    low: Annotated[float | None, Query(alias="from", allow_inf_nan=False)] = None,
    high: Annotated[float | None, Query(alias="to", allow_inf_nan=False)] = None,
    since: Annotated[int | None, Query(ge=-_FARTHEST, le=_FARTHEST, description="Only from this step on.")] = None,
    px: Annotated[int, Query(ge=1, le=4000, description="Columns of pixels.")] = 900,
    form: Literal["binary", "json"] = "binary",
) -> Response:
    """Series as charts draw them: the least, greatest and last value of each column of pixels."""
    runs = words_of(ids, most=MOST_RUNS, what="ids")
    names = words_of(keys, most=MOST_KEYS, what="keys")
    if len(runs) * len(names) > MOST_SERIES:
        raise OptionInvalid(f"ids and keys: at most {MOST_SERIES} series at once, got {len(runs) * len(names)}.")
    wanted = SeriesWanted(runs=runs, keys=names, axis=x, low=low, high=high, since=since, columns=px)
    series, as_of = read_frames(services.library, wanted)
    if form == "json":
        return JSONResponse(as_document(series, as_of))
    return Response(packed(series, as_of, x), media_type=MEDIA_TYPE)


@router.get("/{run_id}", response_model=RunDetail, responses=refusals(404))
def get_run(services: WithServices, run_id: RunId) -> Any:
    """One run, whole."""
    return describe_run(services.library, run_id)


@router.get("/{run_id}/saves", response_model=SaveList, responses=refusals(404))
def get_saves(services: WithServices, run_id: RunId, limit: Limit = 50) -> Any:
    """What saving cost: the latest saves, stretch by stretch and hook by hook."""
    shelf, run = services.library.run(run_id)
    return {"rows": list_saves(shelf, run, limit)}


@router.get("/{run_id}/memory-plan", response_model=MemoryPlanAnswer, responses=refusals(404))
def get_memory_plan(services: WithServices, run_id: RunId) -> Any:
    """How the model of a run fits into its memory."""
    return describe_memory_plan(*services.library.run(run_id))


@router.get("/{run_id}/loss-scale", response_model=LossScaleAnswer, responses=refusals(404))
def get_loss_scale(services: WithServices, run_id: RunId) -> Any:
    """How the loss scale of a run moved."""
    return describe_loss_scale(*services.library.run(run_id))
