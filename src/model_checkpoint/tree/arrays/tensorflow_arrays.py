"""TensorFlow tensors and variables: found in a state, read in windows, made from stored bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.tree.arrays.array_ref import ArrayRef
from model_checkpoint.tree.arrays.numpy_arrays import window_of
from model_checkpoint.tree.nodes.located_error import LocatedError, no_codec
from model_checkpoint.tree.values.numpy_dtypes import from_name, of_numpy


class TensorFlowRef(ArrayRef):
    """A TensorFlow tensor or variable in a state."""

    __slots__ = ()
    kind = "tensorflow"

    def window(self, start: int, stop: int) -> memoryview:
        """Return the stored bytes ``[start, stop)``; on the host this copies nothing."""
        value = self.value.value() if isinstance(self.value, tf.Variable) else self.value
        return window_of(np.asarray(value), self.dtype.itemsize, start, stop)


def is_array(cls: type) -> bool:
    """Tell whether values of ``cls`` are TensorFlow tensors or variables."""
    return issubclass(cls, (tf.Tensor, tf.Variable))


def find(tensor: Any) -> TensorFlowRef:
    """Return what ``tensor`` is."""
    if not isinstance(tensor, tf.Variable) and not hasattr(tensor, "numpy"):
        raise LocatedError("a symbolic TensorFlow tensor has no values. Save outside of tf.function.")
    if tensor.dtype.is_quantized or tensor.dtype in (tf.string, tf.resource, tf.variant):
        raise no_codec(type(tensor), f"cannot save a TensorFlow tensor of {tensor.dtype.name}")
    dtype = of_numpy(np.dtype(tensor.dtype.as_numpy_dtype))
    shape = tuple(int(side) for side in tensor.shape)
    found = TensorFlowRef(tensor, dtype, shape, dtype.nbytes(shape))
    found.space, found.address, found.span = "tensorflow", id(tensor), 1  # one object twice is stored once
    if isinstance(tensor, tf.Variable):
        found.attributes = ["variable", bool(tensor.trainable), tensor.name.split(":")[0]]
    return found


def refuse(name: str) -> None:
    """Raise if TensorFlow has no dtype ``name``."""
    try:
        same = np.dtype(tf.as_dtype(from_name(name)).as_numpy_dtype) == from_name(name)
    except TypeError:
        same = False
    if not same:
        raise UnsupportedType(f'dtype {name}: TensorFlow cannot hold it. Load with framework="numpy".')


def make(array: np.ndarray[Any, np.dtype[Any]], attributes: Node, device: Any) -> Any:
    """Return a tensor, or the variable that was saved, with the values of ``array``."""
    match attributes:
        case ["variable", bool(trainable), str(name)]:
            return tf.Variable(array, trainable=trainable, name=name)
    return tf.constant(array)


def setter(live: Any) -> Callable[[Any], None] | None:
    """Return what gives a live variable its new value, None for a tensor, which never changes."""
    assign: Callable[[Any], None] | None = live.assign if isinstance(live, tf.Variable) else None
    return assign


def successor(live: Any, build: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes the value that takes the place of ``live``."""
    return build
