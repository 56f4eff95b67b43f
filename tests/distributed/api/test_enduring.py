"""What is tried again, what is not, who stops waiting, and what is cleared away."""

import errno
import itertools
import threading
from contextlib import suppress
from datetime import timedelta

import numpy as np
import pytest
from obstore.store import MemoryStore
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CallTimeout,
    DistributedCheckpoint,
    FaultToleranceHandler,
    LoadOptions,
    LocalCoordinator,
    RetryPolicy,
    SaveOptions,
)
from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.storage.objects.requests.failures import typed_answer
from model_checkpoint.testing.faults import Fault, FaultyCalls, Kind, flushes_retried


class Weather:
    """An operation that fails a few times."""

    def __init__(self, *failures):
        self.failures, self.calls = list(failures), 0

    def __call__(self):
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def handler(waits, **policy):
    return FaultToleranceHandler("memory://weather", RetryPolicy(**policy), wait=waits.append)


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "x"), OSError(errno.ESTALE, "x"), TimeoutError("x")])
def test_what_may_pass_is_tried_again(failure):
    waits, weather = [], Weather(failure, failure)

    assert handler(waits).execute_with_retry(weather) == "done"
    assert (weather.calls, len(waits)) == (3, 2)


@pytest.mark.parametrize(
    "failure",
    [ValueError("x"), FileNotFoundError(2, "x"), OSError(errno.ENOSPC, "x"), PermissionError(13, "x")],
)
def test_what_will_not_pass_is_raised_at_once(failure):
    waits, weather = [], Weather(failure)

    with pytest.raises(type(failure)):
        handler(waits).execute_with_retry(weather)
    assert (weather.calls, waits) == (1, [])


def test_the_exceptions_to_be_tried_again_can_be_chosen():
    waits, weather = [], Weather(KeyError("x"), KeyError("x"))

    assert handler(waits, retryable_exceptions=(KeyError,)).execute_with_retry(weather) == "done"
    with pytest.raises(OSError, match="x"):
        handler(waits, retryable_exceptions=(KeyError,)).execute_with_retry(Weather(OSError(errno.EIO, "x")))


def test_after_the_last_try_the_last_failure_is_raised():
    waits, weather = [], Weather(*[OSError(errno.EIO, str(number)) for number in range(9)])

    with pytest.raises(OSError, match="3"):
        handler(waits, max_retries=3).execute_with_retry(weather)
    assert weather.calls == 4


def test_waits_grow_to_the_longest_and_are_spread():
    policy = RetryPolicy(max_retries=6, initial_delay=timedelta(seconds=1), max_delay=10, backoff_factor=3.0)
    assert list(policy.delays()) == [1, 3, 9, 10, 10, 10]

    waits = []
    FaultToleranceHandler("memory://weather", policy, wait=waits.append).execute_with_retry(
        Weather(*[TimeoutError()] * 6)
    )
    assert all(0.75 * base <= wait <= base for base, wait in zip(policy.delays(), waits, strict=True))
    assert waits[3:] != sorted(set(waits[3:]), key=waits.index)[:1] * 3


def test_nobody_waits_longer_than_the_timeout():
    gate = threading.Event()
    try:
        with pytest.raises(CallTimeout, match=r"did not answer within 0\.05 s"):
            handler([]).execute_with_timeout(lambda: gate.wait(60), timedelta(milliseconds=50))
        assert handler([]).execute_with_timeout(lambda: 7, 60) == 7
        with pytest.raises(TimeoutError, match="its own"):
            handler([]).execute_with_timeout(Weather(TimeoutError("its own")), 60)
    finally:
        gate.set()


def test_a_rollback_never_touches_a_whole_checkpoint_and_never_raises(tmp_path):
    mc.save(tmp_path, {"w": 1}, name="x")
    FaultToleranceHandler(tmp_path).rollback("x")
    FaultToleranceHandler(tmp_path).rollback("../x")
    FaultToleranceHandler(tmp_path / "nowhere").rollback("x")

    class Broken(Syscalls):
        def lstat(self, path):
            raise OSError(errno.EIO, "broken")

    FaultToleranceHandler(LocalStore(tmp_path, calls=Broken())).rollback("y")
    assert mc.load(tmp_path) == {"w": 1}


