"""Errors of automatic activation checkpointing: which layer, what happened, what to do."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class BudgetTooSmall(CheckpointException, ValueError):
    """No plan fits in the asked bytes; ``floor_bytes`` is the least that works."""

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, checkpoint_path: str = "", *, floor_bytes: int = 0) -> None:
        super().__init__(message, checkpoint_path)
        self.floor_bytes = floor_bytes


class RecomputeDiverged(CheckpointException, RuntimeError):
    """A second run of a layer gave other tensors than the first; ``layer`` and ``tensor`` say which."""

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, checkpoint_path: str = "", *, layer: str = "", tensor: int = -1) -> None:
        super().__init__(message, checkpoint_path)
        self.layer, self.tensor = layer, tensor


class ValueChanged(CheckpointException, RuntimeError):
    """A tensor needed for recomputation was changed in place after the forward pass."""

    default_type = ExceptionType.VALIDATION_FAILED


class ModelRefused(CheckpointException, TypeError):
    """The model, or an argument of one of its layers, cannot be recomputed faithfully."""

    default_type = ExceptionType.VALIDATION_FAILED


class PlanMismatch(CheckpointException, ValueError):
    """A saved plan belongs to another model than the one it is applied to."""

    default_type = ExceptionType.VALIDATION_FAILED


class SampleGone(CheckpointException, ValueError):
    """A profile is asked for another budget, and the sample it would measure with is not there any more."""

    default_type = ExceptionType.VALIDATION_FAILED


class AutoCheckpointWarning(UserWarning):
    """Training goes on, but not quite as planned."""
