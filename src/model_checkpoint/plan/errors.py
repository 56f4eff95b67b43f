"""Errors of this room that are not in the common tree."""

from __future__ import annotations

from model_checkpoint.errors import CheckpointException, ExceptionType


class QueryInvalid(CheckpointException, ValueError):
    """A search that cannot be read: where it goes wrong, for how many characters, and what may have been meant.

    Example:
        >>> error = QueryInvalid("no metric or setting is called 'vloss'", at=0, length=5, suggestion="val_loss")
        >>> error.at, error.length, error.suggestion
        (0, 5, 'val_loss')
    """

    default_type = ExceptionType.VALIDATION_FAILED

    def __init__(
        self, message: str, checkpoint_path: str = "", *, at: int = 0, length: int = 0, suggestion: str = ""
    ) -> None:
        super().__init__(message, checkpoint_path)
        self.at, self.length, self.suggestion = at, length, suggestion
