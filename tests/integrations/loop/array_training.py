"""A small training of arrays, without torch: NumPy or JAX under ``mc.Run``, over data that nobody can number.

As a program, ``python -m tests.integrations.loop.array_training FOLDER KIND...``, it trains each kind unbroken, then
killed in random batches, and prints for each what both ended with and the steps that were resumed from.
"""

import hashlib
import json
import random
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tests.integrations.killing import whole_and_killed
from tests.integrations.trainer_data import take_time, tell_start

import model_checkpoint as mc

EPOCHS, BATCHES, WIDTH = 3, 13, 6


class Drawn:
    """Batches in a random order, augmented at random."""

    def __iter__(self):
        samples = np.random.default_rng(1).random((BATCHES, 8, WIDTH), np.float32)
        for number in np.random.permutation(BATCHES):
            yield samples[number] + np.float32(0.1 * random.random())


def held_by(kind):
    if kind == "numpy":
        return {"weights": np.zeros(WIDTH, np.float32), "speed": np.zeros(WIDTH, np.float32)}
    return {"weights": jnp.zeros(WIDTH), "speed": jnp.zeros(WIDTH), "key": jax.random.key(5)}


def noise(held, kind):
    if kind == "numpy":
        return np.random.standard_normal(WIDTH).astype(np.float32)
    held["key"], own = jax.random.split(held["key"])
    return jax.random.normal(own, (WIDTH,))


def train(root, out, *, kind, pause=0.0):
    """Train to the end, and write down the number of steps, whether it was exact, and a digest of everything."""
    random.seed(0)
    np.random.seed(0)
    held = held_by(kind)
    run = mc.Run(root, data=Drawn(), epochs=EPOCHS, every=3, keep=[mc.last(2)], progress=False, held=held)
    tell_start(out, run.resumed_from)
    for x in run:
        off = x @ (held["weights"] + 0.1 * noise(held, kind)) - x.sum(1)
        held["speed"] = 0.9 * held["speed"] + off @ x / len(x)
        held["weights"] = held["weights"] - 0.05 * held["speed"]
        run.log(loss=(off**2).mean())
        take_time(out, pause)
    found = hashlib.sha256()
    for one in (held["weights"], held["speed"]):
        found.update(np.asarray(one).tobytes())
    found.update(repr((random.getstate(), np.random.get_state()[1].tolist(), run.metrics)).encode())
    Path(out).write_text(f"{run.step} {run.exact} {found.hexdigest()}")


def main(folder, kinds):
    """Print a line of JSON for each kind."""
    for kind in kinds:  # only children compute: JAX does not outlive a fork
        own = Path(folder, kind)
        own.mkdir()
        print(json.dumps([kind, *whole_and_killed(train, own, kills=2, seed=kind, kind=kind, pause=0.01)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
