"""A load that fails midway on one rank: each rank tells whether its own live objects were changed."""

import threading

import numpy as np
import pytest
from tests.distributed.threads import on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import CallTimeout, DistributedCheckpoint, LoadOptions, SaveOptions
from model_checkpoint.errors import ExceptionType, PartlyLoaded, RankLost, StorageFailure
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

ARRAY = 128 << 10  # bytes that are read at once, and are no header
WEIGHTS = np.arange(3 << 20, dtype=np.float32)


class BrokenReads(Syscalls):
    """A disk that gives the headers of files, and none of their arrays."""

    def preadv(self, fd, buffer, offset):
        if len(buffer) >= ARRAY:
            raise OSError(5, "Input/output error")
        return super().preadv(fd, buffer, offset)


class MeetingReads(Syscalls):
    """A disk whose first array is read when all ranks have begun to read; then it breaks for the victim.

    A rank that fails before the others were told to go on leaves them as they were: that is no load midway.
    """

    def __init__(self, all_read: threading.Barrier, *, breaks: bool):
        super().__init__()
        self._all_read, self._breaks, self._first = all_read, breaks, threading.Lock()

    def preadv(self, fd, buffer, offset):
        if len(buffer) >= ARRAY:
            if self._first.acquire(blocking=False):
                self._all_read.wait(60)
            if self._breaks:
                raise OSError(5, "Input/output error")
        return super().preadv(fd, buffer, offset)


class HeldReads(Syscalls):
    """A disk that gives arrays only when it is let."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()

    def preadv(self, fd, buffer, offset):
        assert len(buffer) < ARRAY or self.go_on.wait(60)
        return super().preadv(fd, buffer, offset)


@pytest.fixture
def root(tmp_path):
    mc.save(tmp_path, {"w": WEIGHTS, "step": 1}, step=1)
    return tmp_path


@pytest.mark.parametrize("victim", [0, 1])
def test_whose_objects_were_changed_says_so_and_the_others_raise_the_error_itself(root, victim):
    live, all_read = [np.zeros_like(WEIGHTS) for _ in range(3)], threading.Barrier(3)

    def load(ranks):
        calls = MeetingReads(all_read, breaks=ranks.rank == victim)
        return mc.load(LocalStore(root, calls=calls), into={"w": live[ranks.rank]}, parts="w", coordinator=ranks)

    outcomes = on_ranks(3, load)

    for rank, error in enumerate(outcomes):
        assert (not live[rank].any()) == (rank == victim)
        if rank == victim:
            assert type(error) is StorageFailure
            continue
        assert (type(error), error.replaced, error.partial, error.ranks) == (PartlyLoaded, ("w",), (), (victim,))
        assert type(error.inner_exception) is StorageFailure
        assert f"rank {victim} of 3" in str(error)
        assert "Load again into the same objects" in str(error)


def test_however_early_the_leader_fails_a_rank_says_that_it_was_changed_exactly_if_it_was(root):
    live = [np.zeros_like(WEIGHTS) for _ in range(3)]

    def load(ranks):
        calls = Syscalls() if ranks.rank else BrokenReads()
        return mc.load(LocalStore(root, calls=calls), into={"w": live[ranks.rank]}, parts="w", coordinator=ranks)

    outcomes = on_ranks(3, load)

    assert [type(one) is PartlyLoaded for one in outcomes] == [bool(one.any()) for one in live]


def test_a_load_of_no_live_objects_changes_none(root):
    def load(ranks):
        return mc.load(LocalStore(root, calls=BrokenReads() if ranks.rank else Syscalls()), coordinator=ranks)

    assert [type(one) for one in on_ranks(2, load)] == [StorageFailure] * 2


def test_a_change_of_plain_values_alone_is_told_too(root):
    def load(ranks):
        live = {"step": 0} if ranks.rank == 0 else {"w": np.zeros_like(WEIGHTS)}
        store = LocalStore(root, calls=BrokenReads() if ranks.rank else Syscalls())
        return mc.load(store, into=live, strict=False, coordinator=ranks)

    first, second = on_ranks(2, load)

    assert (type(first), first.replaced) == (PartlyLoaded, ("step",))
    assert type(second) is StorageFailure


def test_falling_back_remembers_what_the_tries_before_have_changed(root):
    mc.save(root, {"w": WEIGHTS + 1, "step": 2}, step=2)

    def load(ranks):
        store = LocalStore(root, calls=BrokenReads() if ranks.rank else Syscalls())
        return mc.load(store, into={"w": np.zeros_like(WEIGHTS)}, parts="w", coordinator=ranks, fallback=True)

    first, second = on_ranks(2, load)

    assert (type(first), first.replaced) == (PartlyLoaded, ("w",))
    assert type(second) is StorageFailure


@pytest.mark.parametrize(("patience", "timeout", "kind"), [(1.0, 60.0, RankLost), (60.0, 1.0, CallTimeout)])
def test_a_rank_that_hangs_midway_and_the_others_tell_the_same_of_it(tmp_path, patience, timeout, kind):
    state = {"w": WEIGHTS.copy()}
    on_ranks(
        1,
        lambda c: DistributedCheckpoint(c, tmp_path).save(
            state, None, SaveOptions(checkpoint_prefix="first", include_optimizer=False, include_rng_state=False)
        ),
    )
    live, disk = [{"w": np.zeros_like(WEIGHTS)} for _ in range(2)], HeldReads()
    told = []

    def load(ranks):
        store = LocalStore(tmp_path, calls=disk) if ranks.rank else tmp_path
        options = LoadOptions(checkpoint_prefix="first", load_optimizer=False, skip_validation=True, timeout=timeout)
        try:
            return DistributedCheckpoint(ranks, store).load(live[ranks.rank], None, options)
        finally:
            told.append(ranks.rank)
            if len(told) == (1 if kind is RankLost else 2):
                disk.go_on.set()

    first, second = on_ranks(2, load, patience=patience)

    assert (type(first), first.type, first.ranks) == (PartlyLoaded, ExceptionType.TIMEOUT, (1,))
    assert type(first.inner_exception) is kind
    assert first.replaced == ("model.w",)
    assert second.type is ExceptionType.TIMEOUT
    assert second.ranks == (1,)
    if kind is CallTimeout:
        assert type(second) is CallTimeout
        assert not live[1]["w"].any()
    else:
        assert (type(second), type(second.inner_exception)) == (PartlyLoaded, RankLost)
