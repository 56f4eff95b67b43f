"""What each of two JAX processes runs: they save and load together."""

import sys
from pathlib import Path

import jax

root, rank, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)

import numpy as np  # noqa: E402 - JAX must know of the other process before it is used

import model_checkpoint as mc  # noqa: E402
from model_checkpoint.distributed import JaxCoordinator  # noqa: E402

jax.devices()
for step in (1, 2, 3):
    state = {"w": np.arange(1 << 20), "own": rank, "key": jax.random.key(7)}
    mc.save(root, state, step=step, coordinator=JaxCoordinator(patience=60.0))
loaded = mc.load(root, coordinator=JaxCoordinator(patience=60.0))
assert np.array_equal(loaded["w"], np.arange(1 << 20))
assert loaded["own"] == rank
(root / f"loaded-{rank}").touch()
