"""Errors of checkpoint managers; each derives from the one tree and from the builtin its callers expect."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class CheckpointUnknown(CheckpointException, ValueError, LookupError):
    """The catalog has no checkpoint of that id, or none that answers the question."""

    default_type = ExceptionType.LOAD_FAILED


class NoExperiment(CheckpointException, ValueError):
    """It was not said which run a checkpoint is of, or there is no such run; nothing was saved."""

    default_type = ExceptionType.VALIDATION_FAILED
