"""Bounded call: a call is waited for as long as it may take; one that hangs is left behind.

A disk that hangs lets nobody go who waits for it, so the call runs in a thread of its own. What that thread holds, such
as open files and the memory it reads into, stays its own until it comes back, if ever; it then finds that the time is
over, and changes nothing that others can see (:meth:`CallLimit.passing`).

What the other ranks have said became of it by then, this one says too. A save that may have been committed is ended for
good, as every rank does who loses patience: so all of them learn the same. A load that has begun to change live objects
names them.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.pending_call import Attend, PendingCall
from model_checkpoint.distributed.errors import CallTimeout
from model_checkpoint.engine.ranks.error_records import retold
from model_checkpoint.errors import CheckpointException

T = TypeVar("T")

_LOOK = 0.05  # seconds between two looks at what other ranks say
LAST_WORDS = 1.0  # seconds in which a call whose time is over may still say so itself, alike on all ranks


def within(
    limit: CallLimit,
    work: Callable[[], T],
    *,
    rank: int = 0,
    world_size: int = 1,
    telling: float = 0.0,
    tell: Callable[[CheckpointException], object] = lambda error: None,
    attend: Attend = None,
    late: Callable[[T], object] | None = None,
    landed: Callable[[], T] | None = None,
) -> T:
    """What ``work`` returns or raises; if it hangs, ``tell`` is told and the error raised that it took too long.

    A rank that waits for another is told the end within ``telling`` seconds, or finds it out: whoever left before would
    tell another end than the others. What it returns all the same, when nobody waits any more, is for ``late``. A save
    that hangs but is found to be committed returns what ``landed`` does.

    Example:
        >>> within(CallLimit("a sum", seconds=60), lambda: 1 + 1)
        2
    """
    call = PendingCall(limit.what, _as_here(work), threading.Event(), attend, daemon=True, begin=False)
    try:
        call.begin()
        return call.result(min(limit.left + telling, threading.TIMEOUT_MAX))
    except CallTimeout:
        call.wait(LAST_WORDS)  # if all of this process was stopped, it has not had the time to say anything
        if call.done():
            return call.result()
        call.at_end(late)
        limit.leave(LAST_WORDS)
        error = _ended(limit, rank, world_size, may_land=landed is not None)
        if error is None and landed is not None:
            return landed()
        error = error or limit.told(limit.hung(rank))
        tell(error)
        raise error from error.__cause__
    except BaseException as error:
        if not call.done():
            limit.interrupt(error)
            call.wait(LAST_WORDS)  # for the others to hear of it
            limit.leave(LAST_WORDS)
        call.at_end(late)
        raise


def _ended(limit: CallLimit, rank: int, world_size: int, *, may_land: bool) -> CheckpointException | None:
    """The error of a call that was left, None if it is a save that is committed: as others say, or its storage."""
    hung, settle = limit.told(limit.hung(rank)), limit.settle(rank) if may_land else None
    if settle is not None and limit.is_unsure:
        return limit.unsettled(CallTimeout("the request that publishes it is not answered"))
    asked = None if settle is None else PendingCall("settle", settle, threading.Event(), daemon=True)
    end = time.monotonic() + LAST_WORDS
    while True:
        word = _said(limit)
        if word is not None and "error" in word:
            return limit.told(retold(word["error"], world_size, named=not word.get("common", False)))
        if word is not None:
            return None
        if asked is None:
            return hung
        try:
            return None if asked.result(_LOOK) else hung
        except (CheckpointException, OSError) as failure:
            if asked.done() or time.monotonic() > end:
                return limit.unsettled(failure)


def _said(limit: CallLimit) -> dict[str, Any] | None:
    """What other ranks say became of the call; nothing if what keeps their words hangs, too."""
    look = PendingCall("outcome", limit.outcome, threading.Event(), daemon=True)
    try:
        return look.result(LAST_WORDS)
    except CallTimeout:
        return None


def _as_here(work: Callable[[], T]) -> Callable[[], T]:
    """``work`` for another thread, with what this thread has of its own: context variables and the current device."""
    context, cuda = contextvars.copy_context(), getattr(sys.modules.get("torch"), "cuda", None)
    device = cuda.current_device() if cuda is not None and cuda.is_initialized() else None

    def run() -> T:
        if cuda is not None and device is not None:
            cuda.set_device(device)
        return work()

    return lambda: context.run(run)
