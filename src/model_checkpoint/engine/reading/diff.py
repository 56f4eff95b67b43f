"""Diff: what changed between two checkpoints, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require, require_selection
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.plan import matcher
from model_checkpoint.tree.values.plain import plain_values, shorten

_BLOCK = 1 << 20  # elements compared at a time, so that wide temporaries stay small


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """One tensor that both checkpoints have and that differs; the figures are None where no difference is defined."""

    name: str
    before: str  # dtype and shape
    after: str
    max_change: float | None
    mean_change: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """One plain value, such as a learning rate, that differs; None where a side does not have it."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """How checkpoint ``b`` differs from ``a``: tensors added, removed, changed, and plain values that differ."""

    a: CheckpointInfo
    b: CheckpointInfo
    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[TensorChange]
    unchanged: int
    values: Sequence[ValueChange] = ()

    @property
    def same(self) -> bool:
        """Whether there is no difference at all."""
        return not (self.added or self.removed or self.changed or self.values)


def diff(a: Reference, b: Reference, *, parts: str | Sequence[str] | None = None, progress: Listen = None) -> Diff:
    """Compare two checkpoints; each is a root (its newest), ``root@step``, ``root@best:metric``, or an info.

    With ``parts`` only what lies in those parts, or fits those patterns, is compared. ``progress`` is called as bytes
    are compared; True shows a bar.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-diff", {"w": np.zeros(2)}, step=1)
        >>> _ = mc.save("memory://doc-diff", {"w": np.ones(2)}, step=2)
        >>> change = mc.diff("memory://doc-diff@1", "memory://doc-diff@2").changed[0]
        >>> change.name, change.max_change
        ('w', 1.0)
    """
    require(progress=progress)
    require_selection(parts=parts, rename=None, types=())
    wanted = matcher(parts)
    with _Side(a, wanted) as left, _Side(b, wanted) as right:
        if parts is not None and not (left.names or right.names):
            raise StructureMismatch(
                f"{left.info.path}: neither it nor {right.info.path} has anything in {parts!r}. See `mckpt show`."
            )
        both = [name for name in left.specs if name in right.specs]
        changed = _changes(both, left, right, progress)
        return Diff(
            a=left.info,
            b=right.info,
            added=[name for name in right.specs if name not in left.specs],
            removed=[name for name in left.specs if name not in right.specs],
            changed=changed,
            unchanged=len(both) - len(changed),
            values=_value_changes(left.values, right.values),
        )


def _value_changes(a: Mapping[str, Node], b: Mapping[str, Node]) -> list[ValueChange]:
    """What differs among the values that are no tensors, in the order of the trees."""
    missing = object()
    return [
        ValueChange(
            name=name, before=shorten(a[name]) if name in a else None, after=shorten(b[name]) if name in b else None
        )
        for name in dict.fromkeys([*a, *b])
        if a.get(name, missing) != b.get(name, missing) or type(a[name]) is not type(b[name])
    ]


class _Side(TensorReader):
    """One of the two checkpoints; a context manager."""

    def __init__(self, ref: Reference, wanted: Callable[[str], bool]) -> None:
        super().__init__(ref, wanted)
        self.values = {name: node for name, node in plain_values(self.manifest.tree).items() if wanted(name)}

    @property
    def names(self) -> set[str]:
        """Everything of this side that is compared."""
        return self.values.keys() | self.specs.keys()

    def label(self, name: str) -> str:
        return f"{self.specs[name].dtype} {list(self.specs[name].shape)}"


def _changes(both: Sequence[str], left: _Side, right: _Side, progress: Listen) -> list[TensorChange]:
    """What changed of the tensors that both sides have; only those whose digests differ are read."""
    differing = [name for name in both if left.fingerprint(name) != right.fingerprint(name)]
    found: list[TensorChange] = []
    with listening(progress, "comparing") as emit:
        sizes = {name: left.nbytes(name) + right.nbytes(name) for name in differing}
        meter = Meter("diff", sum(sizes.values()), emit)
        for name in differing:
            change = _change(name, left, right)
            found += [] if change is None else [change]
            meter.add(sizes[name])
    return found


def _change(name: str, left: _Side, right: _Side) -> TensorChange | None:
    """How one tensor changed; None if it did not, and only its neighbours in the storage did."""
    worst = mean = None
    if left.specs[name].shape == right.specs[name].shape:
        with suppress(UnsupportedType):  # NumPy has no such dtype, so no difference can be told
            a, b = left.array(name), right.array(name)
            views = left.is_view(name) or right.is_view(name)
            if views and left.label(name) == right.label(name) and a.tobytes() == b.tobytes():
                return None  # other parts of the storage changed
            worst, mean = _distance(a, b)
    return TensorChange(name=name, before=left.label(name), after=right.label(name), max_change=worst, mean_change=mean)


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[float, float] | tuple[None, None]:
    """Largest and mean absolute difference, block by block; none where no difference is defined."""
    if not (_is_number(a.dtype) and _is_number(b.dtype)):
        return None, None
    worst = total = 0.0
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, flat_a.size, _BLOCK):
        gap = _gap(flat_a[start : start + _BLOCK], flat_b[start : start + _BLOCK])
        worst = float(np.maximum(worst, gap.max()))  # a NaN stays
        total += float(gap.sum(dtype=np.float64))
    return worst, total / max(1, flat_a.size)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or dtype.isbuiltin == 2  # 2: a number another library taught NumPy, such as bfloat16


def _gap(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Absolute differences; those of whole numbers are exact, equal infinities and NaN in both places are none."""
    if a.dtype == b.dtype and a.dtype.kind in "iu":
        whole: npt.NDArray[Any] = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
        return whole  # wrapped to the right value
    wide_a, wide_b = _wide(a), _wide(b)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(wide_a - wide_b)
    alike = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    return np.where(alike, 0.0, gap)


def _wide(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return block.astype(np.complex128 if block.dtype.kind in "cW" else np.float64)
