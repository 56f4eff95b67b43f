"""A message tells some names and how many more there are, however many a state or a root has."""

import dataclasses

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import errors

MANY = 300


def told(caught):
    """The message, which a person can read to its end."""
    message = str(caught.value)
    assert len(message) < 2500
    return message


def test_metrics_that_are_known_are_told_in_part(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1, metrics={f"m{i:03}": i for i in range(MANY)})

    with pytest.raises(mc.WrongReference, match="no checkpoint has a metric 'loss'; known: m000") as caught:
        mc.load(tmp_path, best="loss")
    assert f"m007 and {MANY - 8} more" in told(caught)


def test_parts_that_there_are_and_parts_that_name_nothing_are_told_in_part(tmp_path):
    mc.save(tmp_path, {f"part{i:03}": np.zeros(1) for i in range(MANY)}, step=1)

    with pytest.raises(errors.StructureMismatch, match=f"parts x0, .* and {MANY - 8} more name nothing") as caught:
        mc.load(tmp_path, parts=[f"x{i}" for i in range(MANY)])
    assert f"part019 and {MANY - 20} more" in told(caught)


def test_fields_of_a_class_that_changed_are_told_in_part(tmp_path):
    saved, live = (dataclasses.make_dataclass("Big", [f"{kind}{i}" for i in range(MANY)]) for kind in "ab")
    mc.save(tmp_path, {"big": saved(*range(MANY))}, step=1)

    with pytest.raises(errors.ClassUnavailable, match="its fields changed") as caught:
        mc.load(tmp_path, types=[live])
    assert f"a7 and {MANY - 8} more, the class has b0" in told(caught)


def test_checkpoints_that_are_all_damaged_are_told_in_part(tmp_path):
    for step in range(1, 31):
        mc.save(tmp_path, {"a": 1}, step=step)
        (tmp_path / f"checkpoints/step-{step:08}/manifest.json").write_bytes(b"{}")

    with pytest.raises(errors.NoHealthyCheckpoint, match="none of 30 checkpoints is healthy") as caught:
        mc.load(tmp_path, fallback=True)
    assert "step-00000030" in str(caught.value)
    assert "\n  and 10 more\n" in str(caught.value)
    assert len(caught.value.failures) == 30
