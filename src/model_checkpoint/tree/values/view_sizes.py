"""View sizes: how many bytes the elements of a leaf take, which may be other numbers than those of its array."""

from __future__ import annotations

from math import prod

from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import Entry
from model_checkpoint.state import Spec
from model_checkpoint.tree.values.dtypes import number


def nbytes_of(spec: Spec, entry: Entry) -> int:
    """Return how many bytes the elements of a leaf take; ``entry`` holds them, maybe as another dtype.

    Example:
        >>> memory = Entry("x", "numpy", "uint8", (16,), "U8", None, 0, 0, 16, "")
        >>> nbytes_of(Spec("x", "float32", (2,)), memory)
        8
    """
    return _itemsize(spec.dtype, entry) * prod(spec.shape)


def _itemsize(dtype: str, entry: Entry) -> int:
    known = None if dtype == entry.dtype else number(dtype)
    if known is not None:
        return known.itemsize
    if dtype != entry.dtype:
        from model_checkpoint.tree.values.numpy_dtypes import from_name  # few views are of such; it brings NumPy

        try:
            return int(from_name(dtype).itemsize)
        except CheckpointException:  # another framework's, or nobody's
            pass
    return entry.nbytes // max(1, prod(entry.shape))
