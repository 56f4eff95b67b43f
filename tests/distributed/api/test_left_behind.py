"""What was left behind changes nothing any more: every call of a storage hangs in turn, and goes on later."""

import threading
import time
import uuid

import numpy as np
import pytest
from obstore.store import MemoryStore
from tests.distributed.api.own_parts import OwnStorage
from tests.distributed.threads import on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CallTimeout,
    DistributedCheckpoint,
    ExceptionType,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
)
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, PartlyLoaded
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import CALL_NAMES, Syscalls, WrappedCalls

SHORT = 1.0
AT_ONCE = 24
ELEMENTS = 3 << 20  # of four bytes: three chunks


class Hang:
    """Lets one call hang, the ``at``-th from 1 on, until it is told to go on."""

    def __init__(self, at, *, lasting=False):
        self.at, self.lasting, self.count, self.go_on = at, lasting, 0, threading.Event()
        self._guard = threading.Lock()

    def call(self):
        with self._guard:
            self.count += 1
            hangs = self.count == self.at or (self.lasting and self.count > self.at)
        if hangs:
            assert self.go_on.wait(60)


class HangingDisk(WrappedCalls):
    """System calls, of which those of some names may hang."""

    def __init__(self, hang, names=CALL_NAMES, when=lambda args: True):
        super().__init__(Syscalls())
        self._hang, self._names, self._when = hang, names, when

    def perform(self, name, action, *args, **kwargs):
        if name in self._names and self._when(args):
            self._hang.call()
        return action(*args, **kwargs)


class HangingStorage(OwnStorage):
    def __init__(self, hang):
        super().__init__()
        self.hang = hang


def _hanging(name):
    def call(self, *args, **kwargs):
        self.hang.call()
        return getattr(OwnStorage, name)(self, *args, **kwargs)

    return call


for _name in ("write", "create", "read", "exists", "delete", "list", "get_metadata"):
    setattr(HangingStorage, _name, _hanging(_name))


def local(folder, hang):
    return LocalStore(folder / uuid.uuid4().hex, calls=HangingDisk(hang))


def keys(folder, hang):
    return HangingStorage(hang)


def bucket(folder, hang):
    def through(request, call):
        hang.call()
        return call()

    store = ObjectStore(f"s3://bucket/{uuid.uuid4().hex}", store=MemoryStore())
    return store.with_requests(lambda inner: through)


def wait_for_threads(before):
    for thread in set(threading.enumerate()) - before:
        if thread.ident is not None and thread.name.startswith("mckpt-the"):
            thread.join(60)


def all_at_once(work, cases):
    """What ``work`` tells of each case, some of them at a time."""
    told = {}
    for first in range(0, len(cases), AT_ONCE):
        threads = [
            threading.Thread(target=lambda case=case: told.update({case: work(case)}))
            for case in cases[first : first + AT_ONCE]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told) == len(cases)
    return told


def outcome_of(call):
    try:
        return call()
    except CheckpointException as error:
        return error


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("place", [local, keys, bucket])
def test_a_save_that_hangs_anywhere_is_told_as_what_becomes_of_it(tmp_path, place, overwrite):
    def save(hang, storage, value, seconds):
        hang.count = 0
        options = SaveOptions(checkpoint_prefix="x", timeout=seconds, overwrite=overwrite, include_rng_state=False)
        return DistributedCheckpoint(LocalCoordinator(), storage).save(
            {"w": np.full(30, float(value))}, {"m": 1}, options
        )

    def begin(at):
        hang = Hang(0)
        storage = place(tmp_path, hang)
        if overwrite:
            save(hang, storage, 0, 60)
        hang.at = at
        return hang, storage

    def visible(storage):
        checkpoint = DistributedCheckpoint(LocalCoordinator(), storage)
        if not checkpoint.list_checkpoints():
            return None
        model = {"w": np.zeros(30)}
        checkpoint.load(model, {"m": 0}, LoadOptions(checkpoint_prefix="x"))
        return model["w"][0]

    def hung(at):
        before = set(threading.enumerate())
        hang, storage = begin(at)
        outcome = outcome_of(lambda: save(hang, storage, 1, SHORT))
        hang.at = 0
        seen = visible(storage)
        hang.go_on.set()
        wait_for_threads(before)
        return outcome, seen, visible(storage)

    whole, storage = begin(0)
    save(whole, storage, 1, 60)
    told = all_at_once(hung, range(1, whole.count + 1))

    old = 0 if overwrite else None
    for outcome, seen, later in told.values():
        if outcome == "x":
            assert (seen, later) == (1, 1)
        elif isinstance(outcome, CallTimeout):
            assert outcome.type is ExceptionType.TIMEOUT
            assert (seen, later) == (old, old), outcome
        else:  # in the very request that publishes, which nobody can take back
            assert isinstance(outcome, DurabilityUnknown), outcome
            assert place is not local
            assert later in (old, 1)
    kinds = [type(outcome) for outcome, _, _ in told.values()]
    assert kinds.count(DurabilityUnknown) <= 2
    assert CallTimeout in kinds
    assert place is not local or str in kinds  # it hangs after the rename, and is found to be there


