"""What users hand in becomes floats at the call, or is refused there by name."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.tracking.errors import MetricRefused
from model_checkpoint.tracking.metric_values import LONGEST_NAME, MetricReader, check_name, float_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (2**70, float(2**70)),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3.0),
        (np.float64(0.1), 0.1),
        (np.array([[4]]), 4.0),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 4), 0.25),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.tensor([7]), 7.0),
        (torch.tensor(1.5, requires_grad=True), 1.5),
    ],
    ids=repr,
)
def test_every_kind_of_number_is_taken_as_a_plain_float(value, expected):
    kept = MetricReader().read({"x": value})

    assert kept == {"x": expected}
    assert type(kept["x"]) is float


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_kept(value):
    assert repr(MetricReader().read({"x": value})["x"]) == repr(value)


@pytest.mark.parametrize(
    "value",
    ["0.5", None, b"1", [1.0], {"a": 1}, 1j, np.array([1.0, 2.0]), torch.zeros(2), np.complex64(1), 10**400, object()],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_refused_with_its_name_and_nothing_is_taken(value):
    reader = MetricReader()

    with pytest.raises(MetricRefused, match=r"^metric 'val/acc': .*Nothing was logged"):
        reader.read({"loss": 1.0, "val/acc": value})
    with pytest.raises(TypeError, match="val/acc"):  # what callers of float() expect
        reader.read({"val/acc": value})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (3, "is no string but int"),
        ("", "is empty"),
        ("a\0b", "cannot be shown"),
        ("a\nb", "cannot be shown"),
        ("\ud800", "cannot be shown"),
        ("x" * (LONGEST_NAME + 1), "has 251 characters"),
    ],
    ids=["int", "empty", "nul", "newline", "surrogate", "long"],
)
def test_a_name_no_database_could_keep_is_refused(name, wrong):
    with pytest.raises(MetricRefused, match=rf"{wrong}.*give it another name"):
        MetricReader().read({name: 1.0})


def test_a_refused_name_is_refused_again():
    reader = MetricReader()

    for _ in range(2):
        with pytest.raises(MetricRefused, match="is empty"):
            reader.read({"good": 1.0, "": 1.0})


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_name_that_is_taken_can_be_stored_as_text(name):
    try:
        check_name(name)
    except MetricRefused:
        return

    assert name.encode().decode() == name
    assert "\0" not in name


def test_metrics_that_are_no_mapping_are_refused():
    with pytest.raises(MetricRefused, match="expected a mapping of names to numbers, got float"):
        MetricReader().read(0.5)


def test_what_was_handed_in_may_change_afterwards():
    reader, mine, running = MetricReader(), {"a": 1.0}, torch.tensor(2.0)
    reader.read(mine)  # its names are known from now on

    plain, tensor = reader.read(mine), reader.read({"a": running})
    mine["a"] = 9.0
    running += 5

    assert plain == {"a": 1.0}
    assert tensor == {"a": 2.0}


def test_reading_a_tensor_needs_no_framework():
    class Scalar:
        def item(self):
            return 3

    assert float_of("x", Scalar()) == 3.0
