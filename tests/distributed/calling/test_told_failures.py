"""An error of a call has all that a caller looks for on it: the type, the checkpoint, the cause."""

import logging
import time

from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.error_details import told_failures
from model_checkpoint.distributed.calling.limited_coordinator import LateLeader
from model_checkpoint.errors import CheckpointException, ExceptionType, StorageFailure

LOG = logging.getLogger("told")


def told(error, *, limit=None, cause=None):
    """What becomes of an error that a call raises."""
    try:
        with told_failures("save", lambda: "a/place", ExceptionType.SAVE_FAILED, LOG, limit=limit):
            raise error from cause
    except CheckpointException as raised:
        return raised


def test_what_an_error_does_not_say_is_added(caplog):
    cause = OSError("the disk")

    error = told(CheckpointException("it failed"), cause=cause)

    assert (error.checkpoint_path, error.type, error.inner_exception) == ("a/place", ExceptionType.SAVE_FAILED, cause)
    assert caplog.messages == ["Failed to save checkpoint: a/place: it failed"]


def test_what_an_error_says_is_kept():
    cause, raised = OSError("the disk"), StorageFailure("it failed", "elsewhere", inner_exception=OSError("first"))

    error = told(raised, cause=cause)

    assert error is raised
    assert (error.checkpoint_path, str(error.inner_exception)) == ("elsewhere", "first")
    assert error.type is StorageFailure("").type is not ExceptionType.SAVE_FAILED
    assert error.__cause__ is cause


def test_an_error_that_is_its_own_cause_has_no_other():
    raised = CheckpointException("it failed")

    error = told(raised, cause=raised)

    assert error is raised
    assert error.inner_exception is None


def test_an_error_of_anybody_else_becomes_one_of_the_call(caplog):
    cause = TypeError("no state")

    error = told(cause)

    assert str(error) == "Failed to save checkpoint: a/place (TypeError: no state)"
    assert (error.checkpoint_path, error.type, error.inner_exception) == ("a/place", ExceptionType.SAVE_FAILED, cause)
    assert error.__cause__ is cause
    assert caplog.messages == [str(error)]


def test_what_the_limit_makes_of_an_error_is_raised_with_its_cause():
    limit, cause = CallLimit("the save", seconds=60, world_size=2), OSError("silent")
    limit.end = time.monotonic() - 1
    late = limit.late([0])
    late.__cause__ = cause

    error = told(LateLeader(late), limit=limit)

    assert error is late
    assert (error.__cause__, error.inner_exception, error.checkpoint_path) == (cause, cause, "a/place")
