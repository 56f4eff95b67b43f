"""Copies past the caches are exact at any place and touch nothing else, compiled or not."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ground.extensions import without_extension

from model_checkpoint.performance import copying

COMPILED = "model_checkpoint.performance._stream_copy"
PLAIN = without_extension(copying, COMPILED)
WAYS = [
    pytest.param(PLAIN, id="plain"),
    pytest.param(
        copying, id="streaming", marks=pytest.mark.skipif(not copying.STREAMING, reason="installed without a compiler")
    ),
]


def test_the_package_works_without_the_extension():
    assert not PLAIN.STREAMING


@pytest.mark.parametrize("way", WAYS)
@given(length=st.integers(0, 400), into=st.integers(0, 130), source=st.integers(0, 70), seed=st.integers(0, 255))
def test_copies_are_exact_at_any_place_and_touch_nothing_else(way, length, into, source, seed):
    data = bytes((seed + 7 * i) % 251 for i in range(source + length))
    ground = bytearray(b"\xaa" * (into + length + 130))
    expected = bytes(ground[:into]) + data[source:] + bytes(ground[into + length :])

    way.stream_copy(memoryview(ground)[into : into + length], memoryview(data)[source:])

    assert ground == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [0, 99, 101])
def test_a_room_of_another_size_is_refused_untouched(way, size):
    room = bytearray(size)

    with pytest.raises(ValueError, match=f"100 bytes do not fit a room of {size}"):
        way.stream_copy(memoryview(room), memoryview(b"x" * 100))

    assert room == bytearray(size)


@pytest.mark.parametrize("way", WAYS)
def test_a_room_that_is_read_only_is_refused(way):
    with pytest.raises((TypeError, ValueError), match=r"read-only|read-write"):
        way.stream_copy(memoryview(bytes(3)), memoryview(b"abc"))


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_several_threads_are_exact(way):
    data = bytes(range(256)) * 4096
    room = memoryview(bytearray(4 * len(data)))
    rooms = [room[i * len(data) : (i + 1) * len(data)] for i in range(4)]

    threads = [threading.Thread(target=way.stream_copy, args=(one, memoryview(data))) for one in rooms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert bytes(room) == 4 * data
