"""Small states of many chunks, ways to damage a checkpoint, and the bytes it must have again."""

import numpy as np
from tests.ground.stored.stored_files import flip as flip_in_place
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint.options import Graces

CHUNK = 1 << 14  # as the fixture small_chunks cuts them
NOW_BUT_KEEP_TRASH = Graces(local=0.0, foreign=0.0)


def state(seed=0, parts=8, size=3 * CHUNK + 100):
    """As many tensors as there will be files, of a few chunks each; noise, so that no two chunks are equal."""
    rng = np.random.default_rng(seed)
    return {f"w{i}": rng.integers(0, 256, size + 1000 * i, dtype=np.uint8) for i in range(parts)}


def content(root, step=1):
    """Every byte of a checkpoint."""
    return {path.name: path.read_bytes() for path in sorted(folder(root, step).iterdir())}


def data_files(root, step=1):
    return [record.name for record in manifest_of(root, step).files]


def save(root, what, step=1, **options):
    """Save, and wait for what follows."""
    info = mc.save(root, what, step=step, **options)
    mc.finish_saves()
    return info


def flip(path, at):
    """Change one bit of a file, in a copy of its own."""
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    flip_in_place(path, at)
