"""Checkpoint factory: a DistributedCheckpoint with all that belongs to it, made by options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from model_checkpoint.coordination import Coordinator
from model_checkpoint.distributed.calling.call_options import Duration, as_seconds
from model_checkpoint.distributed.distributed_checkpoint import DEFAULT_TIMEOUT, DistributedCheckpoint
from model_checkpoint.distributed.retrying.fault_tolerance import FaultToleranceHandler
from model_checkpoint.distributed.retrying.retry_policy import RetryPolicy
from model_checkpoint.distributed.storing.storage_factory import StorageFactory, StorageOptions
from model_checkpoint.distributed.validating.checkers import CompatibilityChecker, IntegrityChecker
from model_checkpoint.distributed.validating.checkpoint_validator import CheckpointValidator


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """How checkpoints of a program are kept.

    Attributes:
        storage: Where.
        retry_policy: How often a storage that fails is tried again.
        integrity_checkers: What is asked of each file before a load; None: sizes and digests, ``[]``: nothing.
        compatibility_checkers: What is asked of a checkpoint before a load; None: version and structure, ``[]``:
            nothing.
        default_timeout: Seconds, or a timedelta, for every call that is given none.

    Example:
        >>> CheckpointOptions().default_timeout
        datetime.timedelta(seconds=600)
    """

    storage: StorageOptions = field(default_factory=StorageOptions)
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    integrity_checkers: Sequence[IntegrityChecker] | None = None
    compatibility_checkers: Sequence[CompatibilityChecker] | None = None
    default_timeout: Duration = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        as_seconds(self.default_timeout, "default_timeout")


class DistributedCheckpointFactory:
    """Makes a :class:`DistributedCheckpoint`.

    Example:
        >>> from model_checkpoint.distributed import DistributedCheckpointFactory, LocalCoordinator
        >>> checkpoint = DistributedCheckpointFactory.create(LocalCoordinator())
        >>> checkpoint.get_storage().url.endswith("/checkpoints")
        True
    """

    @staticmethod
    def create(coordinator: Coordinator, options: CheckpointOptions | None = None) -> DistributedCheckpoint:
        """One for the ranks of ``coordinator``; without options it keeps checkpoints under ``./checkpoints``."""
        options = CheckpointOptions() if options is None else options
        storage = StorageFactory.create(options.storage)
        validator = CheckpointValidator(
            storage, options.integrity_checkers, options.compatibility_checkers, coordinator=coordinator
        )
        return DistributedCheckpoint(
            coordinator,
            storage,
            FaultToleranceHandler(storage, options.retry_policy),
            validator,
            default_timeout=options.default_timeout,
        )
