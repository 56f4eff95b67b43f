"""Diff: what changed between two checkpoints, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.option_checks import require, require_selection
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.tensor_reader import TensorReader
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.manifest import Node
from model_checkpoint.notebook_html import html_table
from model_checkpoint.plan import matcher
from model_checkpoint.tree.values.plain import plain_values, shorten

if TYPE_CHECKING:
    import numpy.typing as npt

    from model_checkpoint.engine.reading.figures.movement import Movement


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """One tensor that both checkpoints have and that differs; the figures are None where no difference is defined."""

    name: str
    before: str  # dtype and shape
    after: str
    max_change: float | None  # NaN, or infinite, if elements are that are not so on the other side
    mean_change: float | None
    relative: float | None  # norm of the difference over the norm before, of what is finite on both sides
    spoiled: int  # elements that were finite and are not any more


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """One plain value, such as a learning rate, that differs; None where a side does not have it."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """How checkpoint ``b`` differs from ``a``: tensors added, removed, changed, and plain values that differ.

    What has new NaN or infinities is first among the changed ones, then what moved most relative to its norm.
    """

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

    def _repr_html_(self) -> str:
        """How a notebook shows it: what moved most first."""
        rows = [
            *((one.name, one.before, one.after, *_figures(one)) for one in self.changed),
            *((name, "", "added", "", "") for name in self.added),
            *((name, "removed", "", "", "") for name in self.removed),
            *((one.name, one.before or "", one.after or "", "", "") for one in self.values),
        ]
        counts = f"{len(self.changed)} tensors changed, {self.unchanged} unchanged"
        columns = ["", "before", "after", "largest change", "relative"]
        return html_table(f"{self.a.path} to {self.b.path}: {counts}", columns, rows)


def _figures(change: TensorChange) -> tuple[str, str]:
    largest, relative = ("-" if one is None else f"{one:.3g}" for one in (change.max_change, change.relative))
    return largest, f"{relative}, {change.spoiled} not finite any more" if change.spoiled else relative


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
    if not differing:
        return []
    from model_checkpoint.engine.reading.figures.movement import rank  # brings NumPy

    found: list[TensorChange] = []
    with listening(progress, "comparing") as emit:
        sizes = {name: left.nbytes(name) + right.nbytes(name) for name in differing}
        meter = Meter("diff", sum(sizes.values()), emit)
        for name in differing:
            change = _change(name, left, right)
            found += [] if change is None else [change]
            meter.add(sizes[name])
    return sorted(found, key=lambda change: rank(change.spoiled, change.relative))


def is_untouched(name: str, left: TensorReader, right: TensorReader, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether a tensor that is a part of a storage is as it was, and only other parts of that changed."""
    one, other = left.specs[name], right.specs[name]
    is_view = left.is_view(name) or right.is_view(name)
    return is_view and (one.dtype, one.shape) == (other.dtype, other.shape) and a.tobytes() == b.tobytes()


def _change(name: str, left: _Side, right: _Side) -> TensorChange | None:
    """How one tensor changed; None if it did not, and only its neighbours in the storage did."""
    from model_checkpoint.engine.reading.figures.movement import movement_of

    moved: Movement | None = None
    if left.specs[name].shape == right.specs[name].shape:
        with suppress(UnsupportedType):  # NumPy has no such dtype, so no difference can be told
            a, b = left.array(name), right.array(name)
            if is_untouched(name, left, right, a, b):
                return None
            moved = movement_of(a, b)
    return TensorChange(
        name=name,
        before=left.label(name),
        after=right.label(name),
        max_change=None if moved is None else moved.max_abs,
        mean_change=None if moved is None else moved.mean_abs,
        relative=None if moved is None else moved.rel,
        spoiled=0 if moved is None else moved.spoiled,
    )
