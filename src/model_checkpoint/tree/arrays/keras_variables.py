"""Keras variables: models, optimizers and metrics of Keras 3 as named arrays of its backend."""

from __future__ import annotations

import re
from typing import Any

import keras

from model_checkpoint.tree.nodes.located_error import LocatedError

MODEL, OPTIMIZER, METRIC = "keras.model", "keras.optimizer", "keras.metric"
KINDS = frozenset((MODEL, OPTIMIZER, METRIC))
_COUNTERS = re.compile(r"_[0-9]+(?=_|$)")  # Keras numbers what it names itself, anew in every process


def object_kind(cls: type) -> str | None:
    """Return which of Keras' objects ``cls`` is, or None."""
    if issubclass(cls, keras.layers.Layer):
        return MODEL
    if issubclass(cls, keras.optimizers.Optimizer):
        return OPTIMIZER
    return METRIC if issubclass(cls, keras.metrics.Metric) else None


def is_built(value: Any) -> bool:
    """Tell whether an object has all its variables."""
    return bool(getattr(value, "built", True))


def named_variables(value: Any) -> dict[str, Any]:
    """Return the variables of an object by position and name, which are the same in every process that builds it."""
    return {f"{i}.{_COUNTERS.sub('', one.name)}": one for i, one in enumerate(value.variables)}


def state_of(value: Any) -> dict[str, Any]:
    """Return the arrays of an object's variables."""
    if not is_built(value) and isinstance(value, keras.layers.Layer):
        raise LocatedError(
            f"the Keras {type(value).__name__} has no variables yet. Call it once, or build() it, first."
        )
    return {name: variable.value for name, variable in named_variables(value).items()}
