"""Bounded call: a call is waited for as long as it may take; one that hangs is left behind.

A disk that hangs lets nobody go who waits for it, so the call runs in a thread of its own. What that thread holds, such
as open files and the memory it reads into, stays its own until it comes back, if ever; it then finds that the time is
over, and makes nothing visible (:mod:`model_checkpoint.distributed.calling.limited_calls`).
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.pending_call import Attend, PendingCall
from model_checkpoint.distributed.errors import CallTimeout

T = TypeVar("T")

LAST_WORDS = 1.0  # seconds in which a call whose time is over may still say so itself, alike on all ranks


def within(
    limit: CallLimit,
    work: Callable[[], T],
    *,
    patience: float = 0.0,
    tell: Callable[[CallTimeout], object] = lambda error: None,
    attend: Attend = None,
    late: Callable[[T], object] | None = None,
) -> T:
    """What ``work`` returns or raises; if it hangs, ``tell`` is told and the error raised that it took too long.

    A rank that waits for another may notice only after ``patience`` seconds of silence, and must then still decide
    with it what has become of the call: whoever left before would tell another end than the others.
    What it returns all the same, when nobody waits any more, is for ``late``.

    Example:
        >>> within(CallLimit("a sum", seconds=60), lambda: 1 + 1)
        2
    """
    call = PendingCall(limit.what, _as_here(work), threading.Event(), attend, daemon=True)
    try:
        return call.result(min(limit.left + patience + LAST_WORDS, threading.TIMEOUT_MAX))
    except CallTimeout:
        if call.done():
            return call.result()
        call.at_end(late)
        error = limit.hung()
        tell(error)
        raise error from None
    except BaseException as error:
        if not call.done():
            limit.interrupt(error)
            call.wait(LAST_WORDS)  # for the others to hear of it
        call.at_end(late)
        raise


def _as_here(work: Callable[[], T]) -> Callable[[], T]:
    """``work`` for another thread, with what this thread has of its own: context variables and the current device."""
    context, cuda = contextvars.copy_context(), getattr(sys.modules.get("torch"), "cuda", None)
    device = cuda.current_device() if cuda is not None and cuda.is_initialized() else None

    def run() -> T:
        if cuda is not None and device is not None:
            cuda.set_device(device)
        return work()

    return lambda: context.run(run)
