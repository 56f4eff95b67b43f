"""The head of a data file is believed only where it says exactly what the manifest and the file's size say."""

import struct

import msgspec
import pytest

from model_checkpoint import errors
from model_checkpoint.format import Tensor, check_header, lay_out
from model_checkpoint.format.header import header_length
from model_checkpoint.manifest import Entry
from model_checkpoint.options import ReaderLimits

LAYOUT = lay_out(
    [Tensor("w", "F32", (2, 3), 24, 4), Tensor("b", "U8", (5,), 5, 1)], metadata={"format": "pt"}, chunk_bytes=100
)
SIZE = 4096 + 29
ENTRIES = [
    Entry("w", "torch", "float32", (2, 3), "F32", None, 0, 4096, 4120, ""),
    Entry("b", "numpy", "bool", (5,), "U8", None, 0, 4120, 4125, ""),
]


def header(rows, *, room=4096):
    text = rows if isinstance(rows, bytes) else msgspec.json.encode(rows)
    text += b" " * (-(len(text) + 8) % room)
    return struct.pack("<Q", len(text)) + text


def check(data, entries=ENTRIES, *, size=SIZE, limits=ReaderLimits()):  # noqa: B008 - a frozen value
    check_header(data, entries, size=size, where="f", limits=limits)


def rows(**changes):
    """The rows of the sound header, some changed, those that are None left out."""
    sound = {
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "U8", "shape": [5], "data_offsets": [24, 29]},
    }
    return {name: row for name, row in (sound | changes).items() if row is not None}


def row(dtype, shape, start, stop):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_a_header_that_says_what_the_manifest_says_is_accepted_in_any_order():
    check(LAYOUT.header)
    check(header(dict(reversed(rows().items()))))
    check(header({"__metadata__": {"any": "thing"}} | rows()))


def test_a_shape_that_differs_in_the_header_is_compared_with_the_stored_one():
    complex_entry = Entry("c", "numpy", "complex128", (3,), "F64", (3, 2), 0, 4096, 4144, "")

    check(header({"c": row("F64", [3, 2], 0, 48)}), [complex_entry], size=4144)
    with pytest.raises(errors.ManifestMismatch, match="tensor 'c'"):
        check(header({"c": row("F64", [2, 3], 0, 48)}), [complex_entry], size=4144)


def test_empty_tensors_take_no_place():
    empty = Entry("e", "numpy", "uint8", (0, 7), "U8", None, 0, 4096, 4096, "")

    check(header(rows(e=row("U8", [0, 7], 0, 0))), [*ENTRIES, empty])


@pytest.mark.parametrize("length", range(8))
def test_a_file_of_less_than_eight_bytes_is_cut_short(length):
    with pytest.raises(errors.Truncated, match=rf"^f: {length} bytes are too few for a data file\. Load another"):
        header_length(bytes(length), size=length, where="f", limits=ReaderLimits())


def test_eight_bytes_are_enough_to_know_the_length_and_more_are_passed_over():
    prefix = struct.pack("<Q", 92)

    assert header_length(prefix, size=100, where="f", limits=ReaderLimits()) == 100
    assert header_length(prefix + b"{}", size=100, where="f", limits=ReaderLimits(header_bytes=92)) == 100


@pytest.mark.parametrize(("size", "limit"), [(99, 92), (100, 91), (0, 1 << 40)])
def test_a_header_beyond_the_file_or_the_limit_is_refused_before_it_is_read(size, limit):
    with pytest.raises(
        errors.HeaderTooLarge, match=rf"a header of 92 bytes; the file has {size}, the limit is {limit}"
    ):
        header_length(struct.pack("<Q", 92), size=size, where="f", limits=ReaderLimits(header_bytes=limit))


@pytest.mark.parametrize("extra", [b" ", b""])
def test_a_header_of_another_length_than_the_manifest_says_is_refused(extra):
    data = LAYOUT.header + extra if extra else LAYOUT.header[:-1]

    with pytest.raises(errors.LayoutInvalid, match=rf"header of 4096 bytes, manifest says {len(data)}"):
        check(data)


@pytest.mark.parametrize("text", [b" {}", b"[]", b"", b"null"])
def test_a_header_that_is_no_object_is_refused(text):
    data = struct.pack("<Q", len(text)) + text

    with pytest.raises(errors.LayoutInvalid, match=r"does not start with '\{'"):
        check(data, [], size=len(data))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"w":', "not readable"),
        (b'{"w":{"dtype":"F32"}}', "not readable"),
        (b'{"w":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":1}}', "not readable"),
        (b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}}', "not readable"),
        (b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not readable"),
        (b'{"\xff":1}', "not readable"),
        (b'{"w": {}}', "blanks stand in it"),
        (b'{"w":{},"w":{}}', "stands twice"),
    ],
)
def test_a_header_that_is_not_plain_json_of_rows_is_refused(text, problem):
    data = header(text)

    with pytest.raises(errors.LayoutInvalid, match=problem):
        check(data, [], size=len(data))


