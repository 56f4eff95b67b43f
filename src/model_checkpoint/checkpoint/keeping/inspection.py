"""Inspection: every byte of the checkpoints of a run compared with its digest, and mended where it can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from model_checkpoint.checkpoint.catalog.best_choice import all_rows
from model_checkpoint.checkpoint.keeping.removal import forget_cached
from model_checkpoint.checkpoint.services import Services
from model_checkpoint.database.records import Checkpoint, IntegrityRecord
from model_checkpoint.hooks import HookEvent
from model_checkpoint.integrity import CheckpointVerdict, CheckpointVerifier, ScrubReport

_AT_ONCE = 1000


def inspect_run(services: Services, experiment_id: str, *, repair: bool = False) -> ScrubReport:
    """Verify every checkpoint of a run; with ``repair``, damaged ones are mended bit-exactly, if that can be."""
    verifier = CheckpointVerifier(
        _VerifiedRows(services), repair=_mender(services) if repair else None, emit=_teller(services)
    )
    report = verifier.verify_experiment_checkpoints(experiment_id, repair=repair)
    forget_cached(services, experiment_id)
    return report


class _VerifiedRows:
    """The catalog as a verifier asks and tells it."""

    def __init__(self, services: Services) -> None:
        self._services, self._connection = services, services.catalog.connection

    def get_checkpoint(self, checkpoint_id: str, /) -> Checkpoint | None:
        return self._connection.get_checkpoint(checkpoint_id)

    def get_checkpoints_by_experiment(self, experiment_id: str, /) -> Sequence[Checkpoint]:
        return list(all_rows(self._connection, experiment_id))

    def longest_unverified(self) -> Iterator[Checkpoint]:
        return iter(self._connection.due_for_verification(limit=_AT_ONCE))

    def record_integrity(self, verdict: CheckpointVerdict, /) -> None:
        self._connection.record_integrity(
            IntegrityRecord(
                checkpoint_id=verdict.checkpoint_id,
                outcome=verdict.outcome.value,
                method=verdict.method,
                checked_at=verdict.checked_at,
                seconds=verdict.seconds,
                bytes_read=verdict.bytes_read,
                details=verdict.details,
            )
        )
        if verdict.repaired:
            self._services.catalog.audit("repair", verdict.checkpoint_id, path=verdict.path)


def _mender(services: Services) -> Any:
    from model_checkpoint.engine.repairing.repair import repair

    return repair


def _teller(services: Services) -> Any:
    def tell(event: str, **data: Any) -> object:
        return services.fire(HookEvent(event), **data)

    return tell
