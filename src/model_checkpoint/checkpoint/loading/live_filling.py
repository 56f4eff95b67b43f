"""Live filling: a state that is in memory flows into live objects, by the rules of a load from a checkpoint.

Structure, shapes and dtypes are compared before the first live byte changes; modules, optimizers and whatever else has
a ``load_state_dict`` get their state as from the engine.
"""

from __future__ import annotations

from typing import Any

from model_checkpoint import tree
from model_checkpoint.state import Leaf, Target

_WINDOW = 4 << 20


def fill_live(state: Any, into: Any) -> Any:
    """Fill ``into`` with ``state``; raise ``StructureMismatch`` if it does not fit, and then change nothing.

    Example:
        >>> import numpy as np
        >>> live = {"w": np.zeros(2)}
        >>> _ = fill_live({"w": np.ones(2)}, live)
        >>> live["w"]
        array([1., 1.])
    """
    flat = tree.flatten(state)
    entries = [leaf.entry(start=0, stop=leaf.nbytes) for leaf in flat.leaves]
    with tree.Preparation() as preparing:
        preparing.run(flat.tree, into)
        restore = tree.prepare(flat.tree, entries, into=into)
        for index in restore.needed:
            _fill(restore.target(index), flat.leaves[index])
        return restore.finish()


def _fill(target: Target, leaf: Leaf) -> None:
    for start in range(0, leaf.nbytes, _WINDOW):
        window = leaf.source.window(start, min(start + _WINDOW, leaf.nbytes))
        if target.buffer is None:
            target.put(start, window)
        else:
            target.buffer[start : start + len(window)] = window
