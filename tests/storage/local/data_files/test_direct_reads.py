"""Cold files are read around the page cache, and no alignment, size or refusal changes what a reader gets."""

import errno
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.errors import StorageFailure, Truncated
from model_checkpoint.storage.local.data_files.files import open_reader
from model_checkpoint.storage.local.syscalls import Syscalls

SIZE = (9 << 20) + 1234  # large enough to be worth it, ending inside a page


class ColdCalls(Syscalls):
    """A system whose page cache is always empty, and which notes every read."""

    def __init__(self):
        super().__init__()
        self.direct, self.reads = False, []

    def resident(self, fd, size):
        return 0.0

    def set_direct(self, fd, on):
        super().set_direct(fd, on)
        self.direct = on

    def preadv(self, fd, buffer, offset):
        self.reads.append((self.direct, offset, len(buffer)))
        return super().preadv(fd, buffer, offset)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cold")
    (path / "data").write_bytes(os.urandom(SIZE))
    (path / "small").write_bytes(os.urandom(5000))
    return path


def read(reader, offset, length):
    buffer = bytearray(length)
    reader.read_into(offset, memoryview(buffer))
    return bytes(buffer)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_range_of_a_cold_file_comes_back_as_it_is(folder, data):
    """Direct reads must be aligned; callers' ranges are not."""
    start = data.draw(st.integers(0, SIZE - 1))
    stop = data.draw(st.integers(start, min(SIZE, start + (6 << 20))))
    calls = ColdCalls()

    found = read(open_reader(calls, str(folder), "data", direct=True), start, stop - start)

    assert found == (folder / "data").read_bytes()[start:stop]
    assert all(direct and not offset % 4096 for direct, offset, _ in calls.reads)


def test_aligned_requests_into_aligned_memory_are_read_in_one_call(folder):
    """The fast path of a cold load has no second copy."""
    import mmap

    calls, room = ColdCalls(), memoryview(mmap.mmap(-1, 1 << 20))

    open_reader(calls, str(folder), "data", direct=True).read_into(4096, room)

    assert calls.reads == [(True, 4096, 1 << 20)]
    assert bytes(room) == (folder / "data").read_bytes()[4096 : 4096 + (1 << 20)]


@pytest.mark.parametrize("start", [0, 4096, SIZE - 5000, SIZE - 1, SIZE])
def test_a_cold_file_that_ends_too_early_is_truncated(folder, start):
    """The end of the file is no reason to hand out half a buffer."""
    reader = open_reader(ColdCalls(), str(folder), "data", direct=True)

    with pytest.raises(Truncated, match="data"):
        read(reader, start, SIZE - start + 1)


def test_small_files_and_stores_that_keep_the_cache_are_read_through_it(folder):
    """`direct=False` promises that what was loaded is in memory for the next process."""
    small, keeping = ColdCalls(), ColdCalls()

    read(open_reader(small, str(folder), "small", direct=True), 0, 5000)
    read(open_reader(keeping, str(folder), "data", direct=False), 0, 5000)

    assert [direct for direct, *_ in small.reads + keeping.reads] == [False, False]


def test_a_file_in_the_page_cache_is_read_from_it(folder):
    """A warm file is faster through the cache than from any disk."""
    whole = (folder / "data").read_bytes()
    fd = os.open(folder / "data", os.O_RDONLY)
    try:
        assert Syscalls().resident(fd, SIZE) > 0.5
    finally:
        os.close(fd)

    assert read(open_reader(Syscalls(), str(folder), "data", direct=True), 10, 100) == whole[10:110]


class RefusingCalls(ColdCalls):
    """A file system that takes the flag and then refuses the reads."""

    code = errno.EINVAL

    def preadv(self, fd, buffer, offset):
        if self.direct:
            raise OSError(self.code, os.strerror(self.code))
        return super().preadv(fd, buffer, offset)


def test_a_file_system_that_refuses_direct_reads_is_read_through_the_cache(folder):
    """Direct reads are a matter of speed, never of whether a checkpoint can be loaded."""
    reader = open_reader(RefusingCalls(), str(folder), "data", direct=True)

    assert read(reader, 7, 9000) == (folder / "data").read_bytes()[7:9007]


def test_a_bad_sector_is_reported_and_not_read_again_through_the_cache(folder):
    """EIO is an answer of the medium, not of the way to it."""
    calls = RefusingCalls()
    calls.code = errno.EIO
    reader = open_reader(calls, str(folder), "data", direct=True)

    with pytest.raises(StorageFailure, match="data"):
        read(reader, 0, 9000)


class HaltingCalls(ColdCalls):
    """A system that stops every long read inside a page."""

    def preadv(self, fd, buffer, offset):
        if len(buffer) > 3 * 4096:
            return os.preadv(fd, [buffer[: 2 * 4096]], offset) - 512
        return super().preadv(fd, buffer, offset)


def test_a_read_that_stops_inside_a_page_is_continued(folder):
    """Only the end of the file is the end of the file."""
    reader = open_reader(HaltingCalls(), str(folder), "data", direct=True)

    assert read(reader, 100, 200_000) == (folder / "data").read_bytes()[100:200_100]
