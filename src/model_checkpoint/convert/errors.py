"""Errors of conversions; each derives from the one tree and from the builtin its callers expect."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class SourceUnreadable(CheckpointException, ValueError):
    """A file or folder of another format is torn, is not what its name says, or wants code to be run."""

    default_type = ExceptionType.LOAD_FAILED


class SourceChanged(CheckpointException, RuntimeError):
    """What was adopted under this name has changed since; what was adopted is kept as it is."""

    default_type = ExceptionType.VALIDATION_FAILED
