"""One file on its way to and from an object store, here obstore's own in memory: any order, any number of threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from model_checkpoint.errors import CheckpointException, StorageFailure, Truncated
from model_checkpoint.storage.objects import reader, writer
from model_checkpoint.storage.objects.reader import ObjectReader
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.writer import Buffers, ObjectWriter

DATA = bytes(range(256)) * 8
SMALL = Buffers(window=200, part=64, at_once=2)


class Watched(Bucket):
    """Notes which ranges were asked for, and can be told to fail."""

    asked = broken = came = None

    def read(self, key, offset, length):
        self.asked.append((offset, length))
        self.came.release()
        return super().read(key, offset, length)

    def put_stream(self, key, blocks, size, **options):
        if self.broken.is_set():
            next(blocks)
            raise StorageFailure("the wire broke", key)
        super().put_stream(key, blocks, size, **options)


@pytest.fixture
def bucket(monkeypatch):
    monkeypatch.setattr(reader, "BLOCK_BYTES", 128)
    monkeypatch.setattr(writer, "PART_BYTES", 32)
    return watched()


def watched():
    made = Watched(Address.parse("s3://bucket/root"), MemoryStore())
    made.asked, made.broken, made.came = [], threading.Event(), threading.Semaphore(0)
    return made


def opened(bucket, data=DATA):
    bucket.put("file", data)
    return ObjectReader(bucket, "file", size=len(data), where="here", file="file")


def read(one, offset, length):
    buffer = bytearray(length)
    one.read_into(offset, memoryview(buffer))
    return bytes(buffer)


@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 300)), max_size=30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_reads_give_the_bytes_of_the_file(places, in_a_row):
    before, reader.BLOCK_BYTES = reader.BLOCK_BYTES, 128
    try:
        one, at = opened(watched()), 0
        for start, length in places:
            start = at if in_a_row else start
            length = min(length, len(DATA) - start)
            assert read(one, start, length) == DATA[start : start + length]
            at = start + length
        one.close()
    finally:
        reader.BLOCK_BYTES = before


def test_reads_in_a_row_are_fetched_ahead_in_blocks_and_no_byte_twice(bucket):
    one = opened(bucket)

    assert b"".join(read(one, start, 16) for start in range(0, len(DATA), 16)) == DATA
    one.close()

    blocks = [(start, min(128, len(DATA) - start)) for start in range(48, len(DATA), 128)]
    assert sorted(bucket.asked) == [(0, 16), (16, 16), (32, 16), *blocks]


def test_a_block_is_held_until_its_last_byte_is_taken(bucket):
    one = opened(bucket)

    for start, length in ((0, 16), (16, 16), (32, 16), (48, 127), (175, 1), (176, 16)):
        assert read(one, start, length) == DATA[start : start + length]
    one.close()

    assert [length for _, length in bucket.asked if length < 128] == [16, 16, 16]


def test_no_more_than_a_few_blocks_are_held_ahead(bucket):
    one = opened(bucket)
    for start in (0, 16, 32):
        read(one, start, 16)

    assert all(bucket.came.acquire(timeout=20) for _ in range(3 + reader.BLOCKS_AHEAD))
    assert not bucket.came.acquire(timeout=0)
    one.close()


def test_a_read_elsewhere_ends_the_row_and_one_that_comes_late_does_not(bucket):
    one = opened(bucket)
    for start in (1024, 1040, 1056):
        read(one, start, 16)
    assert all(bucket.came.acquire(timeout=20) for _ in range(3 + reader.BLOCKS_AHEAD))

    assert read(one, 0, 16) == DATA[:16]  # a thread that was overtaken
    assert read(one, 1072, 16) == DATA[1072:1088]
    assert len(bucket.asked) == 3 + reader.BLOCKS_AHEAD + 1
    for start in (200, 400, 600):
        assert read(one, start, 8) == DATA[start : start + 8]
    one.close()
    assert bucket.asked[-3:] == [(200, 8), (400, 8), (600, 8)]


def test_many_threads_read_one_file(bucket):
    one = opened(bucket)
    with ThreadPoolExecutor(4) as team:
        got = list(team.map(lambda start: read(one, start, 32), range(0, len(DATA), 32)))
    one.close()

    assert b"".join(got) == DATA


def test_a_file_that_is_shorter_than_known_is_told(bucket):
    one = opened(bucket)
    with pytest.raises(Truncated, match="file"):
        read(one, len(DATA) - 1, 2)
    bucket.put("file", DATA[:100])
    with pytest.raises(Truncated, match="file"):
        read(one, 90, 20)
    one.close()


def slabs(cuts):
    return list(pairwise(sorted({0, len(DATA), *cuts})))


@given(st.lists(st.integers(1, len(DATA) - 1), max_size=24), st.randoms(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_slabs_in_any_order_from_any_thread_become_the_file(cuts, chance, threads):
    before, writer.PART_BYTES = writer.PART_BYTES, 32
    try:
        made, pieces = Bucket(Address.parse("s3://bucket/root"), MemoryStore()), slabs(cuts)
        chance.shuffle(pieces)
        one = ObjectWriter(made, "file", len(DATA), buffers=SMALL)
        with ThreadPoolExecutor(threads) as team:
            list(team.map(lambda piece: one.write(piece[0], memoryview(DATA)[slice(*piece)]), pieces))
        one.seal()
    finally:
        writer.PART_BYTES = before

    assert made.get("file").data == DATA
    assert (one.sealed, one.touched, one.stamp.size, one.bytes_held) == (True, True, len(DATA), 0)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 500])
def test_a_file_may_end_up_shorter_than_announced(bucket, size):
    one = ObjectWriter(bucket, "file", 600, buffers=SMALL)
    one.write(0, memoryview(DATA)[:size])
    one.seal(size)

    assert bucket.get("file").data == DATA[:size] if size else bucket.head("file").size == 0
    assert one.stamp.size == size


@pytest.mark.parametrize("size", [20, 600], ids=["whole", "in parts"])
def test_a_writer_refuses_what_makes_no_file(bucket, size):
    one = ObjectWriter(bucket, "file", size, buffers=SMALL)
    one.write(0, memoryview(DATA)[:10])

    for offset, length in ((-1, 1), (size, 1), (size - 1, 2)):
        with pytest.raises(CheckpointException, match=rf"lie outside the {size} announced"):
            one.write(offset, memoryview(DATA)[:length])
    for wrong in (11, size, -1, size + 1):
        with pytest.raises(CheckpointException, match="bytes announced were written"):
            one.seal(wrong)
    if size > 32:
        with pytest.raises(CheckpointException, match="byte 0 was written before"):
            one.write(0, memoryview(DATA)[:1])
        one.write(20, memoryview(DATA)[:1])
        with pytest.raises(CheckpointException, match="byte 20 was written before"):
            one.write(20, memoryview(DATA)[:1])
        one.write(10, memoryview(DATA)[10:20])
    one.seal(10)
    with pytest.raises(CheckpointException, match="it was sealed, or failed, before"):
        one.seal(10)
    with pytest.raises(CheckpointException, match="it is closed already"):
        one.write(0, memoryview(DATA)[:1])


def test_an_upload_that_breaks_is_told_to_whoever_writes_and_seals(bucket):
    bucket.broken.set()
    one = ObjectWriter(bucket, "file", len(DATA), buffers=SMALL)
    one.write(0, memoryview(DATA)[:100])

    def write_on():  # more than memory holds, so that somebody must wait for the upload
        for start in range(100, len(DATA), 100):
            one.write(start, memoryview(DATA)[start : start + 100])

    with pytest.raises(StorageFailure, match="the wire broke"):
        write_on()
    one.give_up()
    assert not one.sealed
    assert not any(thread.name == "mckpt-upload" for thread in threading.enumerate())


def test_an_upload_given_up_leaves_no_thread_and_no_object(bucket):
    one = ObjectWriter(bucket, "file", len(DATA), buffers=SMALL)
    one.write(0, memoryview(DATA)[:100])
    one.write(1000, memoryview(DATA)[1000:1200])
    one.write(1200, memoryview(DATA)[1200:1400])  # beyond the window: on the local disk

    one.give_up()

    assert bucket.list() == []
    assert not any(thread.name == "mckpt-upload" for thread in threading.enumerate())
    with pytest.raises(CheckpointException, match="it is closed already"):
        one.write(100, memoryview(DATA)[100:200])


def test_an_object_that_is_not_there_whole_is_no_file():
    class Forgetful(Watched):
        def put(self, key, data, **options):
            super().put(key, bytes(data)[:-1], **options)

    other = Forgetful(Address.parse("s3://bucket/root"), MemoryStore())
    one = ObjectWriter(other, "file", 10, buffers=SMALL)
    one.write(0, memoryview(DATA)[:10])
    with pytest.raises(StorageFailure, match="the store does not have 10 bytes of it"):
        one.seal()
    assert not one.sealed


def test_an_upload_that_waits_for_more_is_told_that_there_is_none(bucket):
    one = ObjectWriter(bucket, "file", 600, buffers=SMALL)
    one.write(0, memoryview(DATA)[:50])
    while one.bytes_held:
        time.sleep(0.01)
    time.sleep(0.1)  # all is sent: by now it waits

    sealing = threading.Thread(target=one.seal, args=(50,), daemon=True)
    sealing.start()
    sealing.join(10)

    assert one.sealed
    assert bucket.get("file").data == DATA[:50]
