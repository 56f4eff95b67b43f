"""A manifest that cannot be true is refused by itself, before a file is opened."""

import msgspec
import pytest

from model_checkpoint import errors
from model_checkpoint.format import ChunkDigest, check_entries, check_files, file_record
from model_checkpoint.manifest import Entry
from model_checkpoint.options import ReaderLimits

RECORD = file_record("r0-0", size=4125, ends=(4096, 4125), digests=[ChunkDigest(bytes(32), bytes(16))] * 2)
ENTRY = Entry("w", "numpy", "uint8", (29,), "U8", None, 0, 4096, 4125, "")


def record(**changes):
    return msgspec.structs.replace(RECORD, **changes)


def entry(**changes):
    return msgspec.structs.replace(ENTRY, **changes)


def check(*entries, files=(RECORD,), limits=ReaderLimits()):  # noqa: B008 - a frozen value
    check_files(files, "here", limits)
    check_entries(entries, files, "here", limits)


def test_a_manifest_that_makes_sense_is_accepted():
    check(ENTRY, entry(start=4100, shape=(25,)), entry(start=4125, shape=(0,)), entry(stop=4096, shape=(3, 0)))
    check(entry(name="c", dtype="complex64", shape=(), stored="F32", stored_shape=(2,), stop=4104))
    check(entry(shape=(1 << 62, 0), stored_shape=(29,)))
    check(files=[RECORD, record(name="r0-1")])


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b", "x" * 129, "a\n", "\u00e9"])
def test_a_file_name_that_is_not_safe_is_refused(name):
    with pytest.raises(errors.UnsafeName, match="the manifest names a file"):
        check(files=[record(name=name)])


def test_a_name_of_128_characters_is_safe():
    check(files=[record(name="x" * 128)])


@pytest.mark.parametrize("again", ["r0-0", "R0-0"])
def test_a_file_named_twice_in_any_case_is_refused(again):
    with pytest.raises(errors.UnsafeName, match=f"names a file '{again}'"):
        check(files=[RECORD, record(name=again)])


@pytest.mark.parametrize(
    "changed",
    [
        {"ends": ()},
        {"ends": (0, 4125)},
        {"ends": (-1, 4125)},
        {"ends": (4125, 4125)},
        {"ends": (4126, 4125)},
        {"ends": (4096, 4124)},
        {"ends": (4125,)},
        {"ends": (1, 4096, 4125)},
        {"size": 4124},
        {"size": 4126},
        {"sha256": ""},
        {"sha256": RECORD.sha256[:-8] + "AA=="},
        {"sha256": "%" + RECORD.sha256[1:]},
        {"xxh3": ""},
        {"xxh3": RECORD.xxh3[:-8] + "AA=="},
        {"xxh3": "no base64"},
        {"subchunks": ("",)},
        {"subchunks": ("", "AAAA")},
        {"subchunks": ("", "no base64")},
    ],
    ids=str,
)
def test_a_chunk_table_that_does_not_fit_its_file_is_refused(changed):
    with pytest.raises(errors.LayoutInvalid, match="the chunk table of r0-0 does not fit its"):
        check(files=[record(**changed)])


@pytest.mark.parametrize(
    "changed",
    [
        {"file": -1},
        {"file": 1},
        {"start": 4095},
        {"start": 4095, "shape": (30,)},
        {"stop": 4126, "shape": (30,)},
        {"start": 4125, "stop": 4096},
        {"shape": (28,)},
        {"shape": (30,)},
        {"shape": (-29,)},
        {"shape": (-1, -29)},
        {"shape": (29, -1), "stored_shape": (29,)},
        {"shape": ((1 << 62) + 1,), "stored_shape": (29,)},
        {"stored": "U9"},
        {"stored": "I16"},
        {"stored_shape": (28,)},
    ],
    ids=str,
)
def test_an_entry_that_cannot_lie_where_it_says_is_refused(changed):
    with pytest.raises(errors.LayoutInvalid, match=r"here: tensor 'w' .* cannot lie at"):
        check(entry(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "n" * 11},
        {"shape": (29, 1, 1, 1)},
        {"stored_shape": (29, 1, 1, 1)},
        {"shape": (29, 1, 1, 1), "stored_shape": (29,)},
    ],
    ids=str,
)
def test_a_rank_or_name_beyond_the_limits_is_refused(changed):
    limits = ReaderLimits(rank=3, name_bytes=10)

    check(entry(name="n" * 10, shape=(29, 1, 1), stored_shape=(1, 29, 1)), limits=limits)
    with pytest.raises(errors.LimitExceeded, match="the limits are 3 and 10"):
        check(entry(**changed), limits=limits)
