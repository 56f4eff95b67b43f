"""How many bytes a dtype and a shape take, and which cannot be."""

import re

import pytest

from model_checkpoint.format.stored import BITS, tensor_bytes


@pytest.mark.parametrize("dtype", [name for name in BITS if name != "BOOL"])
def test_a_dtype_takes_the_bits_its_name_says(dtype):
    bits = int(re.match(r"[A-Z]+(\d+)", dtype)[1])

    assert tensor_bytes(dtype, (8,)) == bits


def test_a_truth_value_takes_a_byte():
    assert tensor_bytes("BOOL", (3, 5)) == 15


def test_no_side_and_no_tensor_is_larger_than_any_medium():
    most = 1 << 62

    assert tensor_bytes("U8", (most,)) == most
    assert tensor_bytes("U8", (most + 1,)) is None
    assert tensor_bytes("U8", (0, most + 1)) is None
    assert tensor_bytes("F64", (1 << 59,)) == most
    assert tensor_bytes("F64", ((1 << 59) + 1,)) is None
    assert tensor_bytes("I16", (1 << 31, 1 << 31)) is None


def test_sides_are_not_negative_even_where_their_product_is_not():
    assert tensor_bytes("U8", (-2, -3)) is None
    assert tensor_bytes("U8", (0, -1)) is None
    assert tensor_bytes("U8", (0,)) == 0


def test_half_bytes_come_in_pairs():
    assert tensor_bytes("F4", (4,)) == 2
    assert tensor_bytes("F4", (3,)) is None
