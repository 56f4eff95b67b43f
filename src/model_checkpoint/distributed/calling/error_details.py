"""Told failures: an error of a call with all that a caller looks for on it: the type, the checkpoint, the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.errors import CheckpointException, ExceptionType


@runtime_checkable
class CallLogger(Protocol):
    """What a call tells its story to: a ``logging.Logger``, or anything with these three."""

    def info(self, message: str, *values: object) -> object:
        """What begins and what is done."""
        ...

    def warning(self, message: str, *values: object) -> object:
        """What was left out."""
        ...

    def error(self, message: str, *values: object) -> object:
        """What went wrong."""
        ...


@contextmanager
def told_failures(
    what: str,
    where: Callable[[], str],
    type: ExceptionType,
    logger: CallLogger,
    *,
    limit: CallLimit | None = None,
) -> Iterator[None]:
    """Complete every error of the block, and log it; ``type`` is that of one that says nothing else.

    With a ``limit``, what came of its end is told alike on all ranks.

    Example:
        >>> import logging
        >>> with told_failures("save", lambda: "runs/a/checkpoints/x", ExceptionType.SAVE_FAILED, logging.getLogger()):
        ...     raise TypeError("no state")
        Traceback (most recent call last):
        model_checkpoint.errors.CheckpointException: Failed to save checkpoint: runs/a/checkpoints/x (TypeError: ...
    """
    try:
        yield
    except CheckpointException as raised:
        error = raised if limit is None else limit.told(raised)
        error.checkpoint_path = error.checkpoint_path or where()
        error.type = type if error.type is ExceptionType.UNKNOWN else error.type
        cause = error.__cause__ if error.__cause__ is not error else None
        error.inner_exception = error.inner_exception or cause
        logger.error("Failed to %s checkpoint: %s: %s", what, where(), error)
        if error is raised:
            raise
        raise error from error.__cause__
    except Exception as error:
        made = CheckpointException(
            f"Failed to {what} checkpoint: {where()} ({error.__class__.__name__}: {error})", where(), type, error
        )
        logger.error("%s", made)
        raise made from error
