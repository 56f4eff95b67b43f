"""What is particular to files on a disk: links, pipes, direct I/O, full disks, foreign things in the way."""

import errno
import logging
import os
import stat
import subprocess

import pytest

from model_checkpoint.errors import (
    CheckpointNotFound,
    DiskFull,
    LimitExceeded,
    PermissionRefused,
    StepExists,
    StorageFailure,
    Truncated,
    UnsafeName,
)
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.calls import Calls
from model_checkpoint.testing import Fault, FaultyCalls, Kind
from model_checkpoint.testing.blobs import load_blobs, save_blobs, write_blob

AT_ONCE = Graces(local=0.0, foreign=0.0, trash=0.0)


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "runs")


# --- what must not be read -------------------------------------------------------------------------------------------


def replace_with_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def replace_with_dangling_link(path):
    path.unlink()
    path.symlink_to("/nowhere/at/all")


def replace_with_pipe(path):
    path.unlink()
    os.mkfifo(path)


def replace_with_device(path):
    path.unlink()
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs root")


def replace_with_folder(path):
    path.unlink()
    path.mkdir()


SWAPS = [replace_with_link, replace_with_dangling_link, replace_with_pipe, replace_with_device, replace_with_folder]


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("file", ["x", "manifest.json"])
def test_anything_but_a_regular_file_is_refused_without_waiting(store, tmp_path, swap, file):
    save_blobs(store, "step-1", {"x": b"abc"})
    swap(tmp_path / "runs" / "checkpoints" / "step-1" / file)

    with pytest.raises(UnsafeName, match=rf"step-1: {file} is no regular file in a real folder"):
        store.open("step-1", "x") if file == "x" else store.read_manifest("step-1")


def test_a_linked_checkpoint_folder_is_not_listed_nor_read(store, tmp_path):
    save_blobs(store, "step-1", {"x": b"abc"})
    (tmp_path / "runs" / "checkpoints" / "step-2").symlink_to("step-1")

    assert store.names() == ["step-1"]
    with pytest.raises(UnsafeName, match=r"step-2: x is no regular file in a real folder"):
        store.open("step-2", "x")
    with pytest.raises(UnsafeName, match=r"step-2: manifest.json is no regular file"):
        store.read_manifest("step-2")


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


# --- what stands in the way ------------------------------------------------------------------------------------------


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


class Interfering(Calls):
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
def test_a_checkpoint_deleted_while_it_is_replaced_is_published_as_new(tmp_path, call, path, time):
    other = LocalStore(tmp_path / "runs")
    save_blobs(other, "step-1", {"x-a1": b"old"}, attempt="a1")
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


def test_a_checkpoint_purged_while_it_is_replaced_is_published_as_new(tmp_path):
    other = LocalStore(tmp_path / "runs")
    save_blobs(other, "step-1", {"x-a1": b"old"}, attempt="a1")

    def purge():
        other.discard("step-1")
        other.sweep(AT_ONCE)

    calls = Interfering("link", "manifest.json", purge)

    save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert load_blobs(other, "step-1") == {"x-a2": b"new"}


def test_without_hard_links_a_checkpoint_deleted_while_it_is_replaced_is_a_clean_failure(tmp_path):
    other = LocalStore(tmp_path / "runs")
    save_blobs(other, "step-1", {"x-a1": b"old"}, attempt="a1")
    calls = Interfering("fsync", "checkpoints/step-1", lambda: other.discard("step-1"))
    calls.link = WithoutLinks().link

    with pytest.raises(StorageFailure, match=r"step-1: could not add the new files \(No such file or directory\)"):
        save_blobs(LocalStore(tmp_path / "runs", calls=calls), "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert other.names() == []
    assert load_blobs(other, other.bring_back(other.trash()[0].token)) == {"x-a1": b"old"}


def test_a_checkpoint_published_meanwhile_is_replaced_not_refused(tmp_path):
    other = LocalStore(tmp_path / "runs")
    calls = Interfering("rename", ".staging/a2", lambda: save_blobs(other, "step-1", {"x-a1": b"old"}, attempt="a1"))
    store = LocalStore(tmp_path / "runs", calls=calls)

    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True)

    assert load_blobs(other, "step-1") == {"x-a2": b"new"}


class WithoutLinks(Calls):
    """A file system that has no hard links."""

    def link(self, source, target, *, into):
        raise OSError(errno.EPERM, "no links here")


def test_a_replacement_works_without_hard_links(tmp_path):
    store = LocalStore(tmp_path / "runs", calls=WithoutLinks())
    save_blobs(store, "step-1", {"x-a1": b"old"}, attempt="a1")

    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1"])

    assert load_blobs(store, "step-1") == {"x-a2": b"new"}
    assert set(store.files("step-1")) == {"x-a2", "manifest.json"}
    assert list(store.sweep(AT_ONCE).attempts) == []


# --- the way to the medium -------------------------------------------------------------------------------------------


