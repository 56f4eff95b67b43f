"""Inspection: every byte of the checkpoints of a run compared with its digest, and mended where it can be."""

from __future__ import annotations

from typing import Any

from model_checkpoint.checkpoint.keeping.removal import forget_cached
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.engine.repairing.repair import repair as mend
from model_checkpoint.hooks import HookEvent
from model_checkpoint.integrity import CheckpointVerifier, ScrubReport


def inspect_run(services: Services, experiment_id: str, *, repair: bool = False) -> ScrubReport:
    """Verify every checkpoint of a run; with ``repair``, damaged ones are mended bit-exactly, if that can be."""

    def tell(event: str, **data: Any) -> object:
        return services.fire(HookEvent(event), **data)

    verifier = CheckpointVerifier(services.catalog.connection, repair=mend if repair else None, emit=tell)
    report = verifier.verify_experiment_checkpoints(experiment_id, repair=repair)
    for verdict in report.verdicts:
        if verdict.repaired:
            services.catalog.audit("repair", verdict.checkpoint_id, path=verdict.path)
    forget_cached(services, experiment_id)
    return report
