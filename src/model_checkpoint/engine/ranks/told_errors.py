"""Told errors: what went wrong on one rank as plain data, so that every rank can raise the same."""

from __future__ import annotations

from typing import Any

from model_checkpoint import errors
from model_checkpoint.errors import CheckpointException, ExceptionType, RankFailed

_LONGEST = 16_000  # characters of a message; a report may be long


def told(error: BaseException, rank: int) -> dict[str, Any]:
    """Put an error into plain data."""
    ranks = list(getattr(error, "ranks", ())) or [rank]  # those of an error that came from elsewhere
    if isinstance(error, CheckpointException):
        return _plain(error, error.type.value, error.message, ranks)
    return _plain(error, ExceptionType.UNKNOWN.value, f"{type(error).__name__}: {error}", [rank])


def _plain(error: BaseException, kind: str, message: str, ranks: list[int]) -> dict[str, Any]:
    path = error.checkpoint_path if isinstance(error, CheckpointException) else ""
    return {"class": type(error).__name__, "type": kind, "message": message[:_LONGEST], "path": path, "ranks": ranks}


def retold(plain: dict[str, Any], world_size: int, *, named: bool = True) -> CheckpointException:
    """The error to raise on every rank: of the same class where it is one of ours, naming the rank it comes from."""
    cls = getattr(errors, str(plain["class"]), None)
    known = isinstance(cls, type) and issubclass(cls, CheckpointException)
    ranks, message = [int(rank) for rank in plain["ranks"]], str(plain["message"])
    if named and not (known and issubclass(cls, RankFailed)):  # type: ignore[arg-type]
        message = f"rank {', '.join(map(str, ranks))} of {world_size}: {message}"
    made: CheckpointException = cls(message) if known else RankFailed(message)  # type: ignore[misc]
    made.checkpoint_path, made.type = str(plain["path"]), ExceptionType(plain["type"])
    made.ranks = tuple(ranks)  # type: ignore[attr-defined]
    return made
