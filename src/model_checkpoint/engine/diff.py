"""Diff: what changed between two checkpoints, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from model_checkpoint import tree
from model_checkpoint.engine.info import CheckpointInfo, info_of, path_of
from model_checkpoint.engine.listing import candidates
from model_checkpoint.engine.load import load
from model_checkpoint.engine.refs import Ref, parse_ref
from model_checkpoint.errors import UnsupportedType
from model_checkpoint.manifest import Manifest, decode
from model_checkpoint.state import Spec
from model_checkpoint.storage.locate import open_store

_BLOCK = 1 << 20  # elements compared at a time, so that wide temporaries stay small


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One tensor that both checkpoints have and that differs; the figures are None where no difference is defined."""

    name: str
    before: str  # dtype and shape
    after: str
    max_change: float | None
    mean_change: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """How checkpoint ``b`` differs from ``a``."""

    a: CheckpointInfo
    b: CheckpointInfo
    added: Sequence[str]
    removed: Sequence[str]
    changed: Sequence[Change]
    unchanged: int


def diff(a: str | PathLike[str] | CheckpointInfo, b: str | PathLike[str] | CheckpointInfo) -> Diff:
    """Compare two checkpoints; each is a root (its newest), ``root@step``, ``root@best:metric``, or an info.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-diff", {"w": np.zeros(2)}, step=1)
        >>> _ = mc.save("memory://doc-diff", {"w": np.ones(2)}, step=2)
        >>> change = mc.diff("memory://doc-diff@1", "memory://doc-diff@2").changed[0]
        >>> change.name, change.max_change
        ('w', 1.0)
    """
    left, right = _Side(parse_ref(a)), _Side(parse_ref(b))
    both = [name for name in left.specs if name in right.specs]
    differing = [name for name in both if left.fingerprint(name) != right.fingerprint(name)]
    return Diff(
        a=left.info,
        b=right.info,
        added=[name for name in right.specs if name not in left.specs],
        removed=[name for name in left.specs if name not in right.specs],
        changed=[_change(name, left, right) for name in differing],
        unchanged=len(both) - len(differing),
    )


class _Side:
    """One of the two checkpoints."""

    def __init__(self, ref: Ref) -> None:
        self.ref, store = ref, open_store(ref.root)
        found = candidates(store, **ref.choice)[0]
        if found.error is not None:
            raise found.error
        self.manifest: Manifest = decode(store.read_manifest(found.name), path_of(store, found.name))
        self.info = info_of(store, self.manifest)
        self.specs: dict[str, Spec] = {s.name: s for s in tree.specs(self.manifest.tree, self.manifest.entries)}

    def fingerprint(self, name: str) -> tuple[object, ...]:
        """What must be equal for a tensor to be unchanged."""
        spec = self.specs[name]
        return spec.dtype, spec.shape, self.manifest.entries[spec.entry].digest

    def label(self, name: str) -> str:
        return f"{self.specs[name].dtype} {list(self.specs[name].shape)}"

    def array(self, name: str) -> npt.NDArray[Any]:
        """The tensor itself, found again by walking the partly loaded state."""
        part = load(self.ref.root, name=self.manifest.name, parts=[name], framework="numpy")
        while not isinstance(part, np.ndarray):
            part = next(iter(part.values() if isinstance(part, dict) else part))
        return part


def _change(name: str, left: _Side, right: _Side) -> Change:
    worst = mean = None
    if left.specs[name].shape == right.specs[name].shape:
        try:
            worst, mean = _distance(left.array(name), right.array(name))
        except (UnsupportedType, TypeError):
            worst = mean = None  # no difference is defined for this dtype
    return Change(name=name, before=left.label(name), after=right.label(name), max_change=worst, mean_change=mean)


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[float, float]:
    """Largest and mean absolute difference, in double precision, block by block."""
    worst = total = 0.0
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, flat_a.size, _BLOCK):
        gap = np.abs(_wide(flat_a[start : start + _BLOCK]) - _wide(flat_b[start : start + _BLOCK]))
        worst = max(worst, float(gap.max()))
        total += float(gap.sum())
    return worst, total / max(1, flat_a.size)


def _wide(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if block.dtype.kind not in "biufcV" or block.dtype.names:
        raise TypeError(f"no difference is defined for {block.dtype}")
    return block.astype(np.complex128 if block.dtype.kind == "c" else np.float64)
