"""Digests of several chunks at once are those of hashlib, side by side or one by one, and the copies are exact."""

import hashlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ground.extensions import without_extension

from model_checkpoint.format import sha256

LANES = "model_checkpoint.format._sha256_lanes"
EDGES = [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000]
PLAIN = without_extension(sha256, LANES)
WAYS = [
    pytest.param(PLAIN, id="one-by-one"),
    pytest.param(
        sha256,
        id="side-by-side",
        marks=pytest.mark.skipif(not sha256.SIDE_BY_SIDE, reason="no compiler, or a processor without a SHA unit"),
    ),
]
chunks = st.lists(st.one_of(st.sampled_from(EDGES).map(bytes), st.binary(max_size=400)), max_size=9)


def test_the_package_works_without_the_extension():
    assert not PLAIN.SIDE_BY_SIDE


@pytest.mark.parametrize("way", WAYS)
@given(data=chunks)
def test_digests_are_those_of_hashlib(way, data):
    assert way.sha256_each([memoryview(d) for d in data]) == [hashlib.sha256(d).digest() for d in data]


@pytest.mark.parametrize("way", WAYS)
@given(data=chunks, gaps=st.lists(st.integers(0, 40), min_size=10, max_size=10))
def test_copies_are_exact_at_any_place_and_touch_nothing_else(way, data, gaps):
    ground = bytearray(b"\xaa" * (sum(map(len, data)) + sum(gaps)))
    expected, rooms, at = bytearray(ground), [], 0
    for piece, gap in zip(data, gaps, strict=False):
        at += gap
        rooms.append(memoryview(ground)[at : at + len(piece)])
        expected[at : at + len(piece)] = piece
        at += len(piece)

    digests = way.copy_each([memoryview(d) for d in data], rooms)

    assert digests == [hashlib.sha256(d).digest() for d in data]
    assert ground == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_room_of_another_size_is_refused(way):
    with pytest.raises(ValueError, match=r"room of its own size|different structures"):
        way.copy_each([memoryview(b"four")], [memoryview(bytearray(5))])


@pytest.mark.skipif(not sha256.SIDE_BY_SIDE, reason="no compiler, or a processor without a SHA unit")
def test_the_extension_takes_only_flat_memory_and_writable_rooms():
    with pytest.raises(BufferError, match="contiguous"):
        sha256.sha256_each([memoryview(b"0123456789")[::2]])
    with pytest.raises(BufferError, match="not writable"):
        sha256.copy_each([memoryview(b"four")], [memoryview(b"room")])
    with pytest.raises(TypeError, match="bytes-like"):
        sha256.sha256_each(["text"])


@pytest.mark.parametrize("way", WAYS)
def test_many_threads_hash_at_once(way):
    data = [memoryview(bytes([n]) * (200_000 + n)) for n in range(7)]
    expected, found = [hashlib.sha256(d).digest() for d in data], []
    threads = [threading.Thread(target=lambda: found.append(way.sha256_each(data))) for _ in range(8)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [expected] * 8