class OwnOptimizer:
    """Is asked for its state, and handed the new one."""

    def __init__(self):
        self.m = np.zeros(9)

    def get_state_dict(self):
        return {"m": self.m.copy()}

    def load_state_dict(self, state):
        self.m = state["m"]


def saved(root):
    model, optimizer = {"w": np.ones(ELEMENTS, np.float32)}, OwnOptimizer()
    optimizer.m += 1
    options = SaveOptions(checkpoint_prefix="x", include_rng_state=False)
    DistributedCheckpoint(LocalCoordinator(), root).save(model, optimizer, options)


def states(live):
    return [(float(model["w"].sum()), float(optimizer.m.sum())) for model, optimizer in live]


@pytest.mark.parametrize(("world", "hangs"), [(1, 0), (2, 0), (2, 1)])
def test_a_load_that_hangs_anywhere_changes_nothing_once_it_has_raised(tmp_path, world, hangs):
    saved(tmp_path)

    def load(hang, seconds):
        live = [({"w": np.zeros(ELEMENTS, np.float32)}, OwnOptimizer()) for _ in range(world)]
        options = LoadOptions(checkpoint_prefix="x", timeout=seconds)

        def one(ranks):
            disk = HangingDisk(hang, ["preadv"]) if ranks.rank == hangs else Syscalls()
            DistributedCheckpoint(ranks, LocalStore(tmp_path, calls=disk)).load(*live[ranks.rank], options)

        return live, on_ranks(world, one)

    def hung(at):
        before, hang = set(threading.enumerate()), Hang(at)
        live, outcomes = load(hang, SHORT)
        raised = states(live)
        hang.go_on.set()
        wait_for_threads(before)
        return outcomes, raised, states(live)

    load(Hang(0), 60)  # from here on the page cache has the file, so that every load makes the same calls
    whole = Hang(0)
    assert load(whole, 60)[1] == [None] * world
    told = all_at_once(hung, range(1, whole.count + 1))

    for outcomes, raised, later in told.values():
        assert later == raised
        assert all(isinstance(one, (CallTimeout, PartlyLoaded)) for one in outcomes), outcomes
        assert {(one.type, one.ranks) for one in outcomes} == {(ExceptionType.TIMEOUT, (hangs,))}
        for one, (weights, moments) in zip(outcomes, raised, strict=True):
            assert isinstance(one, PartlyLoaded) or (weights, moments) == (0.0, 0.0)  # each tells of its own objects
            named = (*one.replaced, *one.partial) if isinstance(one, PartlyLoaded) else ()
            assert ("model.w" in named) == (weights > 0)
            assert all(name in str(one) for name in named)
    assert {type(outcomes[0]) for outcomes, _, _ in told.values()} == {CallTimeout, PartlyLoaded}


def on_folder_flush(args):
    return str(args[0]).endswith("/checkpoints")


@pytest.mark.parametrize("lasting", [False, True])
def test_a_save_that_hangs_after_its_rename_is_there_for_all_ranks(tmp_path, lasting):
    DistributedCheckpoint(LocalCoordinator(), tmp_path).save_model_only({"w": 1}, SaveOptions(checkpoint_prefix="a"))
    before, hang = set(threading.enumerate()), Hang(1, lasting=lasting)

    def save(ranks):
        disk = HangingDisk(hang, ["fsync_dir"], when=on_folder_flush) if ranks.rank == 0 else Syscalls()
        options = SaveOptions(checkpoint_prefix="x", timeout=SHORT)
        return DistributedCheckpoint(ranks, LocalStore(tmp_path, calls=disk)).save({"w": np.ones(9)}, {"m": 1}, options)

    first, *others = on_ranks(3, save)
    hang.go_on.set()
    wait_for_threads(before)

    assert hang.count >= 1
    assert others == ["x", "x"]  # they have flushed it themselves
    assert first == "x"  # also if its own disk never answers again: the others have told it
    assert np.all(mc.load(tmp_path, name="x")["model"]["w"] == 1)


@pytest.mark.parametrize("hangs", [0, 1, 2])
def test_all_ranks_are_told_the_same_of_a_disk_that_hangs_and_in_time(tmp_path, hangs):
    before, hang = set(threading.enumerate()), Hang(1, lasting=True)

    def save(ranks):
        disk = HangingDisk(hang, ["pwrite"]) if ranks.rank == hangs else Syscalls()
        started = time.monotonic()
        options = SaveOptions(checkpoint_prefix="x", timeout=SHORT)
        store = LocalStore(tmp_path, calls=disk)
        outcome = outcome_of(lambda: DistributedCheckpoint(ranks, store).save({"w": np.ones(999)}, {"m": 1}, options))
        return outcome, time.monotonic() - started

    told = on_ranks(3, save)
    hang.go_on.set()
    wait_for_threads(before)

    assert [(type(error), error.ranks) for error, _ in told] == [(CallTimeout, (hangs,))] * 3
    assert all(seconds < SHORT + 4 for _, seconds in told), told
    assert mc.list_checkpoints(tmp_path) == []
