"""Plain values and dtypes: found again by what is written of them, and forged ones refused by name."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from tests.tree.carrying import same, trip

from model_checkpoint.errors import CheckpointException, ManifestInvalid, UnsupportedType
from model_checkpoint.tree import flatten
from model_checkpoint.tree.values.numpy_dtypes import PLATFORM, from_name, of_numpy
from model_checkpoint.tree.values.plain import shorten
from model_checkpoint.tree.values.values import unpack_value


@pytest.mark.parametrize(
    "node",
    [
        ["range", 1, 2, ["f", "0x1p0"]], ["range", 1, 2, 0], ["decimal", "many"], ["uuid", "12"], ["date", 5],
        ["u", "*"],
        ["timedelta", 1], ["timezone", 5, None], ["time", "25:00", None, 0], ["np", "float32", "AAAA"], ["c", "1"],
        ["nosuch", 1], ["zone", "No/Where"], ["i", "zz"], ["B", "a"], ["npdtype", 8],
        ["datetime", "2026-01-01", None, 2],
        ["range", True, "a", 1],
    ],
    ids=str,
)  # fmt: skip
def test_values_that_no_save_writes_are_refused(node):
    with pytest.raises(ManifestInvalid, match=r"is no (value|number)"):
        unpack_value(node)


def test_values_of_no_length_and_named_zones_come_back():
    named = timezone(timedelta(hours=1), "there")
    state = [np.str_(""), np.bytes_(b""), np.void(b""), np.zeros((), "V0")[()], datetime(2026, 1, 1, tzinfo=named)]

    back = trip(state)

    same(back[:4], state[:4])
    assert back[4].tzname() == "there"
    assert repr(back[4].tzinfo) == repr(named)
    assert trip([UTC])[0] is UTC


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("a" * 78, repr("a" * 78)), ("a" * 79, "'" + "a" * 76 + "..."), (["l", [1, ["t", [None]]]], "[1, [None]]"),
        (["torch.dtype", "float32"], "torch.dtype float32"), (["k", []], "{}"), (["zzz"], "?"),
        (["i", hex(10**5000)], "?"),
    ],
    ids=lambda one: str(one)[:40],
)  # fmt: skip
def test_a_plain_value_is_shown_in_at_most_eighty_characters(node, text):
    assert shorten(node) == text
    assert len(text) <= 80


# --- dtypes ----------------------------------------------------------------------------------------------------------

DTYPES = [
    "bool", "int8", ">i2", "uint32", ">u8", "f2", ">f4", "f8", "c8", ">c16", "M8[ns]", ">m8[2h/3]", "M8", "U3", ">U3",
    "S5", "V7",
    "U0", "S0", [("a", "i4"), ("b", ">f8", (2,))], [("a", [("b", "S3")]), (("title", "c"), "u1")], "longdouble",
    "clongdouble",
    {"names": ["a"], "formats": ["i4"], "itemsize": 12},
]  # fmt: skip


@pytest.mark.parametrize("given", DTYPES, ids=str)
def test_a_dtype_is_named_and_found_again(given):
    dtype = np.dtype(given)
    form = of_numpy(dtype)

    assert from_name(form.name) == dtype
    assert form.itemsize == dtype.itemsize
    assert form.swapped == (dtype.kind in "iufcmM" and not dtype.isnative)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("object", "NumPy cannot hold it"), (">bool_", "NumPy cannot hold it"), (">int4", "NumPy cannot hold it"),
        ("", "NumPy cannot"),
        ("datetime64[fortnight]", "NumPy cannot hold it"), ("datetime64[99999999999s]", "NumPy cannot"),
        ("|V9999999999", "NumPy cannot hold"),
        ("|V999999999999", "NumPy cannot"), ("longdouble", "saved on an unknown platform, this is"),
        ("float32@x", "saved on x, this is"),
        ("longdouble@vax", "saved on vax, this is"), (f"float@{PLATFORM}", "long doubles were saved on"),
        (">longdouble@x", "saved on x"),
        ("record:[[", "no record dtype"), ('record:[["a","O"]]', "holds Python objects"),
        ('record:{"a":1}', "no record dtype"),
        ("record:" + "[[\"a\"," * 40 + '"i4"' + "]]" * 40, "no record dtype"), ("record:5", "no record dtype"),
        ('record:"|O"', "holds Python"),
    ],
    ids=lambda one: str(one)[:30],
)  # fmt: skip
def test_dtypes_that_no_save_writes_are_refused(name, told):
    with pytest.raises(CheckpointException, match=told):
        from_name(name)


def test_records_may_hold_records_to_a_depth():
    dtype = np.dtype("i4")
    for _ in range(31):
        dtype = np.dtype([("a", dtype)])

    assert from_name(of_numpy(dtype).name) == dtype


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ([("a", "O")], "it holds Python objects"), (">g", "long doubles of foreign byte order"),
        ({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}, "no portable description"),
    ],
    ids=str,
)  # fmt: skip
def test_arrays_whose_layout_cannot_be_said_are_refused(dtype, told):
    with pytest.raises(UnsupportedType, match=rf"^w: cannot save an array of dtype .*{told}"):
        flatten({"w": np.zeros(1, dtype)})
