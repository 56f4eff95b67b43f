"""A tracker tells each kind of damage, and any number of threads and processes may use it at once."""

import errno
import os
import shutil

import pytest
from tests.ground.crowds import in_children, in_threads

from model_checkpoint.integrity import ChecksumCalculator, FileState, IntegrityTracker
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.crash import Ended, each_call
from model_checkpoint.testing.faults import KILLS, Fault


@pytest.fixture
def folder(tmp_path):
    for name in ("a.pt", "b.pt", "c.pt"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    return tmp_path


def states(tracker):
    return {os.path.basename(path): state.value for path, state in tracker.verify_all().items()}


def test_each_state_is_told_apart(folder):
    tracker = IntegrityTracker(folder)
    names = ["good", "gone", "cut", "flipped"]
    for name in names:
        (folder / name).write_bytes(b"0123456789")
    tracker.add_files([folder / name for name in names])

    (folder / "gone").unlink()
    (folder / "cut").write_bytes(b"012345678")
    (folder / "flipped").write_bytes(b"0123456780")

    assert states(tracker) == {
        "good": "verified",
        "gone": "file_missing",
        "cut": "size_mismatch",
        "flipped": "checksum_mismatch",
    }
    assert tracker.verify_file(folder / "stranger") is FileState.NOT_TRACKED
    assert tracker.verify_file(folder / "flipped") is FileState.CHECKSUM_MISMATCH


def test_sixty_four_saves_from_eight_threads_are_all_tracked(folder):
    tracker = IntegrityTracker(folder / "integrity")

    def save(number):
        for n in range(8):
            path = folder / f"{number}-{n}.pt"
            path.write_bytes(f"{number} {n}".encode())
            tracker.add_file(path)
            assert tracker.verify_file(path) is FileState.VERIFIED

    in_threads(save, range(8))

    assert len(tracker.files()) == 64
    assert set(states(tracker).values()) == {"verified"}


def test_eight_processes_track_their_files_in_one_place(folder):
    def work(number):
        tracker = IntegrityTracker(folder)
        for n in range(16):
            path = folder / f"{number}-{n}.pt"
            path.write_bytes(f"{number} {n}".encode())
            tracker.add_file(path)

    assert in_children(8, work) == [0] * 8
    assert len(IntegrityTracker(folder).files()) == 128


@pytest.mark.fault
@pytest.mark.parametrize("kind", KILLS)
def test_a_kill_while_the_tracker_writes_loses_no_file_tracked_before(folder, kind):
    tracked = folder / "tracked"
    for at, outcome in each_call(
        lambda calls: IntegrityTracker(tracked, calls=calls).add_file(folder / "b.pt"),
        Fault(kind=kind, at=1),
        prepare=lambda: (tracked.unlink(missing_ok=True), IntegrityTracker(tracked).add_file(folder / "a.pt")),
    ):
        assert outcome.ended is Ended.KILLED
        tracker = IntegrityTracker(tracked)
        assert states(tracker).keys() - {"b.pt"} == {"a.pt"}, at
        assert set(states(tracker).values()) == {"verified"}, at
        tracker.add_file(folder / "c.pt")
        assert "c.pt" in states(IntegrityTracker(tracked)), at


def test_a_known_checksum_saves_reading_the_file_again(folder):
    known = ChecksumCalculator().file_checksum_with_metadata(folder / "a.pt")
    (folder / "a.pt").write_bytes(b"changed before it was tracked")
    tracker = IntegrityTracker(folder)

    assert tracker.add_file(folder / "a.pt", known=known).checksum == known.checksum
    assert tracker.verify_file(folder / "a.pt") is FileState.SIZE_MISMATCH


def test_the_folder_can_be_moved_as_a_whole(folder, tmp_path_factory):
    IntegrityTracker(folder).add_files([folder / "a.pt", folder / "b.pt"])
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"

    shutil.copytree(folder, elsewhere)
    shutil.rmtree(folder)

    assert states(IntegrityTracker(elsewhere)) == {"a.pt": "verified", "b.pt": "verified"}


def test_files_elsewhere_are_known_by_their_whole_path(folder, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other") / "x.pt"
    other.write_bytes(b"x")
    tracker = IntegrityTracker(folder)
    tracker.add_file(other)

    monkeypatch.chdir(other.parent)

    assert tracker.verify_file("x.pt") is FileState.VERIFIED
    assert list(IntegrityTracker(folder).files()) == [str(other)]


def test_the_file_looked_at_longest_ago_is_looked_at_first(folder):
    tracker = IntegrityTracker(folder)
    tracker.add_files([folder / name for name in ("a.pt", "b.pt", "c.pt")])
    tracker.verify_file(folder / "a.pt")
    ticks = iter([0.0, 1.0, 2.0, 100.0, 101.0])

    reached = tracker.verify_all(seconds=50, clock=lambda: next(ticks, 200.0))

    assert [os.path.basename(path) for path in reached] == ["b.pt", "c.pt"]
    assert [os.path.basename(path) for path in tracker.files()] == ["a.pt", "b.pt", "c.pt"]


def test_a_file_that_was_replaced_and_tracked_anew_while_it_was_read_is_no_damage(folder, monkeypatch):
    tracker, real = IntegrityTracker(folder), ChecksumCalculator.verify_file_with_metadata
    tracker.add_file(folder / "a.pt")
    replaced = []

    def replace_first(self, path, expected):
        if not replaced:
            replaced.append(True)
            (folder / "a.pt").write_bytes(b"new")
            IntegrityTracker(folder).add_file(folder / "a.pt")
        return real(self, path, expected)

    monkeypatch.setattr(ChecksumCalculator, "verify_file_with_metadata", replace_first)

    assert tracker.verify_file(folder / "a.pt") is FileState.VERIFIED
    assert tracker.get(folder / "a.pt").size == 3


def test_what_is_gone_is_forgotten_only_when_asked(folder):
    tracker = IntegrityTracker(folder)
    tracker.add_files([folder / "a.pt", folder / "b.pt"])
    (folder / "a.pt").unlink()

    assert tracker.verify_file(folder / "a.pt") is FileState.FILE_MISSING
    assert tracker.statistics().states == {"verified": 1, "file_missing": 1}
    assert tracker.cleanup_missing() == [str(folder / "a.pt")]
    assert (tracker.remove_file(folder / "b.pt"), tracker.remove_file(folder / "b.pt")) == (True, False)
    assert (tracker.statistics().files, tracker.statistics().nbytes) == (0, 0)


def test_two_trackers_of_two_runs_do_not_meet(folder, monkeypatch):
    """There is no file in the folder that happens to be the current one."""
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    monkeypatch.chdir(folder)

    IntegrityTracker("one").add_file("a.pt")
    IntegrityTracker("two").add_file("b.pt")

    assert [os.path.basename(path) for path in IntegrityTracker("one").files()] == ["a.pt"]
    assert sorted(os.listdir(folder)) == ["a.pt", "b.pt", "c.pt", "one", "two"]


def test_what_was_found_counts_also_where_it_cannot_be_written_down(folder, caplog):
    IntegrityTracker(folder).add_file(folder / "a.pt")
    (folder / "a.pt").write_bytes(b"damaged")
    tracker = IntegrityTracker(folder, calls=ReadOnly())

    assert tracker.verify_file(folder / "a.pt") is FileState.SIZE_MISMATCH
    assert "cannot be remembered" in caplog.text


class ReadOnly(Syscalls):
    """A system on which nothing can be opened to write."""

    def open(self, path, flags, *, folder=None):
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return super().open(path, flags, folder=folder)
