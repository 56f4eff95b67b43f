"""Incremental saves of a state with frozen parts, and the files that hold them."""

import numpy as np
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc

MIB = 1 << 20


def inodes(root, step):
    return {p.stat().st_ino for p in folder(root, step).glob("*.safetensors")}


def inode_of(root, step, tensor):
    manifest = manifest_of(root, step)
    entry = next(e for e in manifest.entries if e.name == tensor)
    return (folder(root, step) / manifest.files[entry.file].name).stat().st_ino


def state(moving=0.0, frozen=0.0):
    """Enough frozen bytes for files of their own."""
    return {"base": np.full(2 * MIB, frozen), "other": np.full(MIB, frozen + 1), "head": np.full(1000, float(moving))}


def save(root, what, step, **options):
    return mc.save(root, what, step=step, incremental=True, **options)