@pytest.mark.slow
def test_a_flush_is_never_repeated_whatever_the_policy(tmp_path):
    """Every single call of a save fails once; what is repeated is no flush, and gives no name."""

    def save(folder, calls):
        store = LocalStore(tmp_path / folder, calls=calls)
        tolerant = FaultToleranceHandler(store, RetryPolicy(max_retries=2), wait=lambda seconds: None)
        checkpoint = DistributedCheckpoint(LocalCoordinator(), store, tolerant)
        checkpoint.save_model_only({"w": np.ones(9)}, SaveOptions(checkpoint_prefix="x"))
        return calls.trace

    repeated = set()
    for number in range(1, len(save("count", FaultyCalls())) + 1):
        calls = FaultyCalls(Fault(kind=Kind.FAIL, at=number, code=errno.EIO))
        with suppress(mc.CheckpointException):
            save(str(number), calls)
        assert flushes_retried(calls.trace) == []
        before, after = ([one for one in calls.trace if one.index == number + later] for later in (0, 1))
        if before and after and (before[0].name, before[0].path) == (after[0].name, after[0].path):
            repeated.add(before[0].name)

    assert "pwrite" in repeated
    assert repeated <= {"open", "pwrite", "preadv", "fstat", "stat", "lstat", "listdir", "statvfs"}


def test_a_fault_handler_is_never_asked_around_a_word_to_other_ranks(tmp_path):
    """A rank that said something twice would wait for others who are elsewhere by then."""
    inside, asked, said = threading.local(), [], []

    class Handler(FaultToleranceHandler):
        def execute_with_retry(self, operation):
            inside.depth = getattr(inside, "depth", 0) + 1
            asked.append(inside.depth)
            try:
                return super().execute_with_retry(operation)
            finally:
                inside.depth -= 1

    class Watched:
        def __init__(self, ranks):
            self._ranks = ranks

        def __getattr__(self, name):
            return getattr(self._ranks, name)

        def put(self, key, value):
            said.append(getattr(inside, "depth", 0))
            self._ranks.put(key, value)

        def collect(self, keys, until):
            said.append(getattr(inside, "depth", 0))
            return self._ranks.collect(keys, until)

    def work(ranks):
        checkpoint = DistributedCheckpoint(Watched(ranks), tmp_path, Handler(tmp_path))
        model = {"w": np.ones(1000), "own": ranks.rank}
        checkpoint.save(model, {"m": 1}, SaveOptions(checkpoint_prefix="x"))
        checkpoint.save_async(model, {"m": 1}, SaveOptions(checkpoint_prefix="y")).result(60)
        checkpoint.load(model, {"m": 0}, LoadOptions(checkpoint_prefix="x"))
        checkpoint.list_checkpoints()
        checkpoint.delete_checkpoint("x")

    all_well(on_ranks(2, work))

    assert len(asked) > 20
    assert set(said) == {0}


def unsteady_bucket():
    """A bucket that drops every other request; those it may be asked only once come through."""
    count = itertools.count()

    def through(request, call):
        if not (request.decides or request.streams) and next(count) % 2 == 0:
            raise typed_answer(ConnectionError("reset by peer"), "s3://bucket/a", "could not be reached")
        return call()

    return ObjectStore("s3://bucket/a", store=MemoryStore()).with_requests(lambda inner: through)


def test_requests_to_a_bucket_are_tried_again_by_the_policy():
    waits, store = [], unsteady_bucket()
    patient = FaultToleranceHandler(store, RetryPolicy(max_retries=1), wait=waits.append)
    checkpoint = DistributedCheckpoint(LocalCoordinator(), store, patient)
    model = {"w": np.zeros(3)}

    checkpoint.save({"w": np.ones(3)}, {"m": 1}, SaveOptions(checkpoint_prefix="x"))
    checkpoint.load(model, {"m": 0}, LoadOptions(checkpoint_prefix="x"))

    assert model["w"].tolist() == [1, 1, 1]
    assert len(waits) > 10


def test_requests_to_a_bucket_are_made_once_if_the_policy_says_so():
    waits, store = [], unsteady_bucket()
    hasty = FaultToleranceHandler(store, RetryPolicy(max_retries=0), wait=waits.append)

    with pytest.raises(StorageFailure, match="could not be reached"):
        DistributedCheckpoint(LocalCoordinator(), store, hasty).save({"w": np.ones(3)}, {"m": 1})
    assert waits == []


def test_a_refusal_of_a_bucket_is_not_tried_again():
    policy = RetryPolicy()

    assert policy.is_retryable(typed_answer(Exception("503"), "s3://b", "x"))
    assert not policy.is_retryable(typed_answer(FileNotFoundError("gone"), "s3://b", "x"))
    assert not policy.is_retryable(typed_answer(Exception("status code: 403"), "s3://b", "x"))
    assert not policy.is_retryable(typed_answer(Exception("builder error"), "s3://b", "x"))
