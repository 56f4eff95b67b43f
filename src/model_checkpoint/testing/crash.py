"""Crash: cut a piece of work at each of its storage calls in turn.

A fault that kills gets a child process to end; one that only fails is met right here, which is much faster, because a
fork costs milliseconds where large frameworks are loaded.
"""

from __future__ import annotations

import itertools
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from model_checkpoint.errors import CheckpointException
from model_checkpoint.testing.faults import KILLED, KILLS, Call, Fault, FaultyCalls


class Ended(Enum):
    """How the child came to its end."""

    RETURNED = "returned"
    RAISED = "raised"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the work: its value, its error, or nothing."""

    ended: Ended
    value: Any = None
    error: CheckpointException | None = None
    trace: tuple[Call, ...] = ()  # empty if killed

    @property
    def acknowledged(self) -> bool:
        """Whether the work told its caller that it was done."""
        return self.ended is Ended.RETURNED


def run_in_child(work: Callable[[FaultyCalls], Any], fault: Fault | None = None) -> Outcome:
    """Fork, do ``work`` with faulty calls, and report how it ended.

    Only errors of ours are outcomes; any other exception of the child is raised here as an AssertionError with its
    traceback, since a fault must never surface untyped.

    Example:
        >>> run_in_child(lambda calls: calls.stat("/").st_nlink > 0).value
        True
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _be_child(work, FaultyCalls(fault), writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        message = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == KILLED and not message:
        return Outcome(ended=Ended.KILLED)
    if code != 0:
        raise AssertionError(f"the child ended with {code}:\n{message.decode(errors='replace')}")
    outcome: Outcome = pickle.loads(message)  # from our own child, through a pipe only it could write to
    return outcome


def run_here(work: Callable[[FaultyCalls], Any], fault: Fault | None = None) -> Outcome:
    """Do ``work`` with faulty calls in this process, where ``fault`` must not be one that kills.

    Any other exception than ours goes on to the caller, since a fault must never surface untyped.

    Example:
        >>> run_here(lambda calls: calls.stat("/").st_nlink > 0).value
        True
    """
    return _outcome(work, FaultyCalls(fault))


def _be_child(work: Callable[[FaultyCalls], Any], calls: FaultyCalls, writer: int) -> None:
    """Do the work and leave without running anything of the parent's."""
    code = 0
    try:
        message = pickle.dumps(_outcome(work, calls))
    except BaseException:  # noqa: BLE001  whatever it is, the parent must show it
        code, message = 1, traceback.format_exc().encode()
    with os.fdopen(writer, "wb") as stream:
        stream.write(message)
    os._exit(code)


def _outcome(work: Callable[[FaultyCalls], Any], calls: FaultyCalls) -> Outcome:
    try:
        value = work(calls)
    except CheckpointException as error:
        error.inner_exception = None  # may not pickle; its text is in the message
        return Outcome(ended=Ended.RAISED, error=error, trace=tuple(calls.trace))
    return Outcome(ended=Ended.RETURNED, value=value, trace=tuple(calls.trace))


def each_call(
    work: Callable[[FaultyCalls], Any], fault: Fault, *, prepare: Callable[[], None]
) -> Iterator[tuple[int, Outcome]]:
    """Do ``work`` once for each call it makes, with ``fault`` at that call; ``prepare`` the ground before each.

    Ends after the first run that the fault did not reach.
    """
    run = run_in_child if fault.kind in KILLS else run_here
    for at in itertools.count(1):
        prepare()
        outcome = run(work, replace(fault, at=at))
        if outcome.ended is not Ended.KILLED and all(call.index != at for call in outcome.trace):
            return
        yield at, outcome
