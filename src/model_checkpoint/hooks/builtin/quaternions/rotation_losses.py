"""Rotation losses: checks that a rotation loss fits what it compares, and has a value it can have."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.quaternions.rotation_arrays import as_numbers, is_array
from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority

_LOG = logging.getLogger(__name__)
# what each loss compares, by the last dimensions of it, and the largest value it can have
_SHAPES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "euler": ((3,),),
    "quaternion": ((4,),),
    "geodesic": ((4,), (3, 3)),
}
_LARGEST = {"euler": math.inf, "quaternion": 4.0, "geodesic": math.pi}


class RotationLossValidationHook(BaseHook):
    """Tells when a rotation loss is computed on the wrong representation, or has a value no rotation can give.

    A loss on Euler angles compares 3 numbers, one on quaternions 4 (at most 4 apart, squared), a geodesic one gives an
    angle of at most pi. At a save it reads ``loss_config["rotation_loss"]``, ``rotation_loss``, ``outputs`` and
    ``targets`` of the event. With ``veto=True`` a save with anything wrong is refused.

    Example:
        >>> import numpy as np
        >>> hook = RotationLossValidationHook()
        >>> hook.validate("geodesic", 9.5, np.zeros((8, 3)))  # doctest: +NORMALIZE_WHITESPACE
        ['geodesic loss is 9.5, but none is above 3.14159',
         'geodesic loss compares arrays that end in (4,) or (3, 3), got shape (8, 3)']
    """

    def __init__(
        self,
        *,
        supported_losses: Sequence[str] = tuple(_SHAPES),
        veto: bool = False,
        priority: HookPriority = HookPriority.HIGH,
    ) -> None:
        unknown = sorted(set(supported_losses) - set(_SHAPES))
        if unknown:
            raise HookInvalid(f"RotationLossValidationHook: losses are {', '.join(_SHAPES)}, got {', '.join(unknown)}.")
        self.supported_losses, self.veto, self.priority = tuple(supported_losses), veto, priority
        self.findings = 0

    def validate(self, kind: str, value: Any, *arrays: Any) -> list[str]:
        """What is wrong with one loss and the arrays it compares; it is logged and counted."""
        if kind not in self.supported_losses:
            found = [f"rotation loss {kind!r} is none of {', '.join(self.supported_losses)}"]
        else:
            found = [*_wrong_value(kind, value), *_wrong_shapes(kind, arrays)]
        self.findings += len(found)
        for each in found:
            _LOG.warning("%s", each)
        return found

    def on_before_checkpoint_save(self, context: HookContext) -> dict[str, Any]:
        """Check the rotation loss that the event tells of, if it does."""
        kind, value = (context.get("loss_config") or {}).get("rotation_loss"), context.get("rotation_loss")
        if kind is None:
            return {"found": []}
        arrays = [each for each in (context.get("outputs"), context.get("targets")) if is_array(each)]
        found = self.validate(kind, value, *arrays)
        return {"continue": not (self.veto and found), "found": found}


def _wrong_value(kind: str, value: Any) -> list[str]:
    if value is None:
        return []
    number = float(as_numbers(value).mean()) if is_array(value) else float(value)
    if not math.isfinite(number):
        return [f"{kind} loss is {number}: look for quaternions without norm 1, angles out of range, a division by 0"]
    if number < 0:
        return [f"{kind} loss is {number:g}, but none is below 0"]
    if number > _LARGEST[kind] * (1 + 1e-6):
        return [f"{kind} loss is {number:g}, but none is above {_LARGEST[kind]:g}"]
    return []


def _wrong_shapes(kind: str, arrays: Sequence[Any]) -> list[str]:
    endings = _SHAPES[kind]
    return [
        f"{kind} loss compares arrays that end in {' or '.join(map(str, endings))}, got shape {tuple(array.shape)}"
        for array in arrays
        if not any(tuple(array.shape)[-len(ending) :] == ending for ending in endings)
    ]
