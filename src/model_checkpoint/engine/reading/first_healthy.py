"""First healthy: from a checkpoint that cannot be used to the next older healthy one, telling what was passed over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import ListedCheckpoint
from model_checkpoint.engine.root.shared_files import identities, identity_of
from model_checkpoint.errors import (
    CheckpointException,
    CorruptedCheckpoint,
    IncompatibleVersion,
    NoHealthyCheckpoint,
    PartlyLoaded,
    StorageFailure,
    WrongReference,
)
from model_checkpoint.name_lists import some_of
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.load")

Passed = list[tuple[str, str]]  # where a checkpoint lies, and why it was passed over
Loaded = TypeVar("Loaded")

PASSED_OVER = (CorruptedCheckpoint, IncompatibleVersion, StorageFailure, PartlyLoaded, WrongReference)
_SHOWN = 20
_SAME_COPY = "passed over, it holds the very copy of a file that was found damaged"


def first_healthy(
    store: Store, choices: Iterable[ListedCheckpoint], load: Callable[[ListedCheckpoint], Loaded]
) -> tuple[Loaded, Passed]:
    """Load the first choice that can be, but none that shares a damaged copy; return what was passed over too."""
    damaged: set[str] = set()
    passed: Passed = []
    failures: list[CheckpointException] = []
    for found in choices:
        where = path_of(store, found.name)
        if damaged and damaged & identities(store, found.name):
            log.warning("%s: %s", where, _SAME_COPY)
            passed.append((where, _SAME_COPY))
            continue
        if failures:
            log.warning("falling back to %s", where)
        try:
            return load(found), passed
        except PASSED_OVER as error:
            if isinstance(error, PartlyLoaded) and not isinstance(error.inner_exception, PASSED_OVER):
                raise  # an object of the caller's refused a healthy state
            log.warning("%s: not usable: %s", where, error)
            failures.append(error)
            passed.append((where, _brief(error)))
            damaged |= _damaged_copy(store, found.name, error)
    raise _nothing_healthy(store, passed, failures) from None


def _cause(error: CheckpointException) -> BaseException:
    inner = error.inner_exception if isinstance(error, PartlyLoaded) else None
    return error if inner is None else inner


def _brief(error: CheckpointException) -> str:
    """What is wrong with a checkpoint and where in it, without the advice to fall back, which is being followed."""
    cause = _cause(error)
    what = type(cause).__name__
    if not isinstance(cause, CorruptedCheckpoint):
        return f"{what}: {cause}"
    places = [
        cause.file and f"file {cause.file}",
        "" if cause.chunk is None else f"chunk {cause.chunk}",
        cause.tensor and f"tensor {cause.tensor}",
    ]
    return ", ".join([what, *filter(None, places)]) if any(places) else f"{what}, its manifest"


def _damaged_copy(store: Store, name: str, error: CheckpointException) -> set[str]:
    """Which copy on the medium an error speaks of, if it speaks of one."""
    cause = _cause(error)
    file = cause.file if isinstance(cause, CorruptedCheckpoint) else ""
    return {identity_of(store, name, file)} - {""} if file else set()


def _nothing_healthy(
    store: Store, passed: Sequence[tuple[str, str]], failures: Sequence[CheckpointException]
) -> CheckpointException:
    """The error of a load that has nothing left to fall back to, with advice that is left."""
    if not any(isinstance(_cause(error), CorruptedCheckpoint) for error in failures):
        return failures[-1]  # nothing is known to be damaged; the medium may answer later
    rows = "\n".join(f"  {where}: {why}" for where, why in passed[:_SHOWN])
    rows += f"\n  and {len(passed) - _SHOWN} more" if len(passed) > _SHOWN else ""
    message = (
        f"{store.url}: none of {len(passed)} checkpoints is healthy, nothing is left to fall back to:\n{rows}\n"
        "Load the parts that are whole with parts=[...]; `mckpt verify` lists all damage, `mckpt trash` what can be "
        "brought back."
    )
    error = NoHealthyCheckpoint(message, store.url, failures=failures)
    partly = [one for one in failures if isinstance(one, PartlyLoaded)]
    if not partly:
        return error
    replaced, partial = (sorted({name for one in partly for name in getattr(one, kind)}) for kind in _TOUCHED)
    return PartlyLoaded(
        f"{message} The live objects hold parts of them: replaced {some_of(replaced)}; "
        f"partly replaced {some_of(partial)}. Use atomic=True to change all or nothing.",
        store.url,
        replaced=replaced,
        partial=partial,
        inner_exception=error,
    )


_TOUCHED = ("replaced", "partial")
