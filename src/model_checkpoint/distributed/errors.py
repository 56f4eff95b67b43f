"""Errors: what the calls of many ranks raise besides the errors of the engine."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class CallTimeout(CheckpointException, TimeoutError):
    """A call took longer than it was given, or hangs and is left behind; nothing half-done of it is ever visible.

    ``ranks``, where there is such, says which ranks were waited for.
    """

    default_type = ExceptionType.TIMEOUT
    ranks: tuple[int, ...]


class CallCancelled(CheckpointException):
    """A call was cancelled before it was too late; nothing of a cancelled save is visible."""


class ValidationFailed(CheckpointException, ValueError):
    """A validator, or one of its checkers, does not let a checkpoint pass; nothing was loaded."""

    default_type = ExceptionType.VALIDATION_FAILED
