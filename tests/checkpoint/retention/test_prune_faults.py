"""Pruning may die or fail at any storage call: nothing healthy is lost, and what was left undone can be finished."""

import errno
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.checkpoint.retention.retention_ground import fill
from tests.engine.faults.fault_ground import AT_ONCE, KILLS, NOW_BUT_KEEP_TRASH, name_of
from tests.ground.scenes import Album, link_tree
from tests.ground.stored.stored_files import steps

import model_checkpoint as mc
from model_checkpoint.engine.root.intents import open_intents
from model_checkpoint.errors import OptionInvalid, StorageFailure
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import SYSTEM
from model_checkpoint.testing import Ended, Fault, Kind, each_call, flushes_retried, run_here, run_in_child

pytestmark = [pytest.mark.fault, pytest.mark.slow]

KEEP = [mc.last(2), mc.best("val_loss")]
STAY, GO = [1, 3, 5, 6], [2, 4]  # 1 is pinned, 3 is best
READING = {"lstat", "stat", "fstat", "statvfs", "listdir", "preadv", "close", "now", "filesystem"}
FAILURES = [
    Fault(kind=kind, at=0, code=code, lasting=lasting)
    for kind in (Kind.FAIL, Kind.LOSE_REPLY)
    for code in (errno.EIO, errno.ENOSPC)
    for lasting in (False, True)
    if code != errno.ENOSPC or not lasting  # where there is no room for a name, see test_prune_full_disk
]


@pytest.fixture
def ground(quick_folder):
    return Ground(quick_folder)


class Ground:
    """A root of six checkpoints, one of them pinned, put back as it was for each run."""

    def __init__(self, folder):
        self.pristine, self.root, self.folder, self.album = folder / "pristine", folder / "root", folder, Album()
        fill(self.pristine, range(1, 7), metric=lambda step: abs(step - 3))
        mc.pin(self.pristine, step=1)
        self.reset()

    def reset(self):
        link_tree(self.pristine, self.root)

    def store(self, calls):
        return LocalStore(self.root, calls=calls)

    def prune(self, calls):
        return mc.prune(self.store(calls), keep=KEEP).done

    def finish(self, calls):
        """As the next process would: finish what was cut off, or else decide anew."""
        store = self.store(calls)
        try:
            return mc.prune(store).done
        except OptionInvalid:
            return mc.prune(store, keep=KEEP).done

    def is_new(self):
        """Whether the root looks like nothing seen before; most calls of a prune only read."""
        return self.album.takes(self.root)

    def there(self):
        """What is there: all that stays, and what goes is there or in the trash."""
        paths = [*self.root.glob("checkpoints/*/manifest.json"), *self.root.glob(".trash/*/manifest.json")]
        folders = {path.parent.name for path in paths if "~" not in path.parent.name}
        trashed = {path.parent.name.partition("~")[0] for path in paths if "~" in path.parent.name}
        assert {name(step) for step in STAY} <= folders
        assert folders | trashed == {name(step) for step in (*STAY, *GO)}
        return folders

    def check(self):
        """Every one of them is whole, and the pin is on its own."""
        seen = {info.step: info for info in mc.list_checkpoints(self.root)}
        assert not any(info.problem for info in seen.values())
        assert [step for step, info in seen.items() if info.pinned] == [1]
        for step in seen:
            state = mc.load(self.root, step=step)
            assert (state["step"], np.unique(state["w"]).tolist()) == (step, [step])
        return sorted(seen)

    def check_finished(self):
        """Finishing comes to what one prune comes to; all of it can be undone; after the grace nothing is left."""
        self.check()
        self.finish(SYSTEM)
        assert self.check() == STAY
        assert open_intents(LocalStore(self.root)) == []
        for step in GO:
            assert mc.undelete(self.root, step=step).step == step
        assert self.check() == sorted({*STAY, *GO})
        mc.prune(self.root, keep=KEEP, grace=0)
        mc.collect_garbage(self.root, graces=AT_ONCE)
        assert steps(self.root) == STAY
        assert [path for name in (".staging", ".trash") for path in (self.root / name).iterdir()] == []
        assert [path.name.partition(".")[0] for path in (self.root / ".sidecars").iterdir()] == ["pin"]


def name(step):
    return f"step-{step:08d}"


@pytest.mark.parametrize("fault", KILLS, ids=name_of)
def test_a_kill_at_any_call_loses_nothing_and_can_be_finished(ground, fault):
    points, unfinished = 0, 0
    for at, outcome in each_call(ground.prune, fault, prepare=ground.reset):
        points = at
        assert outcome.ended is Ended.KILLED
        ground.there()
        unfinished += bool(open_intents(LocalStore(ground.root)))
        if ground.is_new():
            ground.check_finished()

    assert points > 120
    assert unfinished > 30  # else this would prove nothing


@pytest.mark.parametrize("fault", FAILURES, ids=name_of)
def test_a_failure_at_any_call_is_told_or_overcome_and_loses_nothing(ground, fault):
    overcome = 0
    for _, outcome in each_call(ground.prune, fault, prepare=ground.reset):
        gone = {name(step) for step in (*STAY, *GO)} - ground.there()
        assert flushes_retried(outcome.trace) == []
        if outcome.acknowledged:
            overcome += 1
            assert set(outcome.value) == gone
        else:
            assert isinstance(outcome.error, StorageFailure), repr(outcome.error)
        if ground.is_new():
            ground.check_finished()

    assert overcome > 5


def kills_at_changes(work, prepare):
    """Kill ``work`` before each call that may change something; before any other, it leaves what the next one finds."""
    prepare()
    trace = run_here(work).trace
    for call in trace:
        if call.name not in READING:
            prepare()
            yield run_in_child(work, replace(KILLS[0], at=call.index))


def test_finishing_may_be_killed_at_any_call_again_and_again(ground):
    """Leavings of a shape that was seen before are looked at once."""
    scenes, kills = [], 0

    def collect(work, prepare):
        nonlocal kills
        for outcome in kills_at_changes(work, prepare):
            assert outcome.ended is Ended.KILLED
            ground.there()
            kills += 1
            mc.collect_garbage(ground.root, graces=NOW_BUT_KEEP_TRASH)  # what dead writes left would pile up
            if ground.is_new():
                scenes.append(ground.folder / f"scene-{len(ground.album)}")
                link_tree(ground.root, scenes[-1])
                ground.check_finished()

    collect(ground.prune, ground.reset)
    while scenes:
        collect(ground.finish, partial(link_tree, scenes.pop(), ground.root))

    assert kills > 60
