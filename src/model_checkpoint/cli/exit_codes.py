"""Exit codes: what the number a command leaves with means to a script."""

from __future__ import annotations

from enum import IntEnum

from model_checkpoint.errors import (
    CheckpointException,
    CheckpointNotFound,
    CorruptedCheckpoint,
    IncompatibleVersion,
    IndexInvalid,
    StorageFailure,
    UnsafeName,
    WrongReference,
)


class ExitCode(IntEnum):
    """What a command leaves with."""

    FINE = 0
    FOUND = 1  # damage, differences, or something that a doctor would not leave as it is
    USAGE = 2  # the question makes no sense: an unknown option, a value it does not take
    MISSING = 3  # what was named is not there: root, checkpoint, tensor, run, catalog, query's column
    FAILED = 4  # it makes sense and is there, but could not be done: storage, permission, database, a newer format
    INTERRUPTED = 130  # Ctrl-C


def code_of(error: BaseException) -> ExitCode:
    """The code an error ends the command with.

    Example:
        >>> code_of(CheckpointNotFound("runs/b: no such checkpoint root")), code_of(ValueError("what?"))
        (<ExitCode.MISSING: 3>, <ExitCode.USAGE: 2>)
    """
    if isinstance(error, (CheckpointNotFound, WrongReference)):
        return ExitCode.MISSING
    if isinstance(error, CorruptedCheckpoint) and not isinstance(error, UnsafeName):
        return ExitCode.FOUND
    if isinstance(error, (ValueError, IndexInvalid)) and not isinstance(error, (IncompatibleVersion, StorageFailure)):
        return ExitCode.USAGE
    if isinstance(error, (CheckpointException, OSError, MemoryError)):
        return ExitCode.FAILED
    raise error
