"""Sums of a stripe: the same bytes whoever computes them, and lost columns follow from them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.format import galois, galois_words
from model_checkpoint.format.galois import TooManyLost, add_multiple, add_up, lost_columns
from model_checkpoint.format.galois_field import inverse, power_of_two, product


def noise(seed, size):
    return memoryview(np.random.default_rng(seed).bytes(size))


def empty(size):
    return memoryview(bytearray(size))


def sums(how, columns, size):
    p, q = empty(size), empty(size)
    how(columns, p, q)
    return bytes(p), bytes(q)


@pytest.fixture(params=["wide", "words"])
def unit(request):
    """The compiled sums, with and without the processor's vectors."""
    compiled = pytest.importorskip("model_checkpoint.format._galois")
    was = compiled.use_wide_unit(request.param == "wide")
    yield compiled
    compiled.use_wide_unit(was)


@given(count=st.integers(0, 20), size=st.integers(0, 700), gaps=st.sets(st.integers(0, 19)), factor=st.integers(0, 255))
@settings(max_examples=80, deadline=None)
def test_compiled_sums_have_the_bytes_of_numpy(count, size, gaps, factor):
    compiled = pytest.importorskip("model_checkpoint.format._galois")
    columns = [None if i in gaps else noise(i, size) for i in range(count)]
    expected = sums(galois_words.add_up, columns, size)
    more = empty(size)
    galois_words.add_multiple(noise(99, size), factor, more)

    for wide in (True, False):
        was = compiled.use_wide_unit(wide)
        try:
            assert sums(compiled.add_up, columns, size) == expected
            only, product_of = empty(size), empty(size)
            compiled.add_up(columns, only, None)
            compiled.add_multiple(noise(99, size), factor, product_of)
        finally:
            compiled.use_wide_unit(was)
        assert bytes(only) == expected[0]
        assert product_of == more


def test_q_is_the_sum_of_powers_of_two_times_the_columns():
    columns = [noise(i, 64) for i in range(255)]
    _, q = sums(add_up, columns, 64)

    by_hand = [0] * 64
    for i, column in enumerate(columns):
        by_hand = [sum_ ^ product(power_of_two(i), byte) for sum_, byte in zip(by_hand, column, strict=True)]

    assert q == bytes(by_hand)


def test_the_field_is_one():
    """Every element but zero has an inverse, and the powers of two are all of them."""
    assert all(product(a, inverse(a)) == 1 for a in range(1, 256))
    assert {power_of_two(i) for i in range(255)} == set(range(1, 256))
    assert all(
        product(a, b ^ c) == product(a, b) ^ product(a, c) for a, b, c in itertools.product(range(0, 256, 17), repeat=3)
    )


@pytest.mark.parametrize("count", [1, 2, 8, 16])
def test_any_one_or_two_lost_columns_follow_from_what_is_left(unit, count):
    columns = [noise(i, 333) for i in range(count)]
    p, q = (memoryview(one) for one in sums(add_up, columns, 333))

    for lost in itertools.chain(*(itertools.combinations(range(count), n) for n in (0, 1, 2))):
        left = [None if i in lost else column for i, column in enumerate(columns)]
        ways = [(p, q)] if len(lost) == 2 else [(p, q), (p, None), (None, q)]
        for first, second in ways:
            assert lost_columns(left, first, second) == {i: columns[i] for i in lost}


def test_more_lost_columns_than_sums_are_refused():
    columns = [noise(i, 8) for i in range(4)]
    p, q = (memoryview(one) for one in sums(add_up, columns, 8))

    with pytest.raises(TooManyLost, match="3 columns of a stripe are lost, 2 sums are left"):
        lost_columns([None, None, None, columns[3]], p, q)
    with pytest.raises(TooManyLost, match="1 columns of a stripe are lost, 0 sums are left"):
        lost_columns([None, *columns[1:]], None, None)


@pytest.mark.parametrize("how", [galois_words, galois])
def test_columns_of_other_lengths_and_too_many_are_refused(how):
    with pytest.raises(ValueError, match="of one length"):
        how.add_up([noise(0, 5)], empty(4), None)
    with pytest.raises(ValueError, match="of one length"):
        how.add_up([noise(0, 4)], empty(4), empty(5))
    with pytest.raises(ValueError, match="at most 255 columns, got 256"):
        how.add_up([None] * 256, empty(4), None)
    with pytest.raises(ValueError, match="by a byte"):
        how.add_multiple(noise(0, 4), 256, empty(4))
    how.add_multiple(noise(0, 4), 255, empty(4))
    with pytest.raises(ValueError, match="of the length of its sum"):
        how.add_multiple(noise(0, 4), 1, empty(5))


def test_a_column_that_is_no_buffer_is_refused(unit):
    with pytest.raises(TypeError, match="bytes-like"):
        add_up([noise(0, 4), 7], empty(4), None)
    with pytest.raises((TypeError, BufferError), match=r"read-write|writable"):
        add_multiple(noise(0, 4), 1, b"1234")
