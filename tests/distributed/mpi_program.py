"""What mpirun starts: four ranks save, load, and one of them stops."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import model_checkpoint as mc


def main(root, fault):
    from model_checkpoint.distributed import MpiCoordinator, Shard

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
    (root / f"loaded-{ranks.rank}").touch()
    if fault == "stop":
        if ranks.rank == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            mc.save(root, {"x": mine}, step=5, coordinator=MpiCoordinator(patience=2.0))
        except mc.CheckpointException as error:
            written = root / f"telling-{ranks.rank}"
            written.write_text(f"{type(error).__name__} {error}")
            written.rename(root / f"told-{ranks.rank}")
            while not all((root / f"told-{rank}").exists() for rank in range(3)):
                time.sleep(0.05)  # mpirun ends the others with the first that leaves
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
