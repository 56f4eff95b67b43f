"""Errors: why the server refuses, each with the status it is answered with."""

from __future__ import annotations

from typing import ClassVar

from model_checkpoint.errors import CheckpointException, ExceptionType


class ApiRefusal(CheckpointException, ValueError):
    """A request that is not answered with what it asked for; ``status`` is how HTTP says so.

    Example:
        >>> NotFoundHere("run 'r9': there is none").status
        404
    """

    default_type = ExceptionType.VALIDATION_FAILED
    status: ClassVar[int] = 400


class NotFoundHere(ApiRefusal, LookupError):
    """There is nothing of that id."""

    status = 404


class ReadOnlyHere(ApiRefusal, PermissionError):
    """The server was told to change nothing, or looks at a plain root, where nothing is recorded."""

    status = 403


class StateConflict(ApiRefusal):
    """What is asked for does not fit what is there now."""

    status = 409


class TooManyAtOnce(ApiRefusal):
    """A limit of the server: jobs, listeners, plans."""

    default_type = ExceptionType.QUEUE_FULL
    status = 429


class JobCancelled(CheckpointException, RuntimeError):
    """Somebody stopped a job; raised inside it, so that it leaves nothing half done."""


class ServerExtraMissing(CheckpointException, ImportError):
    """FastAPI or uvicorn is not installed; the message has the line that installs them."""
