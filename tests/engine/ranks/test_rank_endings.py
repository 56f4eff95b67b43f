"""However a save or load of many ranks ends, in memory and in every phase: all tell the same, nothing is half done."""

import threading

import msgspec
import numpy as np
import pytest
from tests.distributed.faults.fault_scenes import Trap, TrappedCoordinator
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.errors import DurabilityUnknown, PartlyLoaded, RankFailed, RankLost, StorageFailure
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.memory import InMemoryStore

FOLLOWER = {"save": ["hello", "detail", "create", "flush", "vote", "vote said"], "load": ["hello", "ready0", "done0"]}
LEADER = {
    "save": ["open", "open said", "pooled", "create", "publish", "published", "verdict"],
    "load": ["open0", "go0", "end0"],
}
TRIALS = [(way, phase, rank) for rank, ways in enumerate((LEADER, FOLLOWER)) for way in ways for phase in ways[way]]
PATIENCE = {"verdict": 1.0, "pooled": 4.0}  # where others wait in vain, or look now and then whether it is over
COMMITTED = ("published", "verdict")


class TrappedAttempt:
    """An attempt with traps: before a file is made, the names are flushed, or the manifest is put, and after that."""

    def __init__(self, inner, trap):
        self._inner, self._trap = inner, trap

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create(self, *arguments, **options):
        self._trap.at("create")
        return self._inner.create(*arguments, **options)

    def flush(self):
        self._trap.at("flush")
        self._inner.flush()

    def publish(self, *arguments, **options):
        self._trap.at("publish")
        self._inner.publish(*arguments, **options)
        self._trap.at("published")


class TrappedStore(InMemoryStore):
    """Memory, with traps."""

    trap = Trap(None, None)

    def stage_shared(self, name, attempt):
        return TrappedAttempt(super().stage_shared(name, attempt), self.trap)

    def join(self, name, attempt):
        return TrappedAttempt(super().join(name, attempt), self.trap)


def state(rank, step):
    return {"all": np.arange(600) + step, "own": np.full(10, rank + step)}


def outcome(ranks, store, way):
    live = {"all": np.zeros(600, int)}
    try:
        if way == "load":
            mc.load(store, parts="all", into=live, coordinator=ranks)
        else:
            mc.save(store, state(ranks.rank, 2), step=2, coordinator=ranks)
    except BaseException as error:  # noqa: BLE001 - looked at by the test
        return error, bool(live["all"].any())
    return None, bool(live["all"].any())


def attempted(root, way, phase, victim, error, patience=60.0):
    """What became of each rank, when an error was raised in a phase of one of them."""
    mc.save(root, state(0, 1), step=1)

    def spring():
        raise error

    def work(ranks):
        trap, store = Trap(phase if ranks.rank == victim else None, spring), TrappedStore(root)
        store.trap = trap
        found = outcome(TrappedCoordinator(ranks, trap), store, way)
        assert trap.phase is None, phase
        return found

    return all_well(on_ranks(2, work, patience=patience))


def require_whole(root, *, committed):
    assert [info.step for info in mc.list_checkpoints(root)] == ([2, 1] if committed else [1])
    assert all(health.ok for health in mc.verify(root))
    assert np.array_equal(mc.load(root, parts="all")["all"], np.arange(600) + (2 if committed else 1))
    assert not [stage for stage in InMemoryStore(root)._bucket.stages.values() if stage.alive]


@pytest.fixture
def root(tmp_path):
    return f"memory://{tmp_path.name}"


