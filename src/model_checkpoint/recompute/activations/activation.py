"""Activations seen from outside: their id, their bytes and the memory they share.

Works for NumPy, torch, JAX and TensorFlow arrays, bytes-like objects, Python scalars and any nesting of them,
without importing a framework.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.recompute.errors import ActivationInvalid, LayerIdInvalid

_SCALARS = (bool, int, float, complex, str)
_SPARSE_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def check_layer_id(layer_id: object, *, where: str) -> str:
    """Return ``layer_id`` if it is a string with something in it.

    Raises:
        LayerIdInvalid: it is blank or no string (a ``ValueError``).

    Example:
        >>> check_layer_id("block1", where="manager")
        'block1'
    """
    if isinstance(layer_id, str) and layer_id and not layer_id.isspace():
        return layer_id
    raise LayerIdInvalid(f"{where}: the layer id is {layer_id!r}, expected a string that is not blank. Name the layer.")


def check_activation(activation: object, *, where: str, layer_id: str) -> None:
    """Raise :class:`ActivationInvalid` for ``None``, the one value that is never an activation."""
    if activation is None:
        raise ActivationInvalid(f"{where}: the activation of {layer_id!r} is None, expected a tensor. Pass the tensor.")


def size_of(activation: Any) -> int:
    """Bytes of the elements of ``activation``: element count times the size of its own dtype.

    Views and aliases count in full, each one; :func:`storages_of` tells what they share.

    Raises:
        UnsupportedType: the object has no bytes that could be counted (a ``TypeError``).

    Example:
        >>> import numpy as np
        >>> size_of(np.zeros((2, 3), np.float16)), size_of((b"abc", np.zeros(2)))
        (12, 19)
    """
    if getattr(activation, "layout", None) is not None and _is_sparse(activation):
        return sum(part.nbytes for part in _sparse_parts(activation))
    nbytes = getattr(activation, "nbytes", None)
    if type(nbytes) is int:
        return nbytes
    if isinstance(activation, Mapping):
        return sum(map(size_of, activation.values()))
    if isinstance(activation, tuple | list):
        return sum(map(size_of, activation))
    return _size_of_leaf(activation)


def _is_sparse(activation: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(activation, torch.Tensor) and str(activation.layout) in _SPARSE_PARTS


def _sparse_parts(tensor: Any) -> Iterator[Any]:
    """The dense tensors a sparse one consists of; its own ``nbytes`` is an error or leaves the indices out."""
    for name in _SPARSE_PARTS[str(tensor.layout)]:
        yield getattr(tensor, name)()


def _size_of_leaf(leaf: Any) -> int:
    if leaf is None:
        return 0
    if isinstance(leaf, _SCALARS):
        return sys.getsizeof(leaf)
    if hasattr(getattr(leaf, "shape", None), "num_elements"):  # TensorFlow
        return int(leaf.shape.num_elements()) * int(leaf.dtype.size)
    for count, width in (("numel", "element_size"), ("element_count", "data_type_size"), ("size", "itemsize")):
        if hasattr(leaf, count) and hasattr(leaf, width):
            return int(_value(leaf, count)) * int(_value(leaf, width))
    try:
        return int(leaf.nbytes) if hasattr(leaf, "nbytes") else memoryview(leaf).nbytes
    except TypeError:
        raise UnsupportedType(
            f"activation: a {type(leaf).__name__} has no bytes to count, expected an array, a bytes-like object or "
            "an object with `nbytes`. Give the class an `nbytes` attribute."
        ) from None


def _value(leaf: Any, name: str) -> Any:
    found = getattr(leaf, name)
    return found() if callable(found) else found


def storages_of(activation: Any) -> Iterator[tuple[tuple[str, int], int, int]]:
    """Give ``(storage, bytes of it used here, bytes of the whole storage)`` for each array with memory of its own.

    Two arrays that alias one another give the same storage. The pair is an address: it says something only while
    the array lives.

    Example:
        >>> import numpy as np
        >>> base = np.zeros(10, np.uint8)
        >>> [used for _, used, _ in storages_of([base[:3], base[5:]])]
        [3, 5]
    """
    if isinstance(activation, Mapping):
        activation = tuple(activation.values())
    if isinstance(activation, tuple | list):
        for item in activation:
            yield from storages_of(item)
    else:
        yield from _storage_of_leaf(activation)


def _storage_of_leaf(leaf: Any) -> Iterator[tuple[tuple[str, int], int, int]]:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and type(leaf) in (torch.Tensor, torch.nn.Parameter):
        # only plain strided tensors have one storage with an address
        if leaf.layout is torch.strided and leaf.device.type != "meta" and leaf.nbytes:
            storage = leaf.untyped_storage()
            yield (str(leaf.device), storage.data_ptr()), leaf.nbytes, storage.nbytes()
    elif numpy is not None and isinstance(leaf, numpy.ndarray) and leaf.nbytes:
        base = leaf
        while isinstance(base.base, numpy.ndarray):
            base = base.base
        yield ("numpy", base.__array_interface__["data"][0]), leaf.nbytes, base.nbytes
