"""What mpirun starts: four ranks save, load, save in the background, and one of them stops."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import model_checkpoint as mc


def save_in_background(root, ranks, state):
    """Where only one thread may talk, nothing is committed before it waits for the result."""
    from mpi4py import MPI

    job = mc.save_async(root, state, step=5, coordinator=ranks)
    if ranks.attend is not None:
        while job.state.value != "written":
            time.sleep(0.01)
        MPI.COMM_WORLD.Barrier()  # every rank is ready to vote
        assert [info.step for info in mc.list_checkpoints(root)] == [4, 3, 2, 1]
        MPI.COMM_WORLD.Barrier()
    assert job.result().step == 5
    assert mc.list_checkpoints(root)[0].step == 5
    next_one = mc.save_async(root, state, step=6, coordinator=ranks)
    mc.save(root, state, step=7, coordinator=ranks)  # waits for the one before, which nobody has asked for
    assert next_one.done()

    async def saved():
        return await mc.save_async(root, state, step=8, coordinator=ranks)

    assert asyncio.run(saved()).step == 8


def by_name(root, ranks):
    """Calls in the background, of which each waits for the one before."""
    from model_checkpoint.distributed import (
        DistributedCheckpoint,
        LoadOptions,
        SaveOptions,
        StorageFactory,
        StorageOptions,
    )

    class Model:
        value = np.array([ranks.rank])

        def get_state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, state):
            self.value = state["value"]

    storage = StorageFactory.create(StorageOptions(connection_settings={"basePath": str(root / "named")}))
    checkpoint, model, other = DistributedCheckpoint(ranks, storage), Model(), Model()
    other.value = np.array([-1])
    options = LoadOptions(checkpoint_prefix="a", load_optimizer=False, load_rng_state=False)
    saving = checkpoint.save_model_only_async(model, SaveOptions(checkpoint_prefix="a"))
    loading = checkpoint.load_async(other, None, options)

    async def loaded():
        return await loading

    assert not asyncio.run(loaded()).was_resharded
    assert (saving.result(60), other.value.tolist()) == ("a", [ranks.rank])
    checkpoint.delete_checkpoint("a")


def main(root, fault, level):
    import mpi4py

    mpi4py.rc.thread_level = level
    from mpi4py import MPI

    from model_checkpoint.distributed import MpiCoordinator, Shard

    assert (MPI.Query_thread() == MPI.THREAD_MULTIPLE) == (level == "multiple")

    whole = np.arange(64.0).reshape(8, 8)
    ranks = MpiCoordinator(patience=60.0)
    (root / f"pid-{ranks.rank}").write_text(str(os.getpid()))
    mine = Shard(whole[2 * ranks.rank : 2 * ranks.rank + 2].copy(), global_shape=(8, 8), offsets=(2 * ranks.rank, 0))
    for step in (1, 2, 3, 4):
        mc.save(
            root, {"x": mine, "own": ranks.rank, "step": step}, step=step, coordinator=MpiCoordinator(patience=60.0)
        )
    live = {"x": Shard(np.zeros((8, 2)), global_shape=(8, 8), offsets=(0, 2 * ranks.rank)), "own": -1, "step": 0}
    mc.load(root, into=live, coordinator=ranks)
    assert np.array_equal(live["x"].array, whole[:, 2 * ranks.rank : 2 * ranks.rank + 2])
    assert (live["own"], live["step"]) == (ranks.rank, 4)
    save_in_background(root, ranks, {"x": mine, "own": ranks.rank})
    by_name(root, ranks)
    (root / f"loaded-{ranks.rank}").touch()
    if ranks.rank == 3:
        os.kill(os.getpid(), {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}[fault])
    try:
        mc.save(root, {"x": mine}, step=9, coordinator=MpiCoordinator(patience=2.0))
    except mc.CheckpointException as error:
        written = root / f"telling-{ranks.rank}"
        written.write_text(f"{type(error).__name__} {error}")
        written.rename(root / f"told-{ranks.rank}")
        while not all((root / f"told-{rank}").exists() for rank in range(3)):
            time.sleep(0.05)  # mpirun ends the others with the first that leaves
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
