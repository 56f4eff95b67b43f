"""Carry a state through its stored form in memory: what a save and a load do, without files."""

import dataclasses
import math
import random

import msgspec
import numpy as np
from tests.ground.stored.equal_values import tensor_bytes

from model_checkpoint.manifest import Entry
from model_checkpoint.tree import flatten, prepare

WINDOWS = random.Random(0)


def stored(state, windows=WINDOWS):
    """Flatten; return the tree and entries as JSON gives them back, the bytes read in random windows, and the Flat."""
    flat = flatten(state)
    entries = [
        Entry(leaf.name, leaf.kind, leaf.dtype, leaf.shape, leaf.stored, leaf.stored_shape, 0, 0, leaf.nbytes, "",
              leaf.attributes)
        for leaf in flat.leaves
    ]  # fmt: skip
    tree = msgspec.json.decode(msgspec.json.encode(flat.tree))
    entries = msgspec.json.decode(msgspec.json.encode(entries), type=list[Entry])
    return tree, entries, [read(leaf, windows) for leaf in flat.leaves], flat


def read(leaf, windows):
    data, at = bytearray(leaf.nbytes), 0
    while at < leaf.nbytes:
        stop = min(leaf.nbytes, at + windows.choice([1, 3, 8, 64, 1000, 1 << 20]))
        data[at:stop] = leaf.source.window(at, stop)
        at = stop
    return bytes(data)


def fill(restore, blobs, step=1000):
    """Deliver all needed bytes and finish."""
    for index in restore.needed:
        target = restore.target(index)
        for at in range(0, len(blobs[index]), step):
            target.put(at, memoryview(blobs[index])[at : at + step])
    return restore.finish()


def trip(state, **options):
    """Return ``state`` after a save and a load."""
    tree, entries, blobs, _ = stored(state)
    return fill(prepare(tree, entries, **options), blobs)


def loaded(state, into, **options):
    """Return ``into`` after a save of ``state`` and a load into it."""
    return trip(state, into=into, **options)


def same(a, b):
    """Assert that two values are exactly alike: types, order, bits."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, dict):
        assert len(a) == len(b)
        for (ka, va), (kb, vb) in zip(a.items(), b.items(), strict=True):
            same(ka, kb)
            same(va, vb)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, (np.ndarray, np.generic)):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    elif isinstance(a, float):
        assert (math.isnan(a) and math.isnan(b)) or (a, math.copysign(1, a)) == (b, math.copysign(1, b))
    elif isinstance(a, complex):
        same([a.real, a.imag], [b.real, b.imag])
    elif dataclasses.is_dataclass(a) and not isinstance(a, type):
        same(vars(a), vars(b))
    elif type(a).__module__ == "torch" and type(a).__name__ in ("Tensor", "Parameter"):
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
        assert tensor_bytes(a) == tensor_bytes(b)
    else:
        assert a == b
