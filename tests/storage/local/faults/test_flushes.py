"""Which flush is needed: on a disk that keeps nothing but what was flushed, every one of them, and no other."""

from dataclasses import dataclass, field
from functools import cache

import pytest
from tests.ground.disks.model_disk import ModelDisk
from tests.storage.local.faults.crash_ground import bring_back, discard

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs

ROOT = "/data/runs"
OLD = {"x-a1": b"old" * 10, "y-a1": b"o"}
NEW = {"x-a2": b"new" * 20, "y-a2": b"n"}
SAME = {"x-a1": b"new" * 20, "y-a2": b"n"}  # a name that the old version has, too
OTHER = {"x-a0": b"other"}
KEEP_TRASH = Graces(local=0.0, foreign=0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One thing done to a disk: what step-1 may be before it is acknowledged, and what it may be afterwards."""

    name: str
    prepare: object
    work: object
    before: tuple
    after: tuple
    kept: object = None  # what of step-1 must be in the trash afterwards
    tidy: bool = False  # whether nothing may stay of an attempt that did not come to be the checkpoint
    others: dict = field(default_factory=lambda: {"step-0": OTHER})

    def __str__(self):
        return self.name


def on(disk):
    return LocalStore(ROOT, calls=disk, direct=False)


def empty():
    disk = ModelDisk()
    disk.mkdir("/data")
    disk.settle()
    return disk


def with_other():
    disk = empty()
    save_blobs(on(disk), "step-0", OTHER, attempt="a0")
    disk.settle()
    return disk


def with_both():
    disk = with_other()
    save_blobs(on(disk), "step-1", OLD, attempt="a1")
    disk.settle()
    return disk


def without_links():
    disk = with_both()
    disk.links = False
    return disk


def without_trash():
    disk = with_both()
    disk.rmdir(f"{ROOT}/.trash")
    disk.settle()
    return disk


def deleted():
    disk = with_both()
    on(disk).discard("step-1")
    disk.settle()
    return disk


def out_of_room(disk):
    disk.full = True
    return disk


def left_by_dead_maker():
    """Its folders are there for everybody to see, and nobody has flushed them."""
    disk = empty()
    disk.mkdir(ROOT)
    disk.settle()
    for folder in ("checkpoints", ".staging", ".trash"):
        disk.mkdir(f"{ROOT}/{folder}")
    return disk


def killed_behind_the_switch(replace, new):
    """A replacement died after the rename that makes it visible, before that was flushed."""
    disk = with_both()
    disk.watch()
    replace(on(disk))
    return next(moment for moment in disk.moments if load_blobs(on(moment), "step-1") == new)


def save_new(store):
    save_blobs(store, "step-1", NEW, attempt="a2")


def replace_old(store):
    save_blobs(store, "step-1", NEW, attempt="a2", replace=True, obsolete=list(OLD))


def swap_with_old(store):
    save_blobs(store, "step-1", SAME, attempt="a2", replace=True, obsolete=list(OLD))


def recover(store):
    store.sweep(KEEP_TRASH)


def purge(store):
    store.sweep(AT_ONCE)


OPERATIONS = [
    Operation(name="first save", prepare=empty, work=save_new, before=(None, NEW), after=(NEW,), others={}),
    Operation(
        name="save after a dead maker",
        prepare=left_by_dead_maker,
        work=save_new,
        before=(None, NEW),
        after=(NEW,),
        others={},
    ),
    Operation(name="save", prepare=with_other, work=save_new, before=(None, NEW), after=(NEW,)),
    Operation(name="replace", prepare=with_both, work=replace_old, before=(OLD, NEW), after=(NEW,), tidy=True),
    Operation(
        name="replace without links",
        prepare=without_links,
        work=replace_old,
        before=(OLD, NEW),
        after=(NEW,),
        tidy=True,
    ),
    Operation(name="change places", prepare=with_both, work=swap_with_old, before=(OLD, SAME), after=(SAME,), kept=OLD),
    Operation(name="delete", prepare=with_both, work=discard, before=(OLD, None), after=(None,), kept=OLD),
    Operation(name="first delete", prepare=without_trash, work=discard, before=(OLD, None), after=(None,), kept=OLD),
    Operation(
        name="delete without room",
        prepare=lambda: out_of_room(with_both()),
        work=discard,
        before=(OLD, None),
        after=(None,),
    ),
    Operation(name="bring back", prepare=deleted, work=bring_back, before=(None, OLD), after=(OLD,)),
    Operation(
        name="recover",
        prepare=lambda: killed_behind_the_switch(replace_old, NEW),
        work=recover,
        before=(OLD, NEW),
        after=(OLD, NEW),
    ),
    Operation(
        name="recover behind an exchange",
        prepare=lambda: killed_behind_the_switch(swap_with_old, SAME),
        work=recover,
        before=(OLD, SAME),
        after=(SAME,),
        kept=OLD,
    ),
    Operation(name="purge", prepare=deleted, work=purge, before=(None,), after=(None,)),
    Operation(
        name="purge without room",
        prepare=lambda: out_of_room(deleted()),
        work=purge,
        before=(None,),
        after=(None,),
    ),
]


class Broken(AssertionError):
    """The disk that came back does not hold what was promised."""


def judge(disk, operation, *, acknowledged):
    """Look at a disk that came back, recover it, look again, empty its trash, look once more.

    What an acknowledged replacement was about to remove may stay: to save that, too, would cost every one a flush.
    """
    allowed = operation.after if acknowledged else operation.before
    disk.full = False
    try:
        look(disk, operation, allowed, kept=operation.kept if acknowledged else None)
        on(disk).sweep(KEEP_TRASH)
        look(disk, operation, allowed, kept=operation.kept if acknowledged else None)
        on(disk).sweep(AT_ONCE)
        look(disk, operation, allowed, kept=None)
    except CheckpointException as error:
        raise Broken(f"cannot be read: {error}") from error
    if operation.tidy and whole(on(disk), "step-1") == operation.before[0]:
        look_for_leavings(disk)


def look(disk, operation, allowed, *, kept):
    store = on(disk)
    found = {name: whole(store, name) for name in store.names()}
    if found.pop("step-1", None) not in allowed:
        raise Broken("step-1 is lost, or back")
    if found != operation.others:
        raise Broken(f"the others are {found}")
    thrown = [brought_back(disk, item) for item in store.trash()]
    if kept is not None and thrown != [kept]:
        raise Broken(f"the trash holds {thrown}")


def whole(store, name):
    try:
        return load_blobs(store, name)
    except AssertionError as error:
        raise Broken(f"{name} is torn") from error


def brought_back(disk, item):
    """What bringing back a deleted checkpoint would give, or one that was replaced."""
    twin = disk.copy()
    if item.name in on(twin).names():
        on(twin).discard(item.name)
    return whole(on(twin), on(twin).bring_back(item.token))


def look_for_leavings(disk):
    store = on(disk)
    for name in store.names():
        if set(store.files(name)) != {*load_blobs(store, name), "manifest.json"}:
            raise Broken(f"{name} holds files nobody lists and nobody removes")


def perform(operation, *, forgotten=None):
    """Do it and return the disk, which remembers every moment of it."""
    disk = operation.prepare()
    disk.watch(forgotten=forgotten)
    operation.work(on(disk))
    disk.watching = False
    return disk


def crashes(disk, *, samples):
    """Every different disk that a power loss can leave, the ones after the acknowledgement first."""
    seen = set()
    for number, (moment, acknowledged) in enumerate([(disk, True), *((moment, False) for moment in disk.moments)]):
        for lost in moment.power_losses(number, samples=samples):
            picture = lost.picture(), acknowledged
            if picture not in seen:
                seen.add(picture)
                yield lost, acknowledged


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_with_all_its_flushes_nothing_is_lost_or_torn_wherever_the_power_goes(operation):
    disk = perform(operation)

    judged = 0
    for lost, acknowledged in crashes(disk, samples=12):
        judge(lost, operation, acknowledged=acknowledged)
        judged += 1

    assert judged >= 3


@cache
def flushes(operation):
    return [path.removeprefix("/data/").partition("~")[0] for path in perform(operation).flushed]


def each_flush():
    """All but that of a root that happens to be flushed: a save cannot know, and after a dead maker it is needed."""
    for operation in OPERATIONS:
        for number, path in enumerate(flushes(operation)):
            if path == "runs" and operation.others and operation.work in (save_new, replace_old, swap_with_old):
                continue
            yield pytest.param(operation, number, id=f"{operation}-{number}-{path}")


@pytest.mark.parametrize(("operation", "number"), list(each_flush()))
def test_without_any_one_of_its_flushes_something_is_lost_or_torn(operation, number):
    disk = perform(operation, forgotten=number)

    def all_is_well():
        for lost, acknowledged in crashes(disk, samples=0):
            judge(lost, operation, acknowledged=acknowledged)

    with pytest.raises(Broken, match=r"lost|torn|back|trash|others|read|nobody"):
        all_is_well()
