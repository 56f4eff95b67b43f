"""Errors: one tree, each saying where, what, got against expected, and the next step.

Every error derives from :class:`CheckpointException` and, where callers would expect one, from a builtin
(``FileNotFoundError``, ``ValueError``, ...). All of them survive pickling between processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, ClassVar


class ExceptionType(Enum):
    """What kind of failure a :class:`CheckpointException` reports."""

    UNKNOWN = "unknown"
    SAVE_FAILED = "save_failed"
    LOAD_FAILED = "load_failed"
    VALIDATION_FAILED = "validation_failed"
    CORRUPTED_CHECKPOINT = "corrupted_checkpoint"
    INCOMPATIBLE_VERSION = "incompatible_version"
    TIMEOUT = "timeout"
    STORAGE_ERROR = "storage_error"
    QUEUE_FULL = "queue_full"


def _rebuild(cls: type[CheckpointException], args: tuple[Any, ...], fields: dict[str, Any]) -> CheckpointException:
    """Recreate a pickled error: the message alone must make one, its other fields follow."""
    error = cls(*args)
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class CheckpointException(Exception):  # the name users of the seed API look for
    """Root of all our errors.

    Example:
        >>> error = CheckpointException("runs/a: nothing there", checkpoint_path="runs/a")
        >>> error.type, error.checkpoint_path
        (<ExceptionType.UNKNOWN: 'unknown'>, 'runs/a')
    """

    default_type: ClassVar[ExceptionType] = ExceptionType.UNKNOWN

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        type: ExceptionType | None = None,  # seed name
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.checkpoint_path = str(checkpoint_path)
        self.type = type or self.default_type
        self.inner_exception = inner_exception

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dict(self.__dict__)
        if isinstance(self, OSError):
            fields["errno"] = self.errno  # which is no entry of the dictionary
        return _rebuild, (type(self), self.args, fields)


# --- finding and choosing a checkpoint -------------------------------------------------------------------------------


class CheckpointNotFound(CheckpointException, FileNotFoundError):
    """No such root, or nothing committed in it: what a first start meets."""

    default_type = ExceptionType.LOAD_FAILED


class WrongReference(CheckpointException, LookupError):
    """A reference, step, name, id, metric or tensor that is not there; never what a first start meets."""

    default_type = ExceptionType.LOAD_FAILED


class StepExists(CheckpointException, FileExistsError):
    """A committed checkpoint already has that name; nothing was staged."""

    default_type = ExceptionType.SAVE_FAILED


class OptionInvalid(CheckpointException, ValueError):
    """An argument has a value it does not take; nothing was done."""

    default_type = ExceptionType.VALIDATION_FAILED


class ExpressionInvalid(CheckpointException, ValueError):
    """A metric expression that cannot be read; ``at`` is the character, from 0, where it goes wrong."""

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, checkpoint_path: str = "", *, at: int = 0) -> None:
        super().__init__(message, checkpoint_path)
        self.at = at


class MetricIsNaN(CheckpointException, ValueError):
    """A metric to rank by is NaN, and the caller asked to be told."""

    default_type = ExceptionType.VALIDATION_FAILED


class PlanOutdated(CheckpointException, RuntimeError):
    """A plan was previewed, and what it stands on has changed since; nothing was removed."""

    default_type = ExceptionType.VALIDATION_FAILED


class IndexInvalid(CheckpointException, IndexError):
    """An index asks for what the tensor does not have, or is no basic one."""

    default_type = ExceptionType.VALIDATION_FAILED


# --- the state tree --------------------------------------------------------------------------------------------------


class UnsupportedType(CheckpointException, TypeError):
    """A value in the tree has a type no codec knows."""

    default_type = ExceptionType.SAVE_FAILED


class ClassUnavailable(CheckpointException, TypeError):
    """A dataclass, enum, namedtuple or codec of the checkpoint is not at hand, or its fields changed."""

    default_type = ExceptionType.LOAD_FAILED


class StructureMismatch(CheckpointException, ValueError):
    """The checkpoint and the live objects differ; ``report`` lists how. No live byte was changed."""

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(self, message: str, checkpoint_path: str = "", *, report: object = None) -> None:
        super().__init__(message, checkpoint_path)
        self.report = report


class PartlyLoaded(CheckpointException, OSError):
    """The medium failed midway through an in-place load; ``replaced`` and ``partial`` name the leaves touched."""

    default_type = ExceptionType.LOAD_FAILED

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        replaced: Sequence[str] = (),
        partial: Sequence[str] = (),
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, inner_exception=inner_exception)
        self.replaced, self.partial = tuple(replaced), tuple(partial)


class MemoryRefused(CheckpointException, MemoryError):
    """The operation would need more memory than there is."""


# --- storage ---------------------------------------------------------------------------------------------------------


class NothingWritten(CheckpointException, ValueError):
    """A storage backend wrote no byte where it was told to; nothing was committed."""

    default_type = ExceptionType.SAVE_FAILED


class WrittenByBackend(CheckpointException, ValueError):
    """The files of a checkpoint are those of a storage backend, which alone can read them."""

    default_type = ExceptionType.LOAD_FAILED


class StorageFailure(CheckpointException, OSError):
    """The medium refused or lost an operation; ``errno`` is the system's code where there is one."""

    default_type = ExceptionType.STORAGE_ERROR

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        code: int | None = None,
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, inner_exception=inner_exception)
        self.errno = code


