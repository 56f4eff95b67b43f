"""Rng: the random generators of a program as an ordinary part of its state."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from model_checkpoint.errors import StructureMismatch
from model_checkpoint.tree.arrays.frameworks import loaded
from model_checkpoint.tree.values.numpy_generators import numpy_state
from model_checkpoint.tree.values.standard_codecs import random_state, set_random_state


class RngState:
    """A snapshot of the global generators of Python, NumPy and torch.

    Loading into one, or calling :meth:`restore`, sets the generators of the running program.

    Example:
        >>> snapshot = rng_state()
        >>> first = random.random()
        >>> snapshot.restore()
        >>> random.random() == first
        True
    """

    __checkpoint_kind__ = "rng"

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)

    def __repr__(self) -> str:
        return f"RngState({', '.join(self._state)})"

    def state_dict(self) -> dict[str, Any]:
        """Return the snapshot as plain data and arrays."""
        return dict(self._state)

    def plain_state_dict(self) -> dict[str, Any]:
        """Return the snapshot without NumPy arrays: their numbers in lists, which readers of other files believe.

        Example:
            >>> snapshot = RngState({"python": (3, np.array([7, 9], np.uint32), None)})
            >>> snapshot.plain_state_dict()
            {'python': (3, [7, 9], None)}
        """
        plain: dict[str, Any] = _without_arrays(self._state)
        return plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a snapshot and set the generators to it."""
        taken = RngState(state)
        taken.restore()
        self._state = taken._state

    def restore(self) -> None:
        """Set the generators of this program to the snapshot."""
        missing = [part for part in ("python", "numpy") if part not in self._state]
        if missing:
            raise StructureMismatch(f"rng: the snapshot lacks {missing}. Was it made by rng_state()?")
        if "torch" in self._state and not loaded("torch"):
            raise StructureMismatch(
                "rng: the snapshot has the generators of torch, which is not imported. Import torch first."
            )
        set_random_state(random, self._state["python"])
        np.random.set_state(numpy_state(self._state["numpy"]))
        if "torch" in self._state:
            from model_checkpoint.tree.generators import torch_rng

            torch_rng.restore_generators(self._state["torch"])


def _without_arrays(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _without_arrays(one) for key, one in value.items()}
    return tuple(map(_without_arrays, value)) if isinstance(value, tuple) else value


def rng_state() -> RngState:
    """Return a snapshot of the global generators: Python, NumPy, and torch if the program uses it.

    JAX has none: its keys are values, and come back as keys from wherever they are in the state.

    Example:
        >>> sorted(rng_state().state_dict())[:2]
        ['numpy', 'python']
    """
    state: dict[str, Any] = {
        "python": random_state(random),
        "numpy": np.random.get_state(legacy=False),
    }
    if loaded("torch"):
        from model_checkpoint.tree.generators import torch_rng

        state["torch"] = torch_rng.capture_generators()
    return RngState(state)
