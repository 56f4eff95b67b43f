"""Told errors: what went wrong on one rank as plain data, so that every rank can raise the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from model_checkpoint.errors import CheckpointException, ExceptionType, PartlyLoaded, RankFailed
from model_checkpoint.name_lists import some_of

_OURS = "model_checkpoint."
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
    cls = _class_named(str(plain["class"]), CheckpointException)
    ranks, message = [int(rank) for rank in plain["ranks"]], str(plain["message"])
    if named and not (cls is not None and issubclass(cls, RankFailed)):
        message = f"rank {', '.join(map(str, ranks))} of {world_size}: {message}"
    made = cls(message) if cls is not None else RankFailed(message)
    made.checkpoint_path, made.type = str(plain["path"]), ExceptionType(plain["type"])
    made.ranks = tuple(ranks)  # type: ignore[attr-defined]
    return made


def changed_here(error: CheckpointException, replaced: Sequence[str], partial: Sequence[str]) -> PartlyLoaded:
    """What a rank raises of an error of all, if its own live objects had changed by then."""
    made = PartlyLoaded(
        f"{error.message} Until then this rank had replaced: {some_of(replaced)}; in part: {some_of(partial)}; the "
        "others may have got further. Load again into the same objects before they are used.",
        error.checkpoint_path,
        replaced=replaced,
        partial=partial,
        inner_exception=error,
    )
    made.type = ExceptionType.TIMEOUT if isinstance(error, TimeoutError) else made.type
    made.ranks = getattr(error, "ranks", ())  # type: ignore[attr-defined]
    made.__cause__ = error
    return made


def _class_named(name: str, root: type[CheckpointException]) -> type[CheckpointException] | None:
    """The error of that name, of whichever room; names mean one thing in all of them."""
    if root.__name__ == name and root.__module__.startswith(_OURS):  # a user's own may not be made from a message
        return root
    return next((found for one in root.__subclasses__() if (found := _class_named(name, one)) is not None), None)
