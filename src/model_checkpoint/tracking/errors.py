"""Errors of tracking; each derives from the one tree and from the builtin its callers expect."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType, StorageFailure


class MetricRefused(CheckpointException, TypeError, ValueError):
    """A metric whose name or value cannot be kept; nothing of the call was logged."""

    default_type = ExceptionType.VALIDATION_FAILED


class ExperimentUnknown(CheckpointException, ValueError, LookupError):
    """The catalog has no run of that id."""

    default_type = ExceptionType.LOAD_FAILED


class TrackerClosed(CheckpointException, RuntimeError):
    """The tracker was closed, so it takes nothing more; nothing was logged."""

    default_type = ExceptionType.SAVE_FAILED


class FlushTimeout(CheckpointException, TimeoutError):
    """The writer has not come that far yet; it goes on."""

    default_type = ExceptionType.TIMEOUT


class SpoolFull(StorageFailure):
    """The spool has reached its bound; what was handed to it was not kept."""

    default_type = ExceptionType.QUEUE_FULL


class PayloadUnspoolable(CheckpointException, TypeError):
    """What was handed to a spool is no plain data; nothing was written."""

    default_type = ExceptionType.VALIDATION_FAILED
