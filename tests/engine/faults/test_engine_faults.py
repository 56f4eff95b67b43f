"""Saves of any kind, deletions and recoveries may die or fail at any storage call: nothing acknowledged is lost."""

import errno
import os
from collections import deque
from functools import partial

import pytest
from tests.engine.faults.fault_ground import (
    DELETE,
    FAILURES,
    KILLS,
    NOW_BUT_KEEP_TRASH,
    OPERATIONS,
    OVERWRITE,
    SAVE,
    SMALL,
    WAYS,
    Ground,
    Way,
    name_of,
)
from tests.ground.scenes import Album, link_tree

import model_checkpoint as mc
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import Ended, Fault, Kind, each_call, flushes_retried, run_here

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PLAIN = WAYS[0]
LINKING = [way for way in WAYS if "incremental" in way.options]
CONSOLIDATED = Way(name="consolidated", options={"format": mc.CheckpointFormat.CONSOLIDATED})
UNLINKED = [way for way in WAYS if way not in LINKING]
NO_LINKS = [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP]


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """Cut files and chunks small, so that a small state has several."""
    monkeypatch.setattr("model_checkpoint.engine.writing.request.LayoutLimits", lambda **_: SMALL)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def check_every_call(ground, fault):
    """Return how many calls there were, and how many of the runs were acknowledged in spite of the fault."""
    before, points, acknowledged = descriptors(), 0, 0
    for at, outcome in each_call(ground.work(), fault, prepare=ground.reset):
        points, acknowledged = at, acknowledged + outcome.acknowledged
        ground.check(outcome)
        assert fault.code == errno.ENOTSUP or flushes_retried(outcome.trace) == []  # folders may have no flush at all
        assert descriptors() == before
        ground.check_recovered()
    return points, acknowledged


def faults_of(way):
    """Every kill; of the failures all for a plain save, and for each other way a third that is not its neighbour's."""
    return [*KILLS, *(FAILURES if way is PLAIN else FAILURES[WAYS.index(way) % 3 :: 3])]


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
@pytest.mark.parametrize(
    ("way", "fault"),
    [pytest.param(way, fault, id=f"{way}-{name_of(fault)}") for way in WAYS for fault in faults_of(way)],
)
def test_no_fault_at_any_call_loses_what_was_acknowledged(quick_folder, way, operation, fault):
    points, _ = check_every_call(Ground(quick_folder, way, operation), fault)

    assert points > {"save": 45, "overwrite": 75, "delete": 12, "recover": 60}[operation.name]


@pytest.mark.parametrize("fault", [*KILLS, *FAILURES[::3]], ids=name_of)
def test_no_fault_tears_a_consolidated_model_that_is_replaced(quick_folder, fault):
    """Its index has a fixed name, so that both versions change places as wholes."""
    points, _ = check_every_call(Ground(quick_folder, CONSOLIDATED, OVERWRITE), fault)

    assert points > 75


@pytest.mark.parametrize("fault", [*KILLS, FAILURES[0], FAILURES[-1]], ids=name_of)
@pytest.mark.parametrize("operation", [SAVE, OVERWRITE], ids=str)
def test_no_fault_loses_what_was_acknowledged_on_a_disk_either(tmp_path, operation, fault):
    """Where files are written around the page cache, if the file system of the tests can."""
    points, _ = check_every_call(Ground(tmp_path, PLAIN, operation), fault)

    assert points > 45


@pytest.mark.parametrize("code", NO_LINKS, ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", [SAVE, OVERWRITE], ids=str)
@pytest.mark.parametrize("way", LINKING, ids=str)
def test_a_file_that_cannot_be_linked_is_written_again(quick_folder, way, operation, code):
    ground = Ground(quick_folder, way, operation)
    links = [call for call in run_here(ground.work()).trace if call.name == "link"]

    points, acknowledged = check_every_call(ground, Fault(kind=Kind.FAIL, at=0, code=code))

    data = [call for call in links if "/checkpoints/" in call.path and not call.path.endswith("manifest.json")]
    assert len(data) == 2  # else this would prove nothing
    assert len(links) <= acknowledged < points


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_after_a_failure_at_any_call_the_same_process_saves_again(quick_folder, way):
    ground = Ground(quick_folder, way, SAVE)

    def work(calls):
        store = ground.store(calls)
        try:
            way.save(store, 3, step=3)
        except mc.CheckpointException:
            assert [path.name for path in (ground.root / ".staging").iterdir()] == []
        return way.save(LocalStore(ground.root), 4, step=4).step

    for _, outcome in each_call(work, Fault(kind=Kind.FAIL, at=0, code=errno.EIO), prepare=ground.reset):
        assert outcome.acknowledged
        assert ground.seen() in ({1: 1, 2: 2, 4: 4}, {1: 1, 2: 2, 3: 3, 4: 4})


def sweep(ground):
    return lambda calls: len(ground.store(calls).sweep(NOW_BUT_KEEP_TRASH).attempts)


class Leavings:
    """What kills left of one ground: each kind is recovered once, and that recovery killed at each of its calls."""

    def __init__(self, ground, album):
        self.ground, self.album, self.scenes, self.kills = ground, album, [], 0

    def collect(self, work, prepare):
        """Kill ``work`` at each of its calls, yield what a reader sees then, and keep what is left if it is new."""
        for _, outcome in each_call(work, KILLS[0], prepare=prepare):
            assert outcome.ended is Ended.KILLED
            yield self.ground.check(outcome)
            self.kills += 1
            if self.album.takes(self.ground.root, self.ground.labels):
                self.scenes.append(self.ground.folder / f"scene-{len(self.album)}")
                link_tree(self.ground.root, self.scenes[-1])
                self.ground.check_recovered()

    def kill_every_recovery(self):
        """Until a killed recovery leaves nothing that is new."""
        while self.scenes:
            restore = partial(link_tree, self.scenes.pop(), self.ground.root)
            restore()
            before = self.ground.seen()
            assert all(seen == before for seen in self.collect(sweep(self.ground), restore))


@pytest.mark.parametrize("operation", [SAVE, OVERWRITE, DELETE], ids=str)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ways", [UNLINKED, LINKING], ids=["unlinked", "linking"])
def test_recovery_may_be_killed_at_any_call_again_and_again(quick_folder, ways, operation):
    """However a save is made; leavings that another way to save has left in the same shape are looked at once."""
    album, kills = Album(), 0

    for way in ways:
        ground = Ground(quick_folder / way.name, way, operation)
        leavings = Leavings(ground, album)
        deque(leavings.collect(ground.work(), ground.reset), maxlen=0)
        leavings.kill_every_recovery()
        kills += leavings.kills

    assert kills > {"save": 300, "overwrite": 1500, "delete": 60}[operation.name]
