"""Exact batches: which kind of data it is, and how it is read exactly."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.feeding.index_stream import length_of
from model_checkpoint.integrations.keras.fed_batches import FedBatches
from model_checkpoint.integrations.keras.placed_batches import ArrayBatches, DatasetBatches

BY_EPOCHS = "this data cannot be begun within an epoch: the run goes on at the beginning of one"
_BATCH_SIZE = 32  # what Keras takes where none is given


def batches_of(x: Any, y: Any, options: dict[str, Any], *, seed: int) -> Any:
    """The data as batches that can be begun anywhere; None if only its epochs can. What it needs leaves ``options``.

    Example:
        >>> options = {"batch_size": 2, "verbose": 0}
        >>> len(batches_of(np.ones((8, 2)), np.ones(8), options, seed=0)), options
        (4, {'verbose': 0, 'validation_batch_size': 2})
        >>> batches_of((one for one in range(3)), None, {}, seed=0) is None
        True
    """
    if isinstance(x, keras.utils.PyDataset):
        return DatasetBatches(x, seed=seed, shuffle=options.pop("shuffle", True))
    if _is_loader(x):
        return FedBatches(x)
    arrays = _arrays(x, y, options.get("sample_weight"))
    if arrays is None:
        return None
    options.pop("sample_weight", None)
    batch_size = options.pop("batch_size", None)
    if batch_size is not None:
        options.setdefault("validation_batch_size", batch_size)
    shuffle = options.pop("shuffle", True)
    return ArrayBatches(arrays, batch_size=batch_size or _BATCH_SIZE, seed=seed, shuffle=bool(shuffle))


def _is_loader(x: Any) -> bool:
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(x, torch.DataLoader) and length_of(x) is not None


def _arrays(x: Any, y: Any, weights: Any) -> tuple[Any, ...] | None:
    given = tuple(keras.tree.map_structure(_as_array, one) for one in (x, y, weights) if one is not None)
    leaves = keras.tree.flatten(given)
    if not leaves or not all(len(getattr(one, "shape", ())) for one in leaves):
        return None
    lengths = {int(one.shape[0]) for one in leaves}
    if len(lengths) > 1:
        raise OptionInvalid(f"x, y and sample_weight must be of one length, got {sorted(lengths)}. Nothing was done.")
    if y is None and weights is not None:
        raise OptionInvalid("sample_weight= needs y. Nothing was done.")
    return given


def _as_array(value: Any) -> Any:
    """Tables, and tensors that no array of indices picks from, as arrays of NumPy."""
    known = isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] in ("torch", "jax", "jaxlib")
    return np.asarray(value) if not known and hasattr(value, "__array__") and len(value.shape) else value
