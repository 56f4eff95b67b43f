"""Errors of the integrations; each derives from the one tree and from the builtin its callers expect."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class TrainerUnknown(CheckpointException, RuntimeError):
    """A trainer, a version of it or a way of training that a resume is not known to be exact with; nothing was changed.

    Example:
        >>> raise TrainerUnknown("transformers 4.0 is not known")
        Traceback (most recent call last):
        model_checkpoint.integrations.errors.TrainerUnknown: transformers 4.0 is not known
    """

    default_type = ExceptionType.INCOMPATIBLE_VERSION
