"""Torch files: one ``.pt`` file by ``torch.save``, loaded with ``weights_only=True``.

What the safe loader would refuse is refused when it is saved, with its path in the state: nothing is written that
could not be read back.
"""

from __future__ import annotations

import _codecs
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from model_checkpoint.backend import BaseStorageBackend
from model_checkpoint.errors import UnsupportedType

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_MAPPINGS = (dict, OrderedDict)
_SEQUENCES = (list, tuple, set)


class TorchBackend(BaseStorageBackend):
    """States of tensors, NumPy arrays and plain values as PyTorch users know them.

    Example:
        >>> import tempfile, torch
        >>> path = f"{tempfile.mkdtemp()}/state.pt"
        >>> _ = TorchBackend().save_checkpoint({"weight": torch.ones(2), "epoch": 3}, path)
        >>> TorchBackend().load_checkpoint(path)
        {'weight': tensor([1., 1.]), 'epoch': 3}
        >>> TorchBackend().save_checkpoint({"model": {"activation": torch.relu}}, path)
        Traceback (most recent call last):
        model_checkpoint.errors.UnsupportedType: model.activation: a builtin_function_or_method cannot be ...
    """

    def get_name(self) -> str:
        """The name in catalogs and manifests."""
        return "pytorch"

    def get_file_extension(self) -> str:
        """As PyTorch users expect it."""
        return ".pt"

    def save_checkpoint(self, data: Any, path: str) -> None:
        """Write ``data`` with ``torch.save``."""
        import torch

        for name, value in _leaves(data, ""):
            _require_loadable(name, value)
        torch.save(data, path)

    def load_checkpoint(self, path: str, device: Any = None) -> Any:
        """Read it back; nothing in the file can run code."""
        import torch

        with torch.serialization.safe_globals(numpy_parts()):
            return torch.load(path, map_location=device, weights_only=True)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every value that is no plain container, with its path."""
    if type(value) in _MAPPINGS:
        for key, inner in value.items():
            yield f"{name}.{key}" if name else str(key), key
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif type(value) in _SEQUENCES:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{name}.{index}" if name else str(index))
    else:
        yield name, value


def _require_loadable(name: str, value: Any) -> None:
    import torch

    ours = (torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device)
    if type(value) in _PLAIN or type(value) in ours:
        return
    if isinstance(value, (np.ndarray, np.generic)) and type(value) is not np.memmap and _is_plain(value.dtype):
        return
    hint = " Save its state_dict()." if hasattr(value, "state_dict") else ""
    kind = f"NumPy array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise UnsupportedType(
        f"{name or 'the state'}: a {kind} cannot be read back from a .pt file with weights_only=True, so it is not "
        f"written.{hint} The native backend saves more types; nothing was saved."
    )


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufcSU" and dtype.names is None and dtype.isbuiltin == 1


def numpy_parts() -> list[Any]:
    """What the safe loader must know to build NumPy arrays and scalars of plain numbers, and bytes without one."""
    kinds: Mapping[str, type] = {code: type(np.dtype(code)) for code in "?bBhHiIlLqQefdgFDGSU"}
    rebuild = np.zeros(0).__reduce__()[0]  # wherever this version of NumPy keeps it
    scalar = np.float64(0).__reduce__()[0]
    return [rebuild, scalar, np.ndarray, np.dtype, _codecs.encode, bytes, *set(kinds.values())]
