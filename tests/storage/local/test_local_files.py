"""What is particular to files on a disk: links, pipes, and foreign things in the way."""

import contextlib
import errno
import logging
import os

import pytest
from tests.storage.local.faults.failing_calls import FailingCalls

from model_checkpoint.errors import (
    CheckpointNotFound,
    LimitExceeded,
    StepExists,
    StorageFailure,
    Truncated,
)
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing import FaultyCalls
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "runs")


# --- what must not be read --------------------------------------------------------------------------------------------


def test_a_hard_link_is_an_ordinary_file(store, tmp_path):
    save_blobs(store, "step-1", {"x": b"abc"})
    os.link(tmp_path / "runs/checkpoints/step-1/x", tmp_path / "second")

    assert load_blobs(store, "step-1") == {"x": b"abc"}


def test_a_file_cut_short_is_truncated(store, tmp_path):
    save_blobs(store, "step-1", {"x": b"abcdef"})
    reader = store.open("step-1", "x")
    os.truncate(tmp_path / "runs/checkpoints/step-1/x", 2)

    with pytest.raises(Truncated, match=r"x ends at byte 2, expected bytes 0 to 6"):
        reader.read_into(0, memoryview(bytearray(6)))


def test_a_monstrous_manifest_is_refused_before_it_is_read(store, tmp_path):
    save_blobs(store, "step-1", {})
    os.truncate(tmp_path / "runs/checkpoints/step-1/manifest.json", 1 << 40)

    with pytest.raises(LimitExceeded, match=r"the manifest has 1099511627776 bytes, the limit is 1073741824"):
        store.read_manifest("step-1")


def test_an_open_file_can_be_read_after_the_checkpoint_was_replaced_and_purged(store):
    save_blobs(store, "step-1", {"x-1": b"old"})
    reader = store.open("step-1", "x-1")

    save_blobs(store, "step-1", {"x-2": b"new"}, attempt="2", replace=True, obsolete=["x-1"])
    store.sweep(AT_ONCE)

    buffer = bytearray(3)
    reader.read_into(0, memoryview(buffer))
    assert bytes(buffer) == b"old"


# --- what stands in the way -----------------------------------------------------------------------------------------


def test_an_empty_folder_is_no_checkpoint_and_gives_way(store, tmp_path):
    (tmp_path / "runs/checkpoints/step-1").mkdir(parents=True)

    assert store.names() == []
    with pytest.raises(CheckpointNotFound, match=r"step-1: no such checkpoint"):
        store.files("step-1")
    save_blobs(store, "step-1", {"x": b"abc"})

    assert load_blobs(store, "step-1") == {"x": b"abc"}


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_without_manifest_gives_way_and_its_files_wait_in_the_trash(store, tmp_path, replace, caplog):
    junk = tmp_path / "runs/checkpoints/step-1"
    (junk / "deep").mkdir(parents=True)
    (junk / "notes.txt").write_text("mine")

    with caplog.at_level(logging.WARNING, "model_checkpoint.storage"):
        save_blobs(store, "step-1", {"x-a1": b"abc"}, attempt="a1", replace=replace)

    assert load_blobs(store, "step-1") == {"x-a1": b"abc"}
    assert set(store.files("step-1")) == {"x-a1", "manifest.json"}
    assert [path.read_text() for path in (tmp_path / "runs/.trash").glob("*/notes.txt")] == ["mine"]
    assert store.trash() == []  # there is no checkpoint to bring back
    assert "holds 2 entries but no manifest; they go to the trash" in caplog.text
    store.sweep(AT_ONCE)
    assert list((tmp_path / "runs/.trash").iterdir()) == []


def test_bringing_back_makes_a_folder_without_manifest_give_way(store, tmp_path):
    save_blobs(store, "step-1", {"x": b"abc"})
    gone = store.discard("step-1")
    (tmp_path / "runs/checkpoints/step-1").mkdir()
    (tmp_path / "runs/checkpoints/step-1/notes.txt").write_text("mine")

    store.bring_back(gone.token)

    assert load_blobs(store, "step-1") == {"x": b"abc"}


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_or_link_in_the_way_is_refused_and_untouched(store, tmp_path, replace):
    folder = tmp_path / "runs/checkpoints"
    folder.mkdir(parents=True)
    (folder / "step-1").write_text("mine")
    (folder / "step-2").symlink_to(tmp_path)

    for name in ("step-1", "step-2"):
        with pytest.raises(StepExists, match=rf"{name}: a checkpoint of that name exists"):
            save_blobs(store, name, {"x-a1": b"abc"}, attempt="a1", replace=replace)

    assert (folder / "step-1").read_text() == "mine"
    assert (folder / "step-2").is_symlink()


