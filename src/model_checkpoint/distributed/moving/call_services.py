"""Call services: what every call of one DistributedCheckpoint works with."""

from __future__ import annotations

from dataclasses import dataclass

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.error_details import CallLogger
from model_checkpoint.distributed.storing.storage_contract import FaultHandler
from model_checkpoint.distributed.validating.checkpoint_validator import CheckpointValidatorProtocol
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.storage.contract.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CallServices:
    """The ranks, the place, and what watches over both."""

    coordinator: Coordinator
    store: Store
    fault_handler: FaultHandler
    validator: CheckpointValidatorProtocol
    logger: CallLogger

    def where(self, prefix: str | None) -> str:
        """Where a checkpoint lies, or all of them do."""
        return path_of(self.store, prefix) if prefix else self.store.url

    def say(self, message: str, prefix: str) -> None:
        """Log what begins."""
        self.logger.info(f"{message}: %s (rank: %d/%d)", prefix, self.coordinator.rank, self.coordinator.world_size)