class DiskFull(StorageFailure):
    """Not enough room; ``needed`` and ``free`` are bytes."""

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        needed: int = 0,
        free: int = 0,
        code: int | None = None,
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, code=code, inner_exception=inner_exception)
        self.needed, self.free = needed, free


class PermissionRefused(StorageFailure, PermissionError):
    """The system does not let this user read or write there."""


class DurabilityUnknown(StorageFailure):
    """The checkpoint was published but the last flush failed: neither a success nor a clean failure."""


# --- many ranks ------------------------------------------------------------------------------------------------------


class RankFailed(CheckpointException, RuntimeError):
    """One of many ranks could not do its part, so none did; ``ranks`` says which."""

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        ranks: Sequence[int] = (),
        type: ExceptionType | None = None,
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, type, inner_exception)
        self.ranks = tuple(ranks)


class RankLost(RankFailed, TimeoutError):
    """Some of many ranks gave no sign for too long; ``ranks`` says which."""

    default_type = ExceptionType.TIMEOUT


class RootNotShared(StorageFailure):
    """A rank does not see what another wrote under the same root: it is on a disk of each machine's own."""


class NeedsCoordinator(CheckpointException, TypeError):
    """The state holds parts of arrays whose other parts other ranks have, and none of them was asked."""

    default_type = ExceptionType.VALIDATION_FAILED


# --- saving in the background ----------------------------------------------------------------------------------------


class BackgroundSaveFailed(CheckpointException, RuntimeError):
    """An earlier background save of this root failed and nobody had asked for its result."""

    default_type = ExceptionType.SAVE_FAILED


class ProtectionFailed(CheckpointException, RuntimeError):
    """A checkpoint is saved and whole, but its parity files or its mirror could not be made."""

    default_type = ExceptionType.SAVE_FAILED


class SaveCancelled(CheckpointException):
    """The save was cancelled before it was committed; nothing of it is visible."""

    default_type = ExceptionType.SAVE_FAILED


class SaveSkipped(CheckpointException):
    """The save was not made, because another one of the same root was in flight."""

    default_type = ExceptionType.QUEUE_FULL


class SaveAbandoned(CheckpointException, RuntimeError):
    """The save belongs to the process this one was forked from."""

    default_type = ExceptionType.SAVE_FAILED


class StateChanged(CheckpointException, RuntimeError):
    """A tensor was written to while it was being saved; the save was not committed."""

    default_type = ExceptionType.SAVE_FAILED


class LazyRefused(CheckpointException, ValueError):
    """A tensor changes outside of its optimizer's step, so it cannot be copied later than at the call."""

    default_type = ExceptionType.SAVE_FAILED


class SaveTimeout(CheckpointException, TimeoutError):
    """The save has not come that far yet; it goes on."""

    default_type = ExceptionType.TIMEOUT


# --- what is written -------------------------------------------------------------------------------------------------


class CorruptedCheckpoint(CheckpointException, ValueError):
    """What is stored is not what was saved; ``file``, ``tensor`` and ``chunk`` say where, if known."""

    default_type = ExceptionType.CORRUPTED_CHECKPOINT

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        file: str = "",
        tensor: str = "",
        chunk: int | None = None,
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, inner_exception=inner_exception)
        self.file, self.tensor, self.chunk = file, tensor, chunk


class ChunkMismatch(CorruptedCheckpoint):
    """A chunk's bytes do not have the recorded digest."""


class Truncated(CorruptedCheckpoint):
    """A file is shorter than recorded, or gone."""


class TrailingData(CorruptedCheckpoint):
    """A file is longer than recorded."""


class HeaderTooLarge(CorruptedCheckpoint):
    """A data file announces a header beyond the limit or beyond its own end."""


class LayoutInvalid(CorruptedCheckpoint):
    """A header or manifest places a tensor where it cannot be."""


class ManifestInvalid(CorruptedCheckpoint):
    """A manifest cannot be read, is not ours, or its self-digest is wrong."""


class ManifestMismatch(CorruptedCheckpoint):
    """A file belongs to another checkpoint than the manifest beside it."""


class LimitExceeded(CorruptedCheckpoint):
    """A file asks for more than the reader grants (tensors, depth, name length, rank)."""


class UnsafeName(CorruptedCheckpoint):
    """A file or folder name could leave the checkpoint or mislead a person."""


class NoHealthyCheckpoint(CorruptedCheckpoint):
    """Nothing is left that a load with ``fallback=True`` could go back to; ``failures`` has what is wrong with each."""

    def __init__(
        self, message: str, checkpoint_path: str = "", *, failures: Sequence[CheckpointException] = ()
    ) -> None:
        super().__init__(message, checkpoint_path, inner_exception=failures[0] if failures else None)
        self.failures = tuple(failures)


class IncompatibleVersion(CheckpointException, ValueError):
    """Written by a newer format, or with a feature this reader does not have."""

    default_type = ExceptionType.INCOMPATIBLE_VERSION


class CheckpointWarning(UserWarning):
    """A load did what it was asked to, and left something out or passed something over; ``report`` says what.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=CheckpointWarning)
    """

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report