@pytest.fixture
def other(tmp_path):
    """Another process on the same root, in which a checkpoint is about to be replaced."""
    store = LocalStore(tmp_path / "runs")
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")
    return store


def purge(store):
    store.discard("step-1")
    store.sweep(AT_ONCE)


class Interfering(Syscalls):
    """The system, with another process that acts just before the chosen call is made for the chosen path."""

    def __init__(self, call, path, act, *, time=1):
        super().__init__()
        original = getattr(self, call)

        def acting(target, *args, **kwargs):
            nonlocal time
            name = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target
            if name.endswith(path):
                time -= 1
                if time == 0:
                    act()
            return original(target, *args, **kwargs)

        setattr(self, call, acting)


@pytest.mark.parametrize(
    ("call", "path", "time"),
    [
        ("open", "checkpoints/step-1", 1),
        ("link", "x-a2", 1),
        ("link", "manifest.json", 1),
        ("fsync", "checkpoints/step-1", 1),
        ("rename", "manifest.a2.tmp", 1),
        ("fsync", "checkpoints/step-1", 2),
    ],
)
def test_a_checkpoint_deleted_while_it_is_replaced_is_published_as_new(tmp_path, call, path, time, other):
    deleted = []
    calls = Interfering(call, path, lambda: deleted.append(other.discard("step-1")), time=time)

    save_blobs(
        LocalStore(tmp_path / "runs", calls=calls),
        "step-1",
        {"x-a2": b"new"},
        attempt="a2",
        replace=True,
        obsolete=["x-a1"],
    )

    assert len(deleted) == 1
    assert load_blobs(other, "step-1") == {"x-a2": b"new"}
    assert set(other.files("step-1")) == {"x-a2", "manifest.json"}
    assert [item.token for item in other.trash()] == [deleted[0].token]
    assert list(other.sweep(AT_ONCE).alive) == []


@pytest.mark.parametrize("call", ["open", "flock", "exchange"])
def test_one_with_files_of_the_same_names_that_is_deleted_meanwhile_is_published_as_new(tmp_path, call):
    """Both versions would have changed places as whole folders."""
    other = LocalStore(tmp_path / "runs")
    save_blobs(other, "step-1", {"x": b"old"}, attempt="a1")
    deleted = []
    path = ".staging/a2" if call == "exchange" else "checkpoints/step-1"
    calls = Interfering(call, path, lambda: deleted.append(other.discard("step-1")))

    save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x": b"new"}, attempt="a2", replace=True)

    assert len(deleted) == 1
    assert load_blobs(other, "step-1") == {"x": b"new"}
    assert [item.token for item in other.trash()] == [deleted[0].token]
    assert list(other.sweep(AT_ONCE).alive) == []


def test_a_checkpoint_purged_while_it_is_replaced_is_published_as_new(tmp_path, other):
    calls = Interfering("link", "manifest.json", lambda: purge(other))

    save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert load_blobs(other, "step-1") == {"x-a2": b"new"}


@pytest.mark.parametrize(
    ("call", "path", "time", "kept"),
    [
        ("fsync", "checkpoints/step-1", 1, [{"x-a1": b"old"}]),
        ("rename", "manifest.a2.tmp", 1, []),  # the old manifest is overwritten, wherever its folder is
        ("fsync", "checkpoints/step-1", 2, []),
    ],
)
def test_without_hard_links_a_checkpoint_deleted_while_it_is_replaced_is_published_as_new(
    tmp_path, call, path, time, kept, other
):
    calls = Interfering(call, path, lambda: other.discard("step-1"), time=time)
    calls.link = FailingCalls().fail("link", errno.EPERM).link

    save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert load_blobs(other, "step-1") == {"x-a2": b"new"}
    assert set(other.files("step-1")) == {"x-a2", "manifest.json"}
    other.discard("step-1")
    assert [load_blobs(other, other.bring_back(item.token)) for item in other.trash()[:-1]] == kept


def test_without_hard_links_a_checkpoint_purged_while_it_is_replaced_is_a_clean_failure(tmp_path, other):
    calls = Interfering("fsync", "checkpoints/step-1", lambda: purge(other))
    calls.link = FailingCalls().fail("link", errno.EPERM).link

    with pytest.raises(StorageFailure, match=r"could not take the new files back from the deleted checkpoint"):
        save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert other.names() == []
    assert list((tmp_path / "runs/.staging").iterdir()) == []