class WithoutDirect(Calls):
    """A file system that refuses direct I/O: when it is asked for, or only at the first write."""

    def __init__(self, *, late):
        super().__init__()
        self.late, self.refused = late, 0
        self.direct = set()

    def set_direct(self, fd, on):
        if on and not self.late:
            self.refused += 1
            raise OSError(errno.EINVAL, "no direct I/O")
        (self.direct.add if on else self.direct.discard)(fd)

    def pwrite(self, fd, data, offset):
        if fd in self.direct:
            self.refused += 1
            raise OSError(errno.EINVAL, "no direct I/O after all")
        return super().pwrite(fd, data, offset)


@pytest.mark.parametrize("late", [False, True])
def test_without_direct_io_it_goes_through_the_cache_and_says_so_once(tmp_path, late, caplog):
    calls = WithoutDirect(late=late)

    with caplog.at_level(logging.WARNING, "model_checkpoint.storage"):
        for step in range(3):  # a new store each time, as a training loop has it
            save_blobs(LocalStore(tmp_path / "runs", calls=calls), f"step-{step}", {"x": b"abc" * 5000, "y": b"y"})

    assert calls.refused == 1
    assert caplog.text.count("this file system has no direct I/O; writing through the page cache") == 1
    assert load_blobs(LocalStore(tmp_path / "runs"), "step-2") == {"x": b"abc" * 5000, "y": b"y"}


def test_direct_io_asks_for_blocks_and_says_so_when_it_does_not_get_them(store):
    writer = store.stage("step-1", "a1").create("x", 5000)

    if writer.alignment == 1:
        pytest.skip("no direct I/O on this file system")
    assert writer.alignment == 4096
    with pytest.raises(StorageFailure, match=r"offset 0 and length 5000 must be multiples of 4096"):
        writer.write(0, memoryview(bytes(5000)))


def test_what_is_saved_is_private(store, tmp_path):
    save_blobs(store, "step-1", {"x": b"abc"})

    folder = tmp_path / "runs/checkpoints/step-1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_every_new_parent_is_flushed_up_to_the_first_that_existed(tmp_path):
    calls = FaultyCalls()

    save_blobs(LocalStore(tmp_path / "deep" / "er" / "runs", calls=calls), "step-1", {})

    flushed = {call.path for call in calls.trace if call.name == "fsync_dir"}
    assert {str(tmp_path), f"{tmp_path}/deep", f"{tmp_path}/deep/er", f"{tmp_path}/deep/er/runs"} <= flushed


# --- errors for people -----------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of one megabyte."""
    mount_point = tmp_path / "tiny"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


def test_a_full_disk_is_known_before_the_first_byte_with_figures(tiny_disk):
    store = LocalStore(tiny_disk / "runs")
    save_blobs(store, "step-1", {"x": b"abc"})
    stage = store.stage("step-2", "a2")

    with pytest.raises(
        DiskFull, match=r"x: could not reserve 2097152 bytes, .*needs 2097152 bytes, \d+ are free.*gc"
    ) as e:
        stage.create("x", 2 << 20)
    stage.abort()

    assert e.value.needed == 2 << 20
    assert 0 < e.value.free < 1 << 20
    assert e.value.errno == errno.ENOSPC
    assert load_blobs(store, "step-1") == {"x": b"abc"}
    assert list((tiny_disk / "runs/.staging").iterdir()) == []


class WithoutFallocate(Calls):
    """A file system that cannot reserve."""

    def fallocate(self, fd, size):
        raise OSError(errno.EOPNOTSUPP, "cannot reserve")


def test_where_nothing_can_be_reserved_the_room_left_is_asked_for(tiny_disk):
    store = LocalStore(tiny_disk / "runs", calls=WithoutFallocate())

    stage = store.stage("step-1", "a1")
    with pytest.raises(DiskFull, match=r"could not reserve 2097152 bytes.*needs 2097152 bytes"):
        stage.create("x", 2 << 20)
    stage.abort()
    save_blobs(store, "step-1", {"x": b"abc"})

    assert load_blobs(store, "step-1") == {"x": b"abc"}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS], ids=errno.errorcode.get)
def test_a_refusal_of_the_system_says_what_to_check(tmp_path, code):
    calls = FaultyCalls(Fault(kind=Kind.FAIL, at=2, code=code, lasting=True))

    with pytest.raises(PermissionRefused, match=r"could not make the root.*Check owner, mode and mount options"):
        LocalStore(tmp_path / "runs", calls=calls).stage("step-1", "a1")


def test_a_root_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    store = LocalStore(tmp_path / "file" / "runs")

    assert not store.exists()
    with pytest.raises(StorageFailure, match=r"could not make the root \(Not a directory\)"):
        store.stage("step-1", "a1")


def test_an_unaligned_tail_is_cut_to_the_announced_size(store, tmp_path):
    stage = store.stage("step-1", "a1")
    writer = stage.create("x", 4097)
    write_blob(writer, b"z" * 4097)
    writer.seal()
    stage.publish(b"m")

    assert (tmp_path / "runs/checkpoints/step-1/x").read_bytes() == b"z" * 4097