@pytest.mark.parametrize(("way", "phase", "victim"), TRIALS)
def test_an_interrupt_in_any_phase_is_heard_by_all(root, way, phase, victim):
    stop = KeyboardInterrupt("by hand")

    outcomes = attempted(root, way, phase, victim, stop, patience=PATIENCE.get(phase, 60.0))

    assert outcomes[victim][0] is stop
    committed = way == "save" and phase in COMMITTED
    heard, changed = outcomes[1 - victim]
    require_whole(root, committed=committed or (heard is None and phase == "vote said"))
    if committed:
        assert heard is None
    elif heard is not None:
        assert (type(heard), heard.ranks) == (PartlyLoaded if changed else RankFailed, (victim,))
        why = heard.inner_exception if changed else heard
        assert (type(why), str(why)) == (RankFailed, f"rank {victim} of 2: KeyboardInterrupt: by hand")
        assert not changed or heard.replaced
        assert not changed or phase in ("done0", "end0")
    else:
        assert phase == "vote said"


@pytest.mark.parametrize(("phase", "victim"), [("create", 0), ("publish", 0), ("create", 1), ("flush", 1)])
def test_a_store_that_fails_one_rank_fails_all_alike(root, phase, victim):
    outcomes = attempted(root, "save", phase, victim, StorageFailure("no room", "here", code=28))

    require_whole(root, committed=False)
    assert [type(error) for error, _ in outcomes] == [StorageFailure] * 2
    assert [str(error) for error, _ in outcomes] == [f"rank {victim} of 2: no room"] * 2
    assert [error.ranks for error, _ in outcomes] == [(victim,)] * 2


def test_what_is_found_in_place_was_saved_whatever_the_store_said(root):
    outcomes = attempted(root, "save", "published", 0, StorageFailure("no answer", "here", code=5))

    assert outcomes == [(None, False)] * 2
    require_whole(root, committed=True)


def test_a_commit_that_may_not_last_is_told_by_all(root):
    outcomes = attempted(root, "save", "published", 0, DurabilityUnknown("not flushed", "here"))

    assert [type(error) for error, _ in outcomes] == [DurabilityUnknown] * 2
    assert all("not flushed" in str(error) for error, _ in outcomes)
    require_whole(root, committed=True)


def test_rank_0_whose_files_were_taken_away_learns_that_it_was_given_up(root):
    outcomes = attempted(root, "save", "publish", 0, StorageFailure("no such file", "here", code=2))

    assert [type(error) for error, _ in outcomes] == [RankLost] * 2
    assert "the other ranks have given this save up, because rank 0 gave no sign" in str(outcomes[0][0])
    assert [error.ranks for error, _ in outcomes] == [(0,)] * 2
    require_whole(root, committed=False)


def test_each_rank_hands_over_how_a_save_is_settled_before_anybody_can_see_it(root):
    handed = []

    class Deciding(TrappedCoordinator):
        def deciding(self, settle):
            handed.append((self.rank, len(mc.list_checkpoints(root)), settle))

    def work(ranks):
        return outcome(Deciding(ranks, Trap(None, None)), TrappedStore(root), "save")

    assert all_well(on_ranks(2, work)) == [(None, False)] * 2
    assert sorted((rank, seen) for rank, seen, _ in handed) == [(0, 0), (1, 0)]
    assert all(settle() for _, _, settle in handed)


def test_each_rank_gives_signs_of_life_while_it_writes(root):
    writing, signs = threading.Barrier(2, timeout=60), []

    def look():
        writing.wait()  # both have planned by now
        signs.append([thread.name for thread in threading.enumerate()].count("mckpt-herald"))
        writing.wait()

    def work(ranks):
        store = TrappedStore(root)
        store.trap = Trap("create", look)
        return outcome(TrappedCoordinator(ranks, Trap(None, None)), store, "save")

    assert all_well(on_ranks(2, work)) == [(None, False)] * 2
    assert signs == [2, 2]