def test_more_tensors_than_granted_are_refused():
    many = {f"t{i}": row("U8", [1], i, i + 1) for i in range(4)}
    entries = [Entry(f"t{i}", "numpy", "uint8", (1,), "U8", None, 0, 4096 + i, 4097 + i, "") for i in range(4)]

    check(header({"__metadata__": {}} | many), entries, size=4100, limits=ReaderLimits(tensors_per_file=4))
    with pytest.raises(errors.LimitExceeded, match="5 tensors, the limit is 3"):
        check(header({"__metadata__": {}} | many), entries, size=4100, limits=ReaderLimits(tensors_per_file=3))


def named(name):
    return header({name: row("U8", [1], 0, 1)}), [Entry(name, "numpy", "uint8", (1,), "U8", None, 0, 4096, 4097, "")]


@pytest.mark.parametrize("name", ["a\x00b", "a\x1f", "\x7f", "\u00e9" * 6, "\U0001f600" * 3, "n" * 11])
def test_names_with_control_characters_or_too_many_bytes_are_refused(name):
    data, entries = named(name)

    with pytest.raises(errors.UnsafeName, match="too long or has control characters"):
        check(data, entries, size=4097, limits=ReaderLimits(name_bytes=10))


def test_a_name_of_just_the_limit_is_granted():
    data, entries = named("n" * 10)

    check(data, entries, size=4097, limits=ReaderLimits(name_bytes=10))


def test_a_rank_above_the_limit_is_refused():
    data = header({"w": row("U8", [1, 1, 1], 0, 1)})
    entries = [Entry("w", "numpy", "uint8", (1, 1, 1), "U8", None, 0, 4096, 4097, "")]

    check(data, entries, size=4097, limits=ReaderLimits(rank=3))
    with pytest.raises(errors.LimitExceeded, match="tensor 'w' has 3 dimensions, the limit is 2"):
        check(data, entries, size=4097, limits=ReaderLimits(rank=2))


@pytest.mark.parametrize(
    ("changed", "size", "problem"),
    [
        (rows(b=row("U8", [5], 25, 30)), SIZE + 1, r"'b' lies at \[25, 30\), expected to start at 24"),
        (rows(b=row("U8", [5], 23, 28)), SIZE, r"'b' lies at \[23, 28\), expected to start at 24"),
        (rows(w=row("F32", [2, 3], 1, 25), b=None), SIZE, "'w' lies at .1, 25., expected to start at 0"),
        (rows(b=row("U8", [5], 24, 23)), SIZE, r"'b' lies at \[24, 23\)"),
        (rows(), SIZE - 1, r"'b' lies at \[24, 29\), expected to start at 24 and end by 28"),
        (rows(), SIZE + 1, "the tensors cover 29 bytes of 30"),
        (rows(b=None), SIZE, "the tensors cover 24 bytes of 29"),
        (rows(b=row("U8", [4], 24, 29)), SIZE, r"'b' of U8 \[4\] needs 4 bytes, has 5"),
        (rows(b=row("X8", [5], 24, 29)), SIZE, r"'b' of X8 \[5\] needs None bytes, has 5"),
        (rows(b=row("U8", [-1, -5], 24, 29)), SIZE, "needs None bytes"),
    ],
)
def test_tensors_that_leave_holes_overlap_or_pass_the_end_are_refused(changed, size, problem):
    with pytest.raises(errors.LayoutInvalid, match=problem):
        check(header(changed), size=size)


@pytest.mark.parametrize(
    ("changed", "odd"),
    [
        (rows(b=None, c=row("U8", [5], 24, 29)), r"e\.g\. \['b', 'c'\]"),
        (rows(e=row("U8", [0], 29, 29)), r"e\.g\. \['e'\]"),
    ],
)
def test_other_names_than_in_the_manifest_are_refused(changed, odd):
    with pytest.raises(errors.ManifestMismatch, match=f"name different tensors, {odd}"):
        check(header(changed))


def test_of_many_other_names_three_are_told():
    with pytest.raises(errors.ManifestMismatch, match=r"e\.g\. \['b', 'e0', 'e1'\]\."):
        check(header(rows(b=None, z=row("U8", [5], 24, 29), **{f"e{i}": row("U8", [0], 0, 0) for i in range(5)})))


@pytest.mark.parametrize(
    "changed",
    [
        rows(w=row("I32", [2, 3], 0, 24)),
        rows(w=row("F32", [3, 2], 0, 24)),
        rows(w=row("F32", [2, 3], 5, 29), b=row("U8", [5], 0, 5)),
    ],
)
def test_another_dtype_shape_or_place_than_in_the_manifest_is_refused(changed):
    with pytest.raises(
        errors.ManifestMismatch, match=r"tensor 'w' is \(.* in the header, \('F32', \(2, 3\), 4096, 4120\)"
    ):
        check(header(changed))
