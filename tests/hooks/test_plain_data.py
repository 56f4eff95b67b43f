"""Plain data: whatever is put in, strict JSON comes out, small, with the names of what was left out."""

import json
from datetime import date
from enum import Enum
from pathlib import Path
from uuid import UUID

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_checkpoint.hooks.values.plain_data import plain_data

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.uuids()
    | st.builds(object)
    | st.builds(np.float32, st.floats(width=32))
    | st.builds(np.zeros, st.integers(0, 5))
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner), max_leaves=8
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_whatever_is_put_in_strict_json_comes_out_and_nothing_is_lost_in_silence(data):
    kept, left_out = plain_data(data)

    assert json.loads(json.dumps(kept, allow_nan=False)) is not None
    assert set(kept) | set(left_out) == set(data)
    assert not set(kept) & set(left_out)


def test_what_is_text_or_a_number_by_nature_becomes_one():
    class Phase(Enum):
        WARM_UP = 1

    kept, left_out = plain_data(
        {
            "path": Path("/runs/a"),
            "id": UUID(int=1),
            "day": date(2026, 1, 2),
            "phase": Phase.WARM_UP,
            "array": np.array(3),
            "steps": (1, 2),
            "bad": float("-inf"),
            "bytes": b"x",
        }
    )

    assert kept == {
        "path": "/runs/a",
        "id": "00000000-0000-0000-0000-000000000001",
        "day": "2026-01-02",
        "phase": "WARM_UP",
        "array": 3,
        "steps": [1, 2],
        "bad": "-Infinity",
    }
    assert left_out == ("bytes",)


def test_what_is_too_large_too_deep_or_without_end_is_left_out():
    circle = []
    circle.append(circle)

    kept, left_out = plain_data({"long": "x" * 10_001, "many": list(range(1001)), "circle": circle})

    assert (kept, left_out) == ({}, ("long", "many", "circle"))
