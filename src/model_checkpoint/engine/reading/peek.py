"""Peek: one leaf of a checkpoint, looked at without any of the others."""

from __future__ import annotations

from typing import Any

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.errors import WrongReference
from model_checkpoint.name_lists import did_you_mean
from model_checkpoint.plan import Index
from model_checkpoint.tree.nodes.walk import arrays
from model_checkpoint.tree.values.plain import plain_values, shorten


def peek(ref: Reference, leaf: str, index: Index = ...) -> Any:
    """A tensor as a NumPy array, or ``index`` of it, verified; of a plain value its text.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-peek", {"w": np.arange(3), "lr": 0.5}, step=1)
        >>> peek("memory://doc-peek", "w", 2), peek("memory://doc-peek", "lr")
        (array(2), '0.5')
    """
    store, found = choose_one(ref)
    manifest, where = load_manifest(store, found.name), path_of(store, found.name)
    tensors, values = [name for name, _ in arrays(manifest.tree)], plain_values(manifest.tree)
    if leaf in values and index is ...:
        return shorten(values[leaf])
    if leaf in tensors:
        from model_checkpoint.engine.reading.slices import load_slice  # brings NumPy

        return load_slice(store, leaf, index, name=found.name, framework="numpy")
    hint = did_you_mean(leaf, [*values, *tensors], "`mckpt show --tensors` lists its tensors.")
    raise WrongReference(f"{where}: no {'tensor' if leaf in values else 'leaf'} {leaf!r} in it. {hint}", where)
