"""Parts of a chunk are believed by their own digests, and only where they lie."""

import base64

import pytest

from model_checkpoint.format.subchunks import is_intact, subchunk_digests, subchunks_fit
from model_checkpoint.manifest import SUBCHUNK_BYTES, FileRecord, Frame

CHUNK = b"".join(bytes([i]) * SUBCHUNK_BYTES for i in range(3)) + b"end"


def record(*chunks, subchunks=None, frames=()):
    ends = [8]
    for chunk in chunks:
        ends.append(ends[-1] + len(chunk))
    told = ("", *(subchunk_digests(memoryview(chunk)) for chunk in chunks)) if subchunks is None else subchunks
    return FileRecord("a", ends[-1], tuple(ends), "", "", "", frames=frames, subchunks=told)


def part(first, stop):
    return memoryview(CHUNK)[first * SUBCHUNK_BYTES : stop * SUBCHUNK_BYTES]


@pytest.mark.parametrize(("first", "stop"), [(0, 1), (1, 3), (3, 4), (0, 4)])
def test_parts_are_intact_where_they_lie_and_nowhere_else(first, stop):
    file = record(CHUNK)

    assert is_intact(file, 1, first * SUBCHUNK_BYTES, part(first, stop))
    assert not is_intact(file, 1, (first + 1) * SUBCHUNK_BYTES, part(first, stop))
    assert not is_intact(file, 1, first * SUBCHUNK_BYTES + 1, part(first, stop))
    assert not is_intact(file, 1, first * SUBCHUNK_BYTES, memoryview(bytes(part(first, stop))[:-1] + b"?"))


def test_a_chunk_of_one_part_has_no_digests_of_parts():
    assert subchunk_digests(memoryview(bytes(SUBCHUNK_BYTES))) == ""
    assert len(base64.b64decode(subchunk_digests(memoryview(CHUNK)))) == 4 * 16


@pytest.mark.parametrize(
    ("told", "fits"),
    [
        ((), True),
        (("", ""), True),
        (("", subchunk_digests(memoryview(CHUNK))), True),
        (("", subchunk_digests(memoryview(CHUNK[:-3]))), False),
        (("", base64.b64encode(bytes(4 * 16 + 1)).decode()), False),
        (("", "no base64!"), False),
        (("",), False),
        (("", "", ""), False),
    ],
)
def test_there_are_as_many_digests_as_parts_or_none(told, fits):
    assert subchunks_fit(record(CHUNK, subchunks=told)) is fits


def test_a_compressed_file_has_no_digests_of_parts():
    frames = (Frame(0, 8, "raw", 1, ""), Frame(8, 20, "planes", 4, ""))

    assert not subchunks_fit(record(CHUNK, frames=frames))
    assert subchunks_fit(record(CHUNK, frames=frames, subchunks=()))
