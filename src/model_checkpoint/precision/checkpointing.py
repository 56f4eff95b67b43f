"""MixedPrecisionCheckpointManager: create, save, load, restore and inspect checkpoints of mixed-precision runs."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.precision.checkpoints.capture import PendingPolicy, capture
from model_checkpoint.precision.checkpoints.checkpoint import MixedPrecisionCheckpoint
from model_checkpoint.precision.checkpoints.checkpoint_files import (
    read_checkpoint,
    require_path,
    write_checkpoint,
    write_checkpoint_async,
)
from model_checkpoint.precision.checkpoints.fit_check import inspect_fit
from model_checkpoint.precision.checkpoints.reinstate import restore
from model_checkpoint.precision.checkpoints.self_check import Finding, inspect_alone, list_errors
from model_checkpoint.precision.errors import InvalidArgument
from model_checkpoint.precision.optimizer import MixedPrecisionOptimizer


class MixedPrecisionCheckpointManager:
    """The verbs on checkpoints; all static, nothing is remembered between calls.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> opt = MixedPrecisionOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
        >>> checkpoint = MixedPrecisionCheckpointManager.create_checkpoint(opt, metadata={"run": "a"})
        >>> MixedPrecisionCheckpointManager.validate_checkpoint(checkpoint), checkpoint.metadata["precision"]
        (True, 'FP16')
    """

    @staticmethod
    def create_checkpoint(
        optimizer: MixedPrecisionOptimizer,
        base_optimizer_state: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        *,
        pending: PendingPolicy = "refuse",
    ) -> MixedPrecisionCheckpoint:
        """A copy of everything, so that training may go on at once.

        Args:
            optimizer: what to capture.
            base_optimizer_state: a ``state_dict`` of the base to keep instead of its present state.
            metadata: text of your own; the keys ``precision`` and ``version`` are written by the library.
            pending: what to do with gradients that were not stepped yet: refuse, or save them.
        """
        _require_optimizer(optimizer, "create_checkpoint")
        return capture(optimizer, base_optimizer_state=base_optimizer_state, metadata=metadata, pending=pending)

    @staticmethod
    def save_checkpoint(
        checkpoint: MixedPrecisionCheckpoint, filepath: str | PathLike[str], *, incremental: bool = False
    ) -> None:
        """Write the folder ``filepath``; one saved there before is replaced atomically, unchanged files by link."""
        _require_checkpoint(checkpoint, "save_checkpoint")
        write_checkpoint(checkpoint, require_path(filepath, "save_checkpoint"), incremental=incremental)

    @staticmethod
    def save_checkpoint_async(checkpoint: MixedPrecisionCheckpoint, filepath: str | PathLike[str]) -> SaveJob:
        """Write the folder ``filepath`` in the background; ``result()`` of the handle returns when it is durable."""
        _require_checkpoint(checkpoint, "save_checkpoint_async")
        return write_checkpoint_async(checkpoint, require_path(filepath, "save_checkpoint_async"))

    @staticmethod
    def load_checkpoint(filepath: str | PathLike[str]) -> MixedPrecisionCheckpoint:
        """Read the folder ``filepath``; damaged, truncated, foreign and newer ones are each refused by name."""
        return read_checkpoint(require_path(filepath, "load_checkpoint"))

    @staticmethod
    def load_and_restore(
        optimizer: MixedPrecisionOptimizer,
        filepath: str | PathLike[str],
        restore_weights: bool = True,
        restore_state: bool = True,
    ) -> list[Finding]:
        """Load, then restore; returns warnings."""
        _require_optimizer(optimizer, "load_and_restore")
        checkpoint = MixedPrecisionCheckpointManager.load_checkpoint(filepath)
        return restore(optimizer, checkpoint, weights=restore_weights, state=restore_state)

    @staticmethod
    def restore_checkpoint(
        optimizer: MixedPrecisionOptimizer,
        checkpoint: MixedPrecisionCheckpoint,
        restore_weights: bool = True,
        restore_state: bool = True,
    ) -> list[Finding]:
        """Continue from a checkpoint: weights, state or both; inspects all, then applies all. Returns warnings."""
        _require_optimizer(optimizer, "restore_checkpoint")
        _require_checkpoint(checkpoint, "restore_checkpoint")
        return restore(optimizer, checkpoint, weights=restore_weights, state=restore_state)

    @staticmethod
    def inspect_checkpoint(
        checkpoint: MixedPrecisionCheckpoint | None, optimizer: MixedPrecisionOptimizer | None = None
    ) -> list[Finding]:
        """Every error and warning, by name; with an optimizer also whether the two fit."""
        findings = inspect_alone(checkpoint)
        if checkpoint is None or optimizer is None or list_errors(findings):
            return findings
        return findings + inspect_fit(checkpoint, optimizer, weights=True, state=True)

    @staticmethod
    def validate_checkpoint(checkpoint: MixedPrecisionCheckpoint | None) -> bool:
        """Whether the checkpoint is sound by itself; anything else than one is not."""
        return not list_errors(inspect_alone(checkpoint))


def _require_optimizer(value: object, where: str) -> None:
    if not isinstance(value, MixedPrecisionOptimizer):
        got = "None" if value is None else f"a {type(value).__name__}"
        raise InvalidArgument(f"{where}: optimizer is {got}, expected a MixedPrecisionOptimizer. Wrap yours in one.")


def _require_checkpoint(value: object, where: str) -> None:
    if not isinstance(value, MixedPrecisionCheckpoint):
        got = "None" if value is None else f"a {type(value).__name__}"
        raise InvalidArgument(
            f"{where}: checkpoint is {got}, expected a MixedPrecisionCheckpoint. "
            "Pass what create_checkpoint or load_checkpoint returned."
        )
