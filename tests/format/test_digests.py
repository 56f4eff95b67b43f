"""Fingerprints of chunks go into a file's record and come out of it as they were."""

import base64
import hashlib

import pytest
import xxhash

from model_checkpoint.format import (
    content_digest,
    digest_chunks,
    file_record,
    frame_entries,
    plain_layout,
    planes_frame,
    raw_frame,
    sha256_of,
    stored_xxh3,
    xxh3_of,
)

CHUNKS = [memoryview(b"head"), memoryview(b"one"), memoryview(b"")]


def test_a_record_gives_back_the_digests_of_its_chunks_and_one_over_them():
    digests = digest_chunks(CHUNKS)
    record = file_record("r", size=7, ends=(4, 7, 7), digests=digests)

    shas = [hashlib.sha256(chunk).digest() for chunk in CHUNKS]
    assert sha256_of(record) == shas
    assert xxh3_of(record) == [xxhash.xxh3_128_digest(chunk) for chunk in CHUNKS]
    assert record.digest == hashlib.sha256(b"".join(shas)).hexdigest()
    assert (record.name, record.size, record.ends, record.frames) == ("r", 7, (4, 7, 7), ())


def test_digests_of_parts_are_recorded_where_any_chunk_has_some():
    def recorded(*subchunks):
        return file_record("r", size=7, ends=(4, 7), digests=digest_chunks(CHUNKS[:2]), subchunks=subchunks).subchunks

    assert recorded("", "AAAA") == ("", "AAAA")
    assert recorded("", "") == recorded() == ()


def test_chunks_are_copied_on_the_way_where_there_are_rooms():
    rooms = [bytearray(len(chunk)) for chunk in CHUNKS]

    assert digest_chunks(CHUNKS, [memoryview(room) for room in rooms]) == digest_chunks(CHUNKS)
    assert rooms == [bytes(chunk) for chunk in CHUNKS]


def test_the_content_of_a_tensor_has_an_xxh3_of_its_own():
    assert content_digest(b"abc") == xxhash.xxh3_128_hexdigest(b"abc")


def test_digests_that_are_not_base64_are_refused():
    record = file_record("r", size=4, ends=(4,), digests=digest_chunks(CHUNKS[:1]))

    with pytest.raises(ValueError, match="base64"):
        sha256_of(type(record)("r", 4, (4,), "*" + record.sha256[1:], record.xxh3, ""))


def test_a_file_that_is_no_safetensors_is_one_chunk():
    layout = plain_layout(b"index")

    assert (layout.header, layout.size, list(layout.starts), list(layout.ends)) == (b"index", 5, [5], [5])
    assert (list(layout.order), list(layout.alignments)) == ([], [])


def test_frames_are_named_by_their_chunk_and_lie_where_they_are_stored():
    frames = [raw_frame(0, 4096), planes_frame(4096, 4106, width=2, xxh3=b"x" * 16), raw_frame(4106, 4116)]
    record = file_record("r", size=4116, ends=(4096, 4196, 4206), digests=digest_chunks(CHUNKS), frames=frames)

    entries = frame_entries(record)

    assert [(e.name, e.shape, e.stored, e.stored_shape, e.start, e.stop) for e in entries] == [
        ("c00001", (10,), "U8", None, 4096, 4106),
        ("c00002", (10,), "U8", None, 4106, 4116),
    ]
    assert (record.frames[1].width, stored_xxh3(record.frames[1])) == (2, b"x" * 16)
    assert record.frames[1].xxh3 == base64.b64encode(b"x" * 16).decode()
