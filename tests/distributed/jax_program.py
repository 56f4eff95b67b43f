"""What each of two JAX processes runs: they save and load together."""

import sys
from pathlib import Path


def main(root, rank, port):
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    import numpy as np

    import model_checkpoint as mc
    from model_checkpoint.distributed import JaxCoordinator

    jax.devices()
    for step in (1, 2, 3):
        state = {"w": np.arange(1 << 20), "own": rank, "key": jax.random.key(7)}
        mc.save(root, state, step=step, coordinator=JaxCoordinator(patience=60.0))
    loaded = mc.load(root, coordinator=JaxCoordinator(patience=60.0))
    assert np.array_equal(loaded["w"], np.arange(1 << 20))
    assert loaded["own"] == rank
    (root / f"loaded-{rank}").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
