"""Frameworks: which adapter takes a type. A framework nobody imported is not imported here either."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from model_checkpoint.tree.arrays import numpy_arrays
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.class_memo import ClassMemo
from model_checkpoint.tree.arrays.shards import marker
from model_checkpoint.tree.arrays.shards.marker import Shard
from model_checkpoint.tree.nodes.located_error import LocatedError

Finder = Callable[[Any], ArrayRef]


def loaded(name: str) -> bool:
    """Tell whether the caller's program has a framework imported completely."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def finder(cls: type) -> Finder | None:
    """Return the function that finds arrays of type ``cls``, or None if it is no array.

    Example:
        >>> finder(np.ndarray)(np.zeros(3)).shape, finder(int)
        ((3,), None)
    """
    return _known_finder(cls)


def _finder(cls: type) -> Finder | None:
    if cls is np.ndarray or cls is np.memmap:
        return numpy_arrays.find
    if cls is Shard:
        return _find_marked
    if loaded("torch"):
        from model_checkpoint.tree.arrays import torch_types

        if issubclass(cls, torch_types.TENSOR):
            return torch_types.finder(cls)
    if loaded("jax"):
        from model_checkpoint.tree.arrays import jax_arrays

        if jax_arrays.is_array(cls):
            from model_checkpoint.tree.arrays.shards import jax_shards

            return jax_shards.find
    if loaded("tensorflow"):
        from model_checkpoint.tree.arrays import tensorflow_arrays

        if tensorflow_arrays.is_array(cls):
            return tensorflow_arrays.find
    return None


_known_finder = ClassMemo(_finder)


def _find_marked(shard: Shard) -> ArrayRef:
    find = finder(type(shard.array))
    if find is None:
        raise LocatedError(f"a Shard holds a NumPy array or a torch tensor, got {type(shard.array).__qualname__}.")
    return marker.find(shard, find(shard.array))


def object_kind(cls: type) -> str | None:
    """Return what kind of stateful object ``cls`` is, or None if it has no state_dict to save and load."""
    return _known_kind(cls)


def _object_kind(cls: type) -> str | None:
    if loaded("keras") and hasattr(cls, "variables"):  # before torch: a Keras model may be a torch module as well
        from model_checkpoint.tree.arrays import keras_variables

        kind = keras_variables.object_kind(cls)
        if kind is not None:
            return kind
    reader = getattr(cls, "state_dict", None) or getattr(cls, "get_state_dict", None)
    if not callable(reader) or not callable(getattr(cls, "load_state_dict", None)):
        return None
    if loaded("torch"):
        from model_checkpoint.tree.arrays import torch_types

        return torch_types.object_kind(cls) or "object"
    return getattr(cls, "__checkpoint_kind__", None) or "object"


_known_kind = ClassMemo(_object_kind)


def state_of(value: Any) -> Any:
    """Return the state of a stateful object."""
    if (object_kind(type(value)) or "").startswith("keras."):
        from model_checkpoint.tree.arrays import keras_variables

        return keras_variables.state_of(value)
    return value.state_dict() if hasattr(value, "state_dict") else value.get_state_dict()
