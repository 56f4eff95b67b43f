"""Files put into a checkpoint survive a power loss once that is acknowledged, and every flush of it is needed."""

import pytest
from tests.ground.disks.model_disk import ModelDisk

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing.blobs import blob_manifest, save_blobs, seal_blob, stage_blobs

ROOT, TARGET = "/data/runs", "/data/runs/checkpoints/step-1"
RIGHT = {"x-a1": b"right" * 10, "y-a1": b"o"}
DAMAGED = b"wrong" * 10
OTHER = {"x-a0": b"other"}
GOOD, BAD = blob_manifest("step-1", "a1", RIGHT), blob_manifest("step-1", "a1", {})
KEEP_TRASH = Graces(local=0.0, foreign=0.0)


class Broken(AssertionError):
    """The disk that came back does not hold what was promised."""


def on(disk):
    return LocalStore(ROOT, calls=disk, direct=False)


def damaged(*, links=True, manifest=GOOD):
    """A checkpoint one of whose files, and perhaps its manifest, is not what it should be."""
    disk = ModelDisk()
    disk.mkdir("/data")
    save_blobs(on(disk), "step-0", OTHER, attempt="a0")
    stage_blobs(on(disk), "step-1", RIGHT | {"x-a1": DAMAGED}, attempt="a1").publish(manifest)
    disk.settle()
    disk.links = links
    return disk


def mend(store, *, manifest=None):
    mending = store.mend("step-1", "m1")
    seal_blob(mending, "x-a1", RIGHT["x-a1"])
    assert mending.finish(over=store.read_manifest("step-1"), manifest=manifest)


def read(store, file):
    reader = store.open("step-1", file)
    data = bytearray(reader.size)
    reader.read_into(0, memoryview(data))
    reader.close()
    return bytes(data)


def judge(disk, *, acknowledged, manifests):
    """Whatever the power left: each file is as it was or right, and what was replaced can be looked at."""
    try:
        for _ in range(2):
            look(on(disk), acknowledged=acknowledged, manifests=manifests)
            on(disk).sweep(KEEP_TRASH)
        if disk.listdir(f"{ROOT}/.staging"):
            raise Broken("leavings stay")
    except CheckpointException as error:
        raise Broken(f"cannot be read: {error}") from error


def look(store, *, acknowledged, manifests):
    if sorted(store.names()) != ["step-0", "step-1"] or read(store, "y-a1") != RIGHT["y-a1"]:
        raise Broken("something is lost that nobody touched")
    if store.read_manifest("step-1") not in (manifests[-1:] if acknowledged else manifests):
        raise Broken("the manifest is torn, or not the one that was acknowledged")
    now = read(store, "x-a1")
    if now not in ((RIGHT["x-a1"],) if acknowledged else (DAMAGED, RIGHT["x-a1"])):
        raise Broken("the file is torn, or not the one that was acknowledged")
    if now == RIGHT["x-a1"] and DAMAGED not in kept(store):
        raise Broken("what was replaced is not in the trash")


def kept(store):
    disk = store._root.calls
    folders = [f"{ROOT}/.trash/{name}" for name in disk.listdir(f"{ROOT}/.trash")]
    files = [f"{folder}/{name}" for folder in folders for name in disk.listdir(folder)]
    return [bytes(disk._find(path).data) for path in files]


def perform(*, forgotten=None, links=True, with_manifest=False):
    disk = damaged(links=links, manifest=BAD if with_manifest else GOOD)
    disk.watch(forgotten=forgotten)
    mend(on(disk), manifest=GOOD if with_manifest else None)
    disk.watching = False
    return disk


def crashes(disk, *, samples):
    for number, (moment, acknowledged) in enumerate([(disk, True), *((moment, False) for moment in disk.moments)]):
        for lost in moment.power_losses(number, samples=samples):
            yield lost, acknowledged


def check(disk, *, with_manifest, samples):
    manifests = (BAD, GOOD) if with_manifest else (GOOD,)
    for lost, acknowledged in crashes(disk, samples=samples):
        judge(lost, acknowledged=acknowledged, manifests=manifests)


@pytest.mark.parametrize("with_manifest", [False, True])
@pytest.mark.parametrize("links", [True, False])
def test_wherever_the_power_goes_nothing_is_torn_and_nothing_acknowledged_is_lost(links, with_manifest):
    check(perform(links=links, with_manifest=with_manifest), with_manifest=with_manifest, samples=12)


def flushes():
    return [path.removeprefix("/data/runs/").partition("~")[0] for path in perform().flushed]


def test_a_mending_flushes_its_file_then_the_trash_then_the_checkpoint():
    assert flushes() == [".staging/m1/x-a1", ".trash/step-1", ".trash", "checkpoints/step-1"]


@pytest.mark.parametrize("number", range(4), ids=lambda number: flushes()[number])
def test_without_any_one_of_its_flushes_something_is_lost_or_torn(number):
    disk = perform(forgotten=number)

    with pytest.raises(Broken, match=r"torn|trash|read"):
        check(disk, with_manifest=False, samples=0)
