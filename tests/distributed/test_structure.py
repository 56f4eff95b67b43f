"""What was found out for a state is kept for the next one like it, and never for one that differs."""

import gc
import weakref

import numpy as np
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint import tree
from model_checkpoint.engine.ranks.structure import structure_of


def structure(state):
    return structure_of(tree.flatten(state), 0, 2)


def test_a_state_of_other_bytes_has_the_structure_of_the_one_before():
    first = structure({"w": np.zeros(3), "step": 1})
    first.found["plan"] = "of the first"

    again = structure({"w": np.ones(3), "step": 2})

    assert again.found is first.found
    assert again.parts["w"].digest == first.parts["w"].digest
    assert again.parts["step"].digest != first.parts["step"].digest


def test_a_state_of_another_shape_name_or_dtype_is_looked_at_anew():
    first = structure({"w": np.zeros(3), "v": np.zeros(3)})

    for other in ({"w": np.zeros(4), "v": np.zeros(3)}, {"w": np.zeros(3), "u": np.zeros(3)},
                  {"w": np.zeros(3, np.float32), "v": np.zeros(3)}):  # fmt: skip
        assert structure(other).found is not first.found
    assert structure({"w": np.zeros(3), "v": np.zeros(3)}).parts["w"].digest == first.parts["w"].digest


def test_true_is_not_one():
    """Both are equal to Python, and two ranks of which one has each differ."""
    digests = [structure({"w": np.zeros(3), "flag": flag}).parts["flag"].digest for flag in (True, 1, 1.0)]

    assert len(set(digests)) == 3


def test_saves_in_a_row_that_change_now_and_then_are_all_right(tmp_path):
    states = [
        lambda rank: {"w": np.arange(9) + 1, "own": rank, "rng": np.full(4, rank)},
        lambda rank: {"w": np.arange(9) + 2, "own": rank, "rng": np.full(4, rank + 5)},
        lambda rank: {"w": np.arange(8) + 3, "own": 0, "rng": np.full(4, 7)},
        lambda rank: {"w": np.arange(8) + 4 + rank, "own": rank, "rng": np.full(4, rank)},
    ]
    for step, state in enumerate(states):
        all_well(on_ranks(3, lambda c, s=state, n=step: mc.save(tmp_path, s(c.rank), step=n, coordinator=c)))

    for step, state in enumerate(states):
        loaded = all_well(on_ranks(3, lambda c, n=step: mc.load(tmp_path, step=n, coordinator=c)))
        for rank, one in enumerate(loaded):
            want = state(rank)
            assert one["own"] == want["own"]
            assert all(np.array_equal(one[name], want[name]) for name in ("w", "rng"))
    assert all(health.ok for health in mc.verify(tmp_path))


def test_a_state_laid_out_otherwise_is_looked_at_anew():
    def part(rows, first):
        return {"w": mc.distributed.Shard(np.zeros((rows, 2)), global_shape=(6, 2), offsets=(first, 0))}

    first = structure(part(3, 0))

    assert structure(part(3, 0)).found is first.found
    assert all(structure(other).found is not first.found for other in (part(3, 3), part(2, 0), {"w": np.zeros((6, 2))}))


def test_what_is_kept_for_the_next_save_holds_no_array(tmp_path):
    arrays = [np.full((4, 3), rank) for rank in range(2)]
    alive = [weakref.ref(array) for array in arrays]

    def save(ranks, step):
        part = mc.distributed.Shard(arrays[ranks.rank], global_shape=(8, 3), offsets=(4 * ranks.rank, 0))
        mc.save(tmp_path, {"w": part}, step=step, coordinator=ranks)

    for step in range(2):
        all_well(on_ranks(2, lambda ranks, step=step: save(ranks, step)))
    arrays.clear()
    gc.collect()

    assert [one() for one in alive] == [None, None]
