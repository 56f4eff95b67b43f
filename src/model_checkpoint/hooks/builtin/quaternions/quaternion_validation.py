"""Quaternion validation: checks quaternions, and puts those right that can be."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from model_checkpoint import forks
from model_checkpoint.hooks.base_hook import BaseHook
from model_checkpoint.hooks.builtin.quaternions.rotation_arrays import (
    as_numbers,
    check_quaternions,
    is_array,
    normalized,
)
from model_checkpoint.hooks.errors import RotationInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookPriority

_LOG = logging.getLogger(__name__)
KEYS = ("quaternion", "quaternions", "rotation", "orientation", "pose")


class QuaternionValidationHook(BaseHook):
    """Finds rotations that are none: before a save in what the event carries, and in training wherever it is asked.

    A batch that is off is put right where its norms allow it, otherwise it is a :class:`RotationInvalid` (a
    ``ValueError``); outputs and losses are only told. ``keys`` are the entries of a batch or an output that hold
    quaternions (those whose last dimension is 4), ``parameters`` patterns of names in the model's state. With
    ``veto=True`` a save of anything wrong is refused.

    Example:
        >>> import numpy as np
        >>> hook = QuaternionValidationHook()
        >>> hook.validate_input({"quaternion": np.array([[2.0, 0.0, 0.0, 0.0]])})["quaternion"].tolist()
        [[1.0, 0.0, 0.0, 0.0]]
        >>> hook.get_validation_summary()["normalization_fixes"]
        1
    """

    def __init__(
        self,
        *,
        tolerance: float = 1e-6,
        enable_input_validation: bool = True,
        enable_output_validation: bool = True,
        enable_loss_validation: bool = True,
        keys: Sequence[str] = KEYS,
        parameters: Sequence[str] = (),
        veto: bool = False,
        priority: HookPriority = HookPriority.HIGH,
    ) -> None:
        self.tolerance, self.keys, self.parameters, self.veto = tolerance, tuple(keys), tuple(parameters), veto
        self.priority = priority
        self._inputs, self._outputs, self._losses = (
            enable_input_validation,
            enable_output_validation,
            enable_loss_validation,
        )
        self._lock = forks.lock()
        self._counts = dict.fromkeys(
            (
                "total_validations",
                "input_failures",
                "output_failures",
                "loss_failures",
                "parameter_failures",
                "normalization_fixes",
            ),
            0,
        )

    # --- in training -------------------------------------------------------------------------------------------------

    def validate_input(self, batch: Any) -> Any:
        """The batch, or a copy of it in which every quaternion has norm 1.

        Raises:
            RotationInvalid: a quaternion is not finite or too small to be put right.
        """
        if not self._inputs:
            return batch
        fixed = {}
        for key, array in self._quaternions(batch):
            check = check_quaternions(array, self.tolerance)
            self._count("total_validations")
            if check.ok:
                continue
            self._count("input_failures")
            if not check.repairable:
                raise RotationInvalid(
                    f"{_where('batch', key)}: {check.problem}; it cannot be put right. Look at how data is prepared."
                )
            self._count("normalization_fixes")
            _LOG.warning("%s: %s; each was divided by its norm", _where("batch", key), check.problem)
            fixed[key] = normalized(array)
        if not fixed:
            return batch
        return {**batch, **fixed} if isinstance(batch, Mapping) else fixed[""]

    def validate_output(self, outputs: Any) -> list[str]:
        """What is wrong with the rotations a model gave; it is logged and counted, nothing is changed."""
        found = self._quaternions(outputs) if self._outputs else ()
        return self._problems(((_where("output", key), array) for key, array in found), counted="output_failures")

    def validate_loss(self, **losses: Any) -> list[str]:
        """What is wrong with losses, given by name; it is logged and counted.

        Example:
            >>> QuaternionValidationHook().validate_loss(loss=0.5, rotation_loss=float("nan"))
            ['rotation_loss is nan']
        """
        found = []
        for name, loss in losses.items() if self._losses else ():
            self._count("total_validations")
            value = float(as_numbers(loss).mean()) if is_array(loss) else float(loss)
            if not math.isfinite(value):
                self._count("loss_failures")
                found.append(f"{name} is {value}")
        return _told(found)

    def watch(self, module: Any) -> Callable[[], None]:
        """Check what goes into a module and what comes out of it at every call; call what is returned to stop.

        For modules with ``register_forward_pre_hook`` and ``register_forward_hook``, as those of torch.
        """

        def check_inputs(_: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(self.validate_input(each) for each in inputs)

        def check_outputs(_: Any, __: Any, outputs: Any) -> None:
            self.validate_output(outputs)

        before, after = module.register_forward_pre_hook(check_inputs), module.register_forward_hook(check_outputs)

        def stop() -> None:
            before.remove()
            after.remove()

        return stop

    # --- at a save ---------------------------------------------------------------------------------------------------

    def on_before_checkpoint_save(self, context: HookContext) -> dict[str, Any]:
        """Check ``batch``, ``outputs``, ``loss``, ``rotation_loss`` and the named parameters of ``model``."""
        updates = {}
        if (batch := context.get("batch")) is not None:
            updates["batch"] = self.validate_input(batch)
        found = [] if (outputs := context.get("outputs")) is None else self.validate_output(outputs)
        losses = {name: context.get(name) for name in ("loss", "rotation_loss") if context.get(name) is not None}
        found += self.validate_loss(**losses)
        found += self._validate_parameters(context.get("model"))
        return {"continue": not (self.veto and found), "context_updates": updates, "found": found}

    def get_validation_summary(self) -> dict[str, float]:
        """Counts of all that was checked, and how large a part of it failed.

        Example:
            >>> QuaternionValidationHook().get_validation_summary()["success_rate"]
            1.0
        """
        with self._lock:
            counts = dict(self._counts)
        total = counts["total_validations"]
        failures = {name: count for name, count in counts.items() if name.endswith("failures")}
        rates = {f"{name.removesuffix('s')}_rate": count / total if total else 0.0 for name, count in failures.items()}
        return {**counts, **rates, "success_rate": 1.0 - sum(rates.values())}

    def _validate_parameters(self, model: Any) -> list[str]:
        if not self.parameters or model is None:
            return []
        state = model if isinstance(model, Mapping) else model.state_dict()
        named = (
            (f"parameter {name!r}", value)
            for name, value in state.items()
            if is_array(value) and any(fnmatchcase(name, pattern) for pattern in self.parameters)
        )
        return self._problems(named, counted="parameter_failures")

    def _problems(self, arrays: Iterable[tuple[str, Any]], *, counted: str) -> list[str]:
        """What is wrong with arrays, each told where it was found."""
        found = []
        for where, array in arrays:
            self._count("total_validations")
            check = check_quaternions(array, self.tolerance)
            if not check.ok:
                self._count(counted)
                found.append(f"{where}: {check.problem}")
        return _told(found)

    def _quaternions(self, holder: Any) -> Iterator[tuple[str, Any]]:
        """The arrays that hold quaternions; an array by itself does if its last dimension says so."""
        entries = holder.items() if isinstance(holder, Mapping) else [("", holder)]
        for key, value in entries:
            if is_array(value) and (key == "" or key in self.keys):
                surely = key.startswith("quaternion")
                if surely or (len(value.shape) and value.shape[-1] == 4):
                    yield key, value

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _where(holder: str, key: str) -> str:
    return f"{holder} entry {key!r}" if key else holder


def _told(found: list[str]) -> list[str]:
    for each in found:
        _LOG.warning("%s", each)
    return found
