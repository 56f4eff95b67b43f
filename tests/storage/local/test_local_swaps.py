"""Links, pipes and devices in place of our files and folders: nothing is read, written or removed through them."""

import os
import stat

import pytest

from model_checkpoint.errors import StorageFailure, UnsafeName
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "runs")


# --- in place of files ------------------------------------------------------------------------------------------------


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


# --- links where our folders should be -------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of somebody's, with what looks like the leavings of a dead attempt."""
    folder = tmp_path / "elsewhere"
    (folder / "dead").mkdir(parents=True)
    (folder / "dead" / "precious").write_bytes(b"mine")
    (folder / "dead.lock").write_bytes(b"")
    return folder


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def save(store):
    save_blobs(store, "step-1", {"x": b"abc"})


def sweep(store):
    store.sweep(AT_ONCE)


@pytest.mark.parametrize("work", [save, sweep])
@pytest.mark.parametrize("own", [".staging", ".trash", "checkpoints"])
def test_nothing_is_saved_or_swept_through_a_link_in_place_of_an_own_folder(store, tmp_path, elsewhere, own, work):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / own).symlink_to(elsewhere)
    before = contents(elsewhere)

    with pytest.raises(UnsafeName, match=rf"runs/{own}: is a link, so what is written or removed there lies elsewhere"):
        work(store)

    assert contents(elsewhere) == before


def test_nothing_is_deleted_into_a_linked_trash(store, tmp_path, elsewhere):
    save_blobs(store, "step-1", {"x": b"abc"})
    (tmp_path / "runs" / ".trash").rmdir()
    (tmp_path / "runs" / ".trash").symlink_to(elsewhere)

    with pytest.raises(UnsafeName, match=r"runs/\.trash: is a link"):
        store.discard("step-1")

    assert load_blobs(store, "step-1") == {"x": b"abc"}


def test_an_attempt_whose_folder_is_a_link_is_refused(store, tmp_path, elsewhere):
    save_blobs(store, "step-1", {"x": b"abc"})
    (tmp_path / "runs" / ".staging" / "mine").symlink_to(elsewhere)
    before = contents(elsewhere)

    with pytest.raises(StorageFailure, match=r"\.staging/mine: could not begin an attempt"):
        store.stage("step-2", "mine")

    assert contents(elsewhere) == before


def test_a_linked_root_works(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")

    save_blobs(LocalStore(tmp_path / "runs"), "step-1", {"x": b"abc"})

    assert load_blobs(LocalStore(tmp_path / "disk"), "step-1") == {"x": b"abc"}


class Swapping(Syscalls):
    """Puts something else in place of a path the moment its folder is opened, as an enemy would who waits for that."""

    def __init__(self, path, swap):
        super().__init__()
        self.path, self.swap, self.waiting = path, swap, True

    def open(self, path, flags, *, folder=None, **rest):
        fd = super().open(path, flags, folder=folder, **rest)
        if self.waiting and flags & os.O_DIRECTORY and str(path) == str(self.path.parent):
            self.waiting = False
            self.swap(self.path)
        return fd


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("file", ["x", "manifest.json"])
def test_a_file_swapped_between_check_and_open_is_refused(store, tmp_path, swap, file):
    save_blobs(store, "step-1", {"x": b"abc"})
    calls = Swapping(tmp_path / "runs" / "checkpoints" / "step-1" / file, swap)
    watched = LocalStore(tmp_path / "runs", calls=calls)

    with pytest.raises(UnsafeName, match=rf"step-1: {file} is no regular file in a real folder"):
        watched.open("step-1", "x") if file == "x" else watched.read_manifest("step-1")

    assert not calls.waiting


def test_a_folder_swapped_for_a_link_after_it_was_opened_is_not_followed(store, tmp_path, elsewhere):
    save_blobs(store, "step-1", {"x": b"abc"})
    (elsewhere / "x").write_bytes(b"evil")
    folder = tmp_path / "runs" / "checkpoints" / "step-1"

    def swap(path):
        folder.rename(tmp_path / "moved")
        folder.symlink_to(elsewhere)

    reader = LocalStore(tmp_path / "runs", calls=Swapping(folder / "x", swap)).open("step-1", "x")
    buffer = bytearray(3)
    reader.read_into(0, memoryview(buffer))

    assert bytes(buffer) == b"abc"
