"""Resuming: everything that can be restored is; what was missing, unused or passed over is told.

A checkpoint that is damaged or cannot be read is passed over for the next older one. One that does not fit the live
objects is an error: nothing older would fit better.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model_checkpoint.checkpoint.catalog.checkpoint_index import AWAY
from model_checkpoint.checkpoint.keeping.removal import store_of
from model_checkpoint.checkpoint.loading.choosing import rows_of_run
from model_checkpoint.checkpoint.loading.live_filling import fill_live
from model_checkpoint.checkpoint.loading.load_steps import parts_of, told_load
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.checkpoint.storage.backend_io import withdraw
from model_checkpoint.checkpoint.storage.recompute_plan import PART, plan_of, put_in_force
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.event_records import LineageEdge
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.reading.first_healthy import PASSED_OVER
from model_checkpoint.engine.reading.load import load
from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    CheckpointWarning,
    NoHealthyCheckpoint,
    PartlyLoaded,
    StorageFailure,
    WrongReference,
)
from model_checkpoint.notebook_html import html_table
from model_checkpoint.tree import rng_state

log = logging.getLogger("model_checkpoint.manager")

_PASSED_OVER = (*PASSED_OVER, CheckpointNotFound)  # a row may be of a checkpoint that is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeReport:
    """What a resume has restored; false if there was nothing to resume from.

    Example:
        >>> bool(ResumeReport()), ResumeReport().summary()
        (False, 'nothing to resume from')
    """

    checkpoint: Checkpoint | None = None
    restored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # asked for, and not in the checkpoint
    unused: tuple[str, ...] = ()  # in the checkpoint, and nobody asked for it
    passed_over: tuple[tuple[str, str], ...] = ()  # checkpoints that could not be used, newest first, and why
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.checkpoint is not None

    @property
    def epoch(self) -> int | None:
        """The epoch it was saved in."""
        return None if self.checkpoint is None else self.checkpoint.epoch

    @property
    def step(self) -> int:
        """The step it was saved at."""
        return 0 if self.checkpoint is None else self.checkpoint.step

    @property
    def complete(self) -> bool:
        """Whether all that was asked for is restored, from the first choice."""
        return self.checkpoint is not None and not self.missing and not self.passed_over

    def summary(self) -> str:
        """All of it in a few lines."""
        if self.checkpoint is None:
            return "nothing to resume from"
        lines = [f"resumed from {self.checkpoint.name} (step {self.step}): {', '.join(self.restored)}"]
        lines += [f"  missing: {', '.join(self.missing)}"] * bool(self.missing)
        lines += [f"  unused: {', '.join(self.unused)}"] * bool(self.unused)
        return "\n".join([*lines, *(f"  passed over {name}: {why}" for name, why in self.passed_over)])

    def _repr_html_(self) -> str:
        """How a notebook shows it: what came back, and what did not."""
        rows = [
            *(("restored", name, "") for name in self.restored),
            *(("missing", name, "asked for, and not in the checkpoint") for name in self.missing),
            *(("unused", name, "in the checkpoint, and nobody asked for it") for name in self.unused),
            *(("passed over", name, why) for name, why in self.passed_over),
        ]
        return html_table(self.summary().partition("\n")[0], ["", "", ""], rows)


def resume_run(
    services: Services, experiment_id: str, live: Mapping[str, Any], *, wanted: str, into_run: str | None, rng: bool
) -> ResumeReport:
    """Restore ``live`` objects from the first choice that can be used."""
    passed: list[tuple[str, str]] = []
    failures: list[CheckpointException] = []
    for row in rows_of_run(services, experiment_id, wanted):
        try:
            report = _restored(services, row, live, rng=rng)
        except _PASSED_OVER as error:
            if isinstance(error, PartlyLoaded) and not isinstance(error.inner_exception, _PASSED_OVER):
                raise  # an object of the caller's refused a healthy state
            log.warning("%s: not usable, going on to an older one: %s", row.file_path, error)
            failures.append(error)
            passed.append((row.name, f"{type(error).__name__}: {error}"))
        else:
            return _told(services, report, tuple(passed), into_run)
    if not passed:
        return ResumeReport()
    told = "\n".join(f"  {name}: {why}" for name, why in passed)
    raise NoHealthyCheckpoint(
        f"{services.store.url}: none of {len(passed)} checkpoints of run {experiment_id} can be used:\n{told}\n"
        "verify_experiment_integrity(repair=True) may mend one; `mckpt trash` lists what can be brought back.",
        services.store.url,
        failures=failures,
    )


def _restored(services: Services, row: Checkpoint, live: Mapping[str, Any], *, rng: bool) -> ResumeReport:
    """Restore what one checkpoint has of what is asked for."""
    with services.measured("resume"), told_load(services, row):
        there = parts_of(services, row)
        wanted = {name: part for name, part in live.items() if name in there}
        if rng and "rng" in there:
            wanted["rng"] = rng_state()  # set last: what restores the others may draw numbers
        if not wanted:
            raise WrongReference(
                f"{row.file_path}: has none of the parts that are asked for ({', '.join(live) or 'none'}), only "
                f"{', '.join(there) or 'nothing'}. Ask for those.",
                row.file_path,
            )
        _fill(services, row, wanted)
        planned = _plan_again(services, row, wanted.get("model")) if PART in there else ()
    missing = tuple(name for name in live if name not in wanted)
    return ResumeReport(
        checkpoint=row,
        restored=(*wanted, *planned),
        missing=(*missing, "rng") if rng and "rng" not in wanted else missing,
        unused=tuple(name for name in there if name not in (*wanted, PART)),
        metrics=dict(row.metrics),
    )


def _fill(services: Services, row: Checkpoint, wanted: dict[str, Any]) -> None:
    if row.backend == "native":
        load(store_of(services, row), name=row.name, parts=list(wanted), into=wanted, verify="full")
        return
    fill_live(_withdrawn(services, row, list(wanted)), wanted)


def _withdrawn(services: Services, row: Checkpoint, parts: Sequence[str]) -> dict[str, Any]:
    """Parts as their backend reads them; whatever that raises means that this checkpoint cannot be used here."""
    try:
        return withdraw(store_of(services, row), row.name, own=services.backend, parts=parts)
    except (CheckpointException, MemoryError):
        raise
    except Exception as error:
        raise StorageFailure(
            f"{row.file_path}: the storage backend {row.backend!r} could not read what it wrote "
            f"({type(error).__name__}: {error}). Is it of the same version?",
            row.file_path,
            inner_exception=error,
        ) from error


def _plan_again(services: Services, row: Checkpoint, model: Any) -> tuple[str, ...]:
    """Put the plan that was saved with a model in force, unless it has one already."""
    if model is None or plan_of(model) is not None:
        return ()
    data = _withdrawn(services, row, [PART])
    put_in_force(model, data[PART])
    return (PART,)


def _told(
    services: Services, report: ResumeReport, passed: tuple[tuple[str, str], ...], into_run: str | None
) -> ResumeReport:
    """Note where the run goes on from, and say what is not as it was asked for."""
    whole = replace(report, passed_over=passed)
    if into_run is not None and report.checkpoint is not None:
        edge = LineageEdge(parent=report.checkpoint.id, child=into_run, kind="resumed", step=report.step)
        try:
            services.catalog.connection.add_edge(edge)
        except (*AWAY, RowRefused) as error:
            services.failures.note("database", error)
    log.info("%s", whole.summary())
    if not whole.complete:
        warnings.warn(CheckpointWarning(whole.summary(), whole), stacklevel=4)
    return whole
