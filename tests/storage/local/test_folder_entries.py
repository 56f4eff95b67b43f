"""A folder is listed again exactly when it may have changed."""

import os

import pytest

from model_checkpoint.storage.local.folder_entries import folder_entries
from model_checkpoint.testing import FaultyCalls

SECOND = 10**9
NFS = 0x6969


class Clocked(FaultyCalls):
    """A system whose folders were last changed so many nanoseconds before now, on a file system of choice."""

    def __init__(self, age, magic=0xEF53):
        super().__init__()
        self.age, self.magic = age, magic

    def stat(self, path):
        info = super().stat(path)
        times = {f"st_{kind}time_ns": getattr(info, f"st_{kind}time_ns") - self.age for kind in "amc"}
        return os.stat_result((*info[:7], 0, 0, 0), times)

    def filesystem(self, fd):
        super().filesystem(fd)
        return self.magic

    def listings(self):
        return sum(call.name == "listdir" for call in self.trace)


def test_a_folder_that_has_long_been_the_same_is_listed_once(tmp_path):
    (tmp_path / "a").mkdir()
    calls = Clocked(10 * SECOND)

    assert folder_entries(calls, str(tmp_path)) == folder_entries(calls, str(tmp_path)) == ("a",)
    assert calls.listings() == 1

    (tmp_path / "b").mkdir()
    assert sorted(folder_entries(calls, str(tmp_path))) == ["a", "b"]
    (tmp_path / "a").rename(tmp_path / "c")
    assert sorted(folder_entries(calls, str(tmp_path))) == ["b", "c"]
    (tmp_path / "b").rmdir()
    assert folder_entries(calls, str(tmp_path)) == ("c",)


@pytest.mark.parametrize("calls", [Clocked(-SECOND), Clocked(10 * SECOND, NFS)], ids=["new", "nfs"])
def test_times_that_do_not_prove_that_nothing_changed_are_not_believed(tmp_path, calls):
    """One that changed this very moment may change again within the same tick; a server has another clock."""
    (tmp_path / "a").mkdir()

    for _ in range(3):
        assert folder_entries(calls, str(tmp_path)) == ("a",)

    assert calls.listings() == 3


def test_times_of_whole_seconds_are_believed_only_after_a_few(tmp_path):
    (tmp_path / "a").mkdir()
    now = os.stat(tmp_path).st_ctime_ns

    class Coarse(Clocked):
        def stat(self, path):
            info = super().stat(path)
            whole = (now - self.age) // SECOND * SECOND
            return os.stat_result((*info[:7], 0, 0, 0), {"st_mtime_ns": whole, "st_ctime_ns": whole, "st_atime_ns": 0})

    fresh, settled = Coarse(SECOND), Coarse(60 * SECOND)
    for calls in (fresh, fresh, settled, settled):
        folder_entries(calls, str(tmp_path))

    assert (fresh.listings(), settled.listings()) == (2, 1)


def test_what_is_not_there_has_no_entries(tmp_path):
    assert folder_entries(FaultyCalls(), str(tmp_path / "none")) == ()


def test_only_the_folders_asked_for_last_are_remembered(tmp_path):
    folders = [str(tmp_path / str(number)) for number in range(12)]
    calls = Clocked(10 * SECOND)
    for folder in folders:
        os.mkdir(folder)
        assert folder_entries(calls, folder) == ()

    assert list(calls.listed) == folders[-8:]
