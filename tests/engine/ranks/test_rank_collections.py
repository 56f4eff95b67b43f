"""Many small arrays are thousands of objects on every rank, which the cycle collector does not look through again."""

import numpy as np
from tests.performance.collector import collections

import model_checkpoint as mc
from model_checkpoint.distributed import LocalCoordinator, Shard

FEW = 10  # dozens of runs, if it is not paused


def test_the_collector_rests_while_the_states_of_ranks_are_pooled(tmp_path):
    state = {f"w{i}": Shard(np.zeros(2), global_shape=(2,), offsets=(0,)) for i in range(5000)}
    mc.save(f"memory://{tmp_path.name}", state, step=1, coordinator=LocalCoordinator())  # what is imported is there

    with collections() as seen:
        mc.save(f"memory://{tmp_path.name}-again", state, step=1, coordinator=LocalCoordinator())

    assert len(seen) < FEW
