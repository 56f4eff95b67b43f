"""What stands in a parity file comes back, and nothing an enemy puts there is believed."""

import base64
import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.format.parity import (
    END_BYTES,
    MOST_COLUMNS,
    ColumnFile,
    body_length,
    decode_record,
    ending,
    parity_record,
    places,
    record_span,
    stand,
)

MANIFEST = b"the manifest"


def record_of(sizes, scheme="pq"):
    columns = stand(sizes)
    blocks = -(-body_length(columns) // (4 << 20))
    digests = {kind: [bytes([i]) * 32 for i in range(blocks)] for kind in ("p", "q")[: 2 if scheme == "pq" else 1]}
    return parity_record(scheme=scheme, id="id", attempt="a1", columns=columns, digests=digests, manifest=MANIFEST)


def read_back(data):
    start, stop = record_span(data[-END_BYTES:], len(data), "here")
    return decode_record(data[start:stop], "here")


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 1 << 40), max_size=40))
@settings(max_examples=60, deadline=None)
def test_every_file_has_a_place_of_its_own_and_columns_are_about_even(sizes):
    columns = stand(sizes)
    found = places(columns)

    assert {name: place.size for name, place in found.items()} == {name: size for name, size in sizes.items() if size}
    assert len(columns) <= MOST_COLUMNS
    for column in range(len(columns)):
        spans = sorted((place.start, place.start + place.size) for place in found.values() if place.column == column)
        assert spans[0][0] == 0
        assert all(one[1] == two[0] for one, two in pairwise(spans))
    if found:
        fair, largest = sum(sizes.values()) / len(columns), max(sizes.values())
        assert largest <= body_length(columns) <= fair + largest


def test_there_are_sixteen_columns_and_no_more():
    """Files of earlier versions have that many: a reader that knew fewer would refuse them."""
    columns = stand({f"f{i:02d}": 1 for i in range(40)})

    assert [len(column) for column in columns] == [3] * 8 + [2] * 8
    assert read_back(ending(record_of({f"f{i}": 5 for i in range(16)}), MANIFEST)).length == 5


def test_where_files_stand_does_not_hang_on_their_order():
    sizes = {"a": 5, "b": 5, "c": 9, "d": 1}

    assert stand(sizes) == stand(dict(reversed(sizes.items())))


@pytest.mark.parametrize("scheme", ["xor", "pq"])
@pytest.mark.parametrize("sizes", [{}, {"a": 1}, {"a": 9 << 20, "b": 5, "c": 4 << 20}])
def test_a_record_comes_back_as_it_was_written(scheme, sizes):
    record = record_of(sizes, scheme)
    data = b"body" + ending(record, MANIFEST)

    assert read_back(data) == record
    assert [len(digest) for digest in record.sha256_of("p")] == [32] * (-(-record.length // record.block))


def test_a_manifest_may_be_of_one_byte():
    record = parity_record(scheme="xor", id="id", attempt="a1", columns=(), digests={"p": []}, manifest=b"m")

    assert read_back(ending(record, b"m")) == record


def test_no_flipped_bit_in_a_record_is_believed():
    data = ending(record_of({"a": 5 << 20, "b": 3}), MANIFEST)

    for at in range(len(MANIFEST), len(data)):
        forged = bytearray(data)
        forged[at] ^= 1
        with pytest.raises(ManifestInvalid, match=r"^here: the parity file cannot be used"):
            read_back(bytes(forged))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"length": 7},
        {"block": 0},
        {"block": -4},
        {"scheme": "raid7"},
        {"scheme": "xor"},
        {"digests": {"p": base64.b64encode(bytes(32)).decode()}},
        {"digests": {"p": "?", "q": "?"}},
        {"columns": ()},
        {"columns": ((ColumnFile("a", 5),),) * 17},
        {"columns": ((ColumnFile("a", 5), ColumnFile("b", 0)),)},
        {"manifest_size": 0},
    ],
)
def test_a_record_that_makes_no_sense_is_refused_though_its_digest_is_right(change):
    forged = ending(msgspec.structs.replace(record_of({"a": 5, "b": 3}), **change), MANIFEST)

    with pytest.raises(ManifestInvalid, match="makes no sense"):
        read_back(forged)


def test_a_record_of_more_than_a_reader_grants_is_refused_before_it_is_read():
    most, end = 256 << 20, ending(record_of({"a": 5}), MANIFEST)[-8:]

    assert record_span(struct.pack("<Q", most) + end, 1 << 40, "here") == ((1 << 40) - 16 - most, (1 << 40) - 16)
    with pytest.raises(ManifestInvalid, match="does not end like one"):
        record_span(struct.pack("<Q", most + 1) + end, 1 << 40, "here")


@given(st.binary(max_size=200))
def test_a_file_that_is_none_is_refused(data):
    with pytest.raises(ManifestInvalid, match=r"does not end like one|does not have the digest"):
        read_back(data)
