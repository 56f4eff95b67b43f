"""Live objects that change their form before what was saved can fit them."""

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import StructureMismatch


class Wide:
    """Holds an array whose length follows from what it is given."""

    def __init__(self, size):
        self.values, self.prepared = np.zeros(size), []

    def state_dict(self):
        return {"size": len(self.values), "values": self.values}

    def load_state_dict(self, state):
        assert len(self.values) == state["size"]
        self.values[...] = state["values"]

    def prepare_to_load(self, saved):
        before = self.values
        self.prepared.append((saved("size"), saved("nothing")))
        self.values = np.zeros(saved("size"))
        return lambda: setattr(self, "values", before)


@pytest.mark.parametrize("name", ["wide", "of.two"])
def test_an_object_is_told_its_saved_plain_values_before_it_is_compared(tmp_path, name):
    mc.save(tmp_path, {name: Wide(5), "epoch": 3}, step=1)
    live = Wide(2)

    mc.load(tmp_path, into={name: live, "epoch": 0})

    assert live.prepared == [(5, None)]
    assert len(live.values) == 5


def test_an_object_that_is_one_part_is_prepared_too(tmp_path):
    mc.save(tmp_path, {"wide": Wide(5), "epoch": 3}, step=1)
    live = Wide(2)

    mc.load(tmp_path, parts="wide", into=live)

    assert live.prepared == [(5, None)]


def test_an_object_nothing_was_saved_for_is_left_alone(tmp_path):
    mc.save(tmp_path, {"epoch": 3}, step=1)
    live = Wide(2)

    with pytest.warns(mc.CheckpointWarning, match="wide"):
        mc.load(tmp_path, into={"wide": live, "epoch": 0}, strict=False)

    assert live.prepared == []


def test_a_load_that_is_refused_undoes_every_preparation(tmp_path):
    mc.save(tmp_path, {"a": Wide(5), "b": Wide(6), "w": np.zeros(3)}, step=1)
    a, b = Wide(2), Wide(2)
    before = a.values, b.values

    with pytest.raises(StructureMismatch, match=r"w: saved"):
        mc.load(tmp_path, into={"a": a, "b": b, "w": np.zeros(4)})

    assert a.values is before[0]
    assert b.values is before[1]
    assert (a.prepared, b.prepared) == ([(5, None)], [(6, None)])


def test_an_array_cannot_be_asked_for_before_it_is_verified(tmp_path):
    class Greedy(Wide):
        def prepare_to_load(self, saved):
            saved("values")

    mc.save(tmp_path, {"wide": Wide(5)}, step=1)

    with pytest.raises(mc.CheckpointException, match=r"wide\.values"):
        mc.load(tmp_path, into={"wide": Greedy(5)})
