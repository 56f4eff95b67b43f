"""Inspection: every byte of the checkpoints of a run compared with its digest, and mended where it can be."""

from __future__ import annotations

from typing import Any

from model_checkpoint.checkpoint.keeping.removal import forget_cached, store_of
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.checkpoint.storage.backend_io import withdraw
from model_checkpoint.checkpoint.storage.backend_registry import UnknownBackend
from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.repairing.repair import repair as mend
from model_checkpoint.hooks import HookEvent
from model_checkpoint.integrity import CheckpointHealth, CheckpointVerdict, CheckpointVerifier, ScrubReport


def inspect_run(services: Services, experiment_id: str, *, repair: bool = False) -> ScrubReport:
    """Verify every checkpoint of a run; with ``repair``, damaged ones are mended bit-exactly, if that can be."""

    def tell(event: str, **data: Any) -> object:
        return services.fire(HookEvent(event), **data)

    def read(row: Checkpoint) -> None:
        _require_readable(services, row)

    verifier = CheckpointVerifier(services.catalog.connection, load=read, repair=mend if repair else None, emit=tell)
    report = verifier.verify_experiment_checkpoints(experiment_id, repair=repair)
    for verdict in report.verdicts if repair else ():
        _note_repair(services, verdict)
    forget_cached(services, experiment_id)
    return report


def _require_readable(services: Services, row: Checkpoint) -> None:
    """Let the backend that wrote a checkpoint read it; the engine's own were read on the way."""
    if row.backend == "native":
        return
    try:
        withdraw(store_of(services, row), row.name, own=services.backend, device="cpu", full=False)
    except (UnknownBackend, ImportError) as error:
        raise NotImplementedError(f"{row.file_path}: nobody here can read it: {error}") from error


def _note_repair(services: Services, verdict: CheckpointVerdict) -> None:
    if verdict.repaired:
        services.catalog.audit("repair", verdict.checkpoint_id, path=verdict.path)
    elif verdict.outcome is CheckpointHealth.DAMAGED or verdict.parity:
        problems = [*verdict.problems, *verdict.parity]
        services.catalog.audit(
            "repair", verdict.checkpoint_id, outcome="failed", path=verdict.path, problems=problems[:3]
        )
