"""Model variables: all that training changes in a compiled model, by position.

The seeds of dropout are variables too, and so are the sums behind the metrics of an epoch. Names count up with every
model a program makes, so they cannot tell which is which: the order in which a model lists them can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.errors import StructureMismatch

Values = dict[str, dict[str, Any]]


def _lists(model: Any) -> dict[str, Sequence[Any]]:
    return {"model": model.variables, "optimizer": model.optimizer.variables, "metrics": model.metrics_variables}


def take_variables(model: Any) -> Values:
    """What every variable holds; on JAX the model itself holds old values until it is asked to take the new ones."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    return {part: _named(variables) for part, variables in _lists(model).items()}


def _named(variables: Sequence[Any]) -> dict[str, Any]:
    paths = [one.path for one in variables]
    if len(set(paths)) < len(paths):
        paths = [f"{number:04d} {path}" for number, path in enumerate(paths)]
    return {path: one.value for path, one in zip(paths, variables, strict=True)}


def require_variables(model: Any, saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a checkpoint of another model before anything changes."""
    for part, variables in _lists(model).items():
        kept = list(saved[part].items())
        if len(kept) != len(variables):
            raise StructureMismatch(
                f"{part}: saved with {len(kept)} variables, now it has {len(variables)}. Build and compile the model "
                "as it was, or give the run another root."
            )
        for (name, value), one in zip(kept, variables, strict=True):
            if tuple(value.shape) != tuple(one.shape):
                raise StructureMismatch(
                    f"{part}: {name} was saved with shape {tuple(value.shape)}, now {one.path} has {tuple(one.shape)}. "
                    "Build the model as it was, or give the run another root."
                )


def put_variables(model: Any, saved: Mapping[str, Mapping[str, Any]]) -> None:
    """Give every variable the value it had."""
    for part, variables in _lists(model).items():
        for value, one in zip(saved[part].values(), variables, strict=True):
            one.assign(value)
