"""What can go wrong between the catalog and its database."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class DatabaseUnreachable(CheckpointException, ConnectionError):
    """There is no server, the file cannot be opened, or the database did not do what it was asked to."""

    default_type = ExceptionType.STORAGE_ERROR


class DatabaseBusy(DatabaseUnreachable, TimeoutError):
    """Others held the database for longer than we are ready to wait; nothing was written."""

    default_type = ExceptionType.TIMEOUT


class DatabaseFull(DatabaseUnreachable):
    """The disk that the database lies on takes no more; nothing was written."""


class RowRefused(CheckpointException, ValueError):
    """The row breaks a rule of the catalog; nothing was written, and trying again does not help."""

    default_type = ExceptionType.VALIDATION_FAILED


class SchemaTooNew(CheckpointException, RuntimeError):
    """A newer version of this package made or migrated the database; it can be read, not written."""

    default_type = ExceptionType.INCOMPATIBLE_VERSION


class SchemaOutdated(CheckpointException, RuntimeError):
    """The database has no catalog yet, or one of an earlier version, and ``auto_migrate`` is off."""

    default_type = ExceptionType.INCOMPATIBLE_VERSION


class MigrationFailed(CheckpointException, RuntimeError):
    """A migration ended early; ``backup`` says where the data of before are."""

    def __init__(
        self,
        message: str,
        checkpoint_path: str = "",
        *,
        backup: str = "",
        inner_exception: BaseException | None = None,
    ) -> None:
        super().__init__(message, checkpoint_path, inner_exception=inner_exception)
        self.backup = backup


class DatabaseClosed(CheckpointException, RuntimeError):
    """The connection was closed; nothing was done."""