def test_without_hard_links_the_manifest_of_a_third_process_is_never_taken_for_ours(tmp_path, other):

    def replace_and_delete():
        save_blobs(other, "step-1", {"x-a3": b"third"}, attempt="a3", replace=True, obsolete=["x-a1"])
        other.discard("step-1")

    calls = Interfering("fsync", "checkpoints/step-1", replace_and_delete, time=2)
    calls.link = FailingCalls().fail("link", errno.EPERM).link

    with pytest.raises(StorageFailure, match=r"replaced by others and deleted at the same time.*Save again"):
        save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert other.names() == []


def test_a_checkpoint_published_meanwhile_is_replaced_not_refused(tmp_path):
    other = LocalStore(tmp_path / "runs")
    calls = Interfering("rename", ".staging/a2", lambda: save_blobs(other, "step-1", {"x-a1": b"old"}, attempt="a1"))
    store = LocalStore(tmp_path / "runs", calls=calls)

    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert load_blobs(other, "step-1") == {"x-a2": b"new"}


def test_a_replacement_works_without_hard_links(tmp_path):
    store = LocalStore(tmp_path / "runs", calls=FailingCalls().fail("link", errno.EPERM))
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")

    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1"])

    assert load_blobs(store, "step-1") == {"x-a2": b"new"}
    assert set(store.files("step-1")) == {"x-a2", "manifest.json"}
    assert list(store.sweep(AT_ONCE).attempts) == []


def test_a_foreign_file_of_a_new_name_stops_a_replacement(tmp_path):
    """A link that reports an existing name is ours only if it leads to our file."""
    store = LocalStore(tmp_path / "runs")
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")
    (tmp_path / "runs/checkpoints/step-1/x-a2").write_bytes(b"foreign")

    with pytest.raises(StorageFailure, match=r"step-1: could not add the new files \(File exists\)"):
        save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1"])

    assert load_blobs(store, "step-1") == {"x-a1": b"old"}


def test_a_failing_medium_is_not_taken_for_one_without_links(tmp_path):
    store = LocalStore(tmp_path / "runs", calls=FailingCalls().fail("link", errno.EIO))
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")

    with pytest.raises(StorageFailure, match=r"a2: could not note what will be replaced \(Input/output error\)"):
        save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1"])

    assert load_blobs(store, "step-1") == {"x-a1": b"old"}
    assert set(store.files("step-1")) == {"x-a1", "manifest.json"}


@pytest.mark.parametrize("calls", [Syscalls(), FailingCalls().fail("link", errno.EIO)], ids=["replaced", "failed"])
def test_a_replacement_leaves_no_descriptor_open(tmp_path, calls):
    save_blobs(LocalStore(tmp_path), "step-1", {"x-a1": b"old"}, attempt="a1")
    before = os.listdir("/proc/self/fd")

    with contextlib.suppress(StorageFailure):
        save_blobs(LocalStore(tmp_path, calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert len(os.listdir("/proc/self/fd")) == len(before)


class KeepsFilling(Syscalls):
    """Another program that fills a folder again whenever it was emptied."""

    def rename(self, source, target, **folders):
        if target.endswith("checkpoints/step-1"):
            os.makedirs(target, exist_ok=True)
            with open(f"{target}/again", "w", encoding="ascii"):
                pass
        super().rename(source, target, **folders)


def test_a_folder_that_is_filled_again_and_again_stops_a_save_and_an_undelete(tmp_path):
    save_blobs(LocalStore(tmp_path), "step-1", {"x": b"abc"})
    gone = LocalStore(tmp_path).discard("step-1")
    store = LocalStore(tmp_path, calls=KeepsFilling())

    with pytest.raises(StorageFailure, match=r"something keeps filling .*checkpoints/step-1\. Stop it, then try again"):
        store.bring_back(gone.token)
    with pytest.raises(StorageFailure, match=r"step-1: something keeps filling that folder\. Stop it, then save again"):
        save_blobs(store, "step-1", {"x": b"abc"})

    assert [item.token for item in store.trash()] == [gone.token]
    assert load_blobs(LocalStore(tmp_path), LocalStore(tmp_path).bring_back(gone.token)) == {"x": b"abc"}


def test_a_move_is_flushed_at_its_target_before_its_source(tmp_path):
    calls = FaultyCalls()
    store = LocalStore(tmp_path, calls=calls)
    save_blobs(store, "step-1", {"x": b"abc"})

    def flushed():
        folders = [os.path.basename(call.path) for call in calls.trace if call.name == "fsync_dir"]
        calls.trace.clear()
        return folders

    flushed()
    gone = store.discard("step-1")
    there = flushed()
    store.bring_back(gone.token)

    assert there == [".trash", "checkpoints"]
    assert flushed() == ["checkpoints", ".trash"]
