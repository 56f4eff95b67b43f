"""Tracker names: other trackers by their names, and which of them are installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.tracking.bridges.mlflow_tracker import MlflowTracker
from model_checkpoint.tracking.bridges.other_tracker import OtherTracker
from model_checkpoint.tracking.bridges.tensorboard_tracker import TensorboardTracker
from model_checkpoint.tracking.bridges.trackio_tracker import TrackioTracker
from model_checkpoint.tracking.bridges.wandb_tracker import WandbTracker

_KNOWN: dict[str, Callable[[], OtherTracker]] = {
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
    "trackio": TrackioTracker,
    "tensorboard": TensorboardTracker,
}
_ASKED = ("name", "require", "begin", "describe", "log", "end")


def installed_trackers() -> list[str]:
    """The names of those that are installed here.

    Example:
        >>> set(installed_trackers()) <= {"mlflow", "wandb", "trackio", "tensorboard"}
        True
    """
    found = {name: find_spec(name) for name in _KNOWN}
    return [name for name, spec in found.items() if spec is not None and spec.origin is not None]  # no mere folder


def find_trackers(asked: Sequence[Any]) -> list[OtherTracker]:
    """Trackers that were asked for by name, or made by the caller; their libraries are imported.

    Raises:
        OptionInvalid: One is not known, not installed or named twice.

    Example:
        >>> find_trackers(["comet"])
        Traceback (most recent call last):
        model_checkpoint.errors.OptionInvalid: bridges: 'comet' is not known; known are mlflow, wandb, trackio, ...
    """
    if isinstance(asked, str):
        raise OptionInvalid(f"bridges must be a list, got {asked!r}. Write bridges=[{asked!r}].")
    found = [_find(one) for one in asked]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise OptionInvalid(f"bridges: each other tracker once, got {names}.")
    for one in found:
        one.require()
    return found


def _find(one: Any) -> OtherTracker:
    if isinstance(one, str):
        if one not in _KNOWN:
            raise OptionInvalid(f"bridges: {one!r} is not known; known are {', '.join(_KNOWN)}, or an object of yours.")
        return _KNOWN[one]()
    lacking = [name for name in _ASKED if not hasattr(one, name)]
    if lacking:
        raise OptionInvalid(f"bridges: a {type(one).__qualname__} has no {', '.join(lacking)}, see OtherTracker.")
    other: OtherTracker = one
    return other
