"""Rotation arrays: norms and repairs, the same for NumPy arrays and torch tensors.

Judged in 64 bits on a NumPy copy, repaired in the array's own kind, on its own device. torch is never imported: whoever
hands over a tensor has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SMALLEST_NORM = 1e-8
_ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuaternionCheck:
    """What is wrong with an array of quaternions: how many, and by how much the worst norm is off."""

    count: int
    not_finite: int
    too_small: int
    not_unit: int
    worst: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether every one is a rotation."""
        return not self.problem

    @property
    def repairable(self) -> bool:
        """Whether dividing by the norm makes every one a rotation."""
        return not self.ok and self.count > 0 and not self.not_finite and not self.too_small


def is_array(value: Any) -> bool:
    """Whether the value has a shape and a dtype, as arrays of all frameworks do.

    Example:
        >>> is_array(np.zeros(4)), is_array([0.0] * 4)
        (True, False)
    """
    return hasattr(value, "shape") and hasattr(value, "dtype")


def as_numbers(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values in 64 bits, as a NumPy array in the memory of this machine.

    Example:
        >>> as_numbers(np.float32([0.5])).dtype
        dtype('float64')
    """
    if hasattr(value, "detach"):  # a torch tensor, perhaps on another device, perhaps in bfloat16
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, dtype=np.float64)


def check_quaternions(value: Any, tolerance: float = 1e-6) -> QuaternionCheck:
    """Judge an array whose last dimension holds quaternions; ``tolerance`` is on top of the rounding of its dtype.

    Example:
        >>> check_quaternions(np.array([[1.0, 0, 0, 0], [2.0, 0, 0, 0]])).problem
        '1 of 2 are no unit quaternions; the worst norm is off by 1'
        >>> check_quaternions(np.zeros((5, 3))).problem
        'the last dimension of a quaternion array is 4, got shape (5, 3)'
    """
    shape = tuple(value.shape)
    if not shape or shape[-1] != 4:
        problem = f"the last dimension of a quaternion array is 4, got shape {shape}"
        return QuaternionCheck(count=0, not_finite=0, too_small=0, not_unit=0, worst=0.0, problem=problem)
    norms = np.sqrt(np.square(as_numbers(value)).sum(-1)).reshape(-1)
    finite = np.isfinite(norms)
    off = np.abs(norms[finite] - 1.0)
    allowed = tolerance + 2 * _ROUNDING.get(str(value.dtype).removeprefix("torch."), 0.0)
    not_finite, not_unit = int((~finite).sum()), int((off > allowed).sum())
    worst = float(off.max()) if off.size else 0.0
    problem = ""
    if not_finite:
        problem = f"{not_finite} of {norms.size} are not finite"
    elif not_unit:
        problem = f"{not_unit} of {norms.size} are no unit quaternions; the worst norm is off by {worst:.3g}"
    return QuaternionCheck(
        count=norms.size,
        not_finite=not_finite,
        too_small=int((norms[finite] <= SMALLEST_NORM).sum()),
        not_unit=not_unit,
        worst=worst,
        problem=problem,
    )


def normalized(value: Any) -> Any:
    """A new array of the same kind, dtype and device, each quaternion divided by its norm.

    Example:
        >>> normalized(np.float32([0, 3, 0, 4])).tolist()
        [0.0, 0.6000000238418579, 0.0, 0.800000011920929]
    """
    norms = np.sqrt(np.square(as_numbers(value)).sum(-1, keepdims=True))
    if hasattr(value, "new_tensor"):
        return value / value.new_tensor(norms)
    return (as_numbers(value) / norms).astype(value.dtype)