@pytest.mark.parametrize("phase", ["publish", "published"])
def test_a_rank_to_which_rank_0_says_nothing_looks_for_itself(root, phase):
    """Rank 0 is held in a phase until the other has given it up; what that finds is what there is."""
    mc.save(root, state(0, 1), step=1)
    gone = threading.Event()

    def work(ranks):
        store, silent = TrappedStore(root), TrappedCoordinator(ranks, Trap(None, None))
        if ranks.rank == 0:
            store.trap = Trap(phase, lambda: hold(silent))
        try:
            return outcome(silent, store, "save")
        finally:
            gone.set()

    def hold(silent):
        silent.__dict__["put"] = lambda key, value: None  # not a sign more
        assert gone.wait(30)

    (late, _), (other, _) = all_well(on_ranks(2, work, patience=1.0))

    require_whole(root, committed=phase == "published")
    if phase == "published":
        assert (late, other) == (None, None)
        return
    assert isinstance(other, RankLost)
    assert f"{root}/checkpoints/step-00000002: rank 0 gave no sign for 1 s after it began this save" in str(other)
    assert isinstance(late, mc.CheckpointException)


class Unreadable(TrappedStore):
    """Memory in which no manifest can be read any more, once one was put."""

    def read_manifest(self, name):
        if name == "step-00000002":
            raise StorageFailure("no answer", name, code=5)
        return super().read_manifest(name)

    def settle(self, name, attempt):
        return self.has(name)


def test_a_manifest_that_is_there_but_cannot_be_read_is_no_success(root):
    def spring():
        raise StorageFailure("no answer", "here", code=5)

    def work(ranks):
        store = Unreadable(root)
        store.trap = Trap("published" if ranks.rank == 0 else None, spring)
        return outcome(ranks, store, "save")

    outcomes = [error for error, _ in all_well(on_ranks(2, work))]

    assert [type(one) for one in outcomes] == [DurabilityUnknown] * 2
    assert all("its manifest could not be read on rank 0: no answer. Run" in str(one) for one in outcomes)


# --- what rank 0 looks at before it commits --------------------------------------------------------------------------


class Forgetful(TrappedStore):
    """Memory that shows rank 0 a file less, or one of another size."""

    odd = ""

    def stage_shared(self, name, attempt):
        inner, store = super().stage_shared(name, attempt), self

        class Odd(TrappedAttempt):
            def stamps(self):
                found = dict(inner.stamps())
                victim = next((file for file in found if file.startswith("rank-1")), None)
                if victim is None:
                    return found
                stamp = found.pop(victim)
                return (
                    found
                    if store.odd == "missing"
                    else found | {victim: msgspec.structs.replace(stamp, size=stamp.size + 1)}
                )

        return Odd(inner, self.trap)


@pytest.mark.parametrize("odd", ["missing", "longer"])
def test_a_file_that_rank_0_does_not_find_as_it_was_voted_for_is_not_committed(root, odd):
    def work(ranks):
        store = Forgetful(root)
        store.odd = odd
        return outcome(ranks, store, "save")

    outcomes = [error for error, _ in all_well(on_ranks(2, work))]

    assert [type(one) for one in outcomes] == [StorageFailure] * 2
    assert all("rank 1 wrote rank-1-" in str(one) and "missing or of another size" in str(one) for one in outcomes)
    assert mc.list_checkpoints(root) == []


# --- what is left on a disk ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "victim"), [("detail", 1), ("vote", 1), ("pooled", 0)])
def test_nothing_of_a_save_that_was_given_up_is_left_on_the_disk(tmp_path, phase, victim):
    def spring():
        raise KeyboardInterrupt

    def work(ranks):
        trapped = TrappedCoordinator(ranks, Trap(phase if ranks.rank == victim else None, spring))
        return outcome(trapped, LocalStore(tmp_path), "save")

    outcomes = [error for error, _ in all_well(on_ranks(2, work, patience=4.0))]

    assert isinstance(outcomes[victim], KeyboardInterrupt)
    assert isinstance(outcomes[1 - victim], RankFailed)
    assert list((tmp_path / ".staging").iterdir()) == []
    assert list((tmp_path / "checkpoints").iterdir()) == []
