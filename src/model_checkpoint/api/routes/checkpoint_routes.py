"""Checkpoint routes: checkpoints found, looked into, compared and marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query

from model_checkpoint.api.answers.basics import CHANGING, ID_PATTERN, refusals
from model_checkpoint.api.answers.checkpoint_answers import (
    CheckpointDetail,
    CheckpointLine,
    CheckpointPage,
    DiffAnswer,
    NoteChange,
    PinChange,
    TagChange,
    TensorPage,
)
from model_checkpoint.api.errors import StateConflict
from model_checkpoint.api.jobs.diff_work import By, diff_document, ranked
from model_checkpoint.api.jobs.tensor_work import tensor_document, tensor_page
from model_checkpoint.api.library.shelves import Shelf
from model_checkpoint.api.live.changes import Change
from model_checkpoint.api.reading.checkpoint_detail import describe_checkpoint
from model_checkpoint.api.reading.checkpoint_lines import CheckpointsWanted, lines_of, list_checkpoints
from model_checkpoint.api.routes.limits import MOST_ROWS, CheckpointId, Cursor, Limit, words_of
from model_checkpoint.api.routes.route_services import RouteServices, WithServices
from model_checkpoint.database import Checkpoint
from model_checkpoint.database.overview.checkpoint_search import SortWord
from model_checkpoint.errors import OptionInvalid

if TYPE_CHECKING:
    from model_checkpoint.checkpoint.managed_checkpoints import ManagedCheckpoints

router = APIRouter(prefix="/api", tags=["checkpoints"])
_MOST_TAG = 250
_HEALTHS = ("healthy", "unverified", "damaged", "missing", "unreadable")


@router.get("/checkpoints", response_model=CheckpointPage, responses=refusals())
def get_checkpoints(
    services: WithServices,
    *,
    run: Annotated[str | None, Query(pattern=ID_PATTERN)] = None,
    health: Annotated[str, Query(max_length=100, description=f"Some of {', '.join(_HEALTHS)}, with commas.")] = "",
    pinned: Annotated[bool, Query(description="Pinned ones alone.")] = False,
    rule: Annotated[Literal["any", "none"], Query(description="`none`: those that nothing keeps.")] = "any",
    sort: SortWord = "-at",
    limit: Limit = MOST_ROWS,
    cursor: Cursor = "",
) -> Any:
    """Checkpoints of all runs, or of one, each with its health and what keeps it."""
    words = words_of(health, most=len(_HEALTHS), what="health")
    wrong = [word for word in words if word not in _HEALTHS]
    if wrong:
        raise OptionInvalid(f"health: must be some of {', '.join(_HEALTHS)}, got {wrong[0]!r}.")
    wanted = CheckpointsWanted(
        run=run, health=words, pinned=pinned, unclaimed=rule == "none", sort=sort, limit=limit, cursor=cursor
    )
    return list_checkpoints(services.library, wanted)


@router.get("/checkpoints/{checkpoint_id}", response_model=CheckpointDetail, responses=refusals(404))
def get_checkpoint(services: WithServices, checkpoint_id: CheckpointId) -> Any:
    """One checkpoint, whole: what is in it, what a resume would lack, what is damaged."""
    return describe_checkpoint(*services.library.checkpoint(checkpoint_id))


@router.get("/checkpoints/{checkpoint_id}/tensors", response_model=TensorPage, responses=refusals(404, 409))
def get_tensors(
    services: WithServices,
    *,
    checkpoint_id: CheckpointId,
    q: Annotated[str, Query(max_length=250, description="A part of the name.")] = "",
    sort: Annotated[str, Query(max_length=10)] = "name",
    limit: Limit = MOST_ROWS,
    cursor: Cursor = "",
) -> Any:
    """The tensors of a checkpoint with their figures; computed once, by a job that asking begins."""
    _, row = services.library.checkpoint(checkpoint_id)
    state, job, lines = tensor_document(services.jobs, services.library.result_cache, row)
    page = tensor_page(lines or [], text=q, sort=sort, limit=limit, cursor=cursor)
    return {"state": state, "job": job and job.id, "error": job.error if job is not None else None, **page}


@router.get("/diff", response_model=DiffAnswer, responses=refusals(404, 409))
def get_diff(
    services: WithServices,
    a: Annotated[str, Query(pattern=ID_PATTERN)],
    b: Annotated[str, Query(pattern=ID_PATTERN)],
    by: By = "rel",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Any:
    """What moved between two checkpoints, most first; computed once, by a job that asking begins."""
    rows = [services.library.checkpoint(one)[1] for one in (a, b)]
    state, job, found = diff_document(services.jobs, services.library.result_cache, *rows)
    head = {"state": state, "job": job and job.id, "error": job.error if job is not None else None, "a": a, "b": b}
    if found is None:
        return {**head, "summary": None, "rows": [], "added": [], "removed": [], "same": [], "values": []}
    return {**head, **found, "rows": ranked(found["rows"], by)[:limit]}


@router.post("/checkpoints/{checkpoint_id}/pin", response_model=CheckpointLine, responses=refusals(*CHANGING))
def post_pin(services: WithServices, checkpoint_id: CheckpointId, change: PinChange) -> Any:
    """Protect a checkpoint from retention, or let it go like any other."""
    shelf, row, manager = _living(services, checkpoint_id)
    after = manager.pin(row.id) if change.pinned else manager.unpin(row.id)
    return _changed(services, shelf, after)


@router.post("/checkpoints/{checkpoint_id}/tags", response_model=CheckpointLine, responses=refusals(*CHANGING))
def post_tags(services: WithServices, checkpoint_id: CheckpointId, change: TagChange) -> Any:
    """Put words on a checkpoint, and take words off."""
    wrong = [one for one in (*change.add, *change.remove) if not one.strip() or len(one) > _MOST_TAG]
    if wrong or not (change.add or change.remove):
        raise OptionInvalid(f"a tag is a text of 1 to {_MOST_TAG} characters; give some to add or to remove.")
    shelf, row, manager = _living(services, checkpoint_id)
    if change.add:
        row = manager.tag(row.id, *change.add)
    if change.remove:
        row = manager.untag(row.id, *change.remove)
    return _changed(services, shelf, row)


@router.post("/checkpoints/{checkpoint_id}/note", response_model=CheckpointLine, responses=refusals(*CHANGING))
def post_note(services: WithServices, checkpoint_id: CheckpointId, change: NoteChange) -> Any:
    """Write a remark on a checkpoint, in place of the former."""
    shelf, row, manager = _living(services, checkpoint_id)
    return _changed(services, shelf, manager.note(row.id, change.text))


@router.post("/checkpoints/{checkpoint_id}/delete", response_model=CheckpointLine, responses=refusals(*CHANGING))
def post_delete(services: WithServices, checkpoint_id: CheckpointId) -> Any:
    """Move a checkpoint to the trash, from where it comes back until its grace is over."""
    shelf, row, manager = _living(services, checkpoint_id)
    if row.pinned:
        raise StateConflict(f"checkpoint {row.id!r}: is pinned. Take the pin off first.")
    return _changed(services, shelf, manager.delete_checkpoint(row.id))


@router.post("/checkpoints/{checkpoint_id}/restore", response_model=CheckpointLine, responses=refusals(*CHANGING))
def post_restore(services: WithServices, checkpoint_id: CheckpointId) -> Any:
    """Bring a checkpoint back from the trash."""
    shelf, row = services.library.checkpoint(checkpoint_id)
    manager = shelf.manager(row.root)
    if row.state != "deleted":
        raise StateConflict(f"checkpoint {row.id!r}: is not in the trash.")
    return _changed(services, shelf, manager.restore_checkpoint(row.id))


def _living(services: RouteServices, checkpoint_id: str) -> tuple[Shelf, Checkpoint, ManagedCheckpoints]:
    """A checkpoint that is not in the trash, and who changes it."""
    shelf, row = services.library.checkpoint(checkpoint_id)
    manager = shelf.manager(row.root)
    if row.state == "deleted":
        raise StateConflict(f"checkpoint {row.id!r}: is in the trash. Bring it back first.")
    if not row.root or not row.name:
        raise StateConflict(f"checkpoint {row.id!r}: no root is recorded for it, so it cannot be changed from here.")
    return shelf, row, manager


def _changed(services: RouteServices, shelf: Shelf, row: Checkpoint) -> dict[str, Any]:
    services.changes.add(Change("checkpoint", row.experiment_id))
    (line,) = lines_of(shelf, [row])
    return line
