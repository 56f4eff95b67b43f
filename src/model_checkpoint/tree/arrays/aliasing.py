"""Aliasing: arrays that lie over the same memory are stored once, and lie over the same memory again after a load.

Two arrays share if they have a byte in common. Views that together cover at least half of the memory between their
lowest and highest byte are stored as that memory, each with its offset and strides; else each is stored apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from model_checkpoint.state import Source
from model_checkpoint.tree.arrays.array_ref import HOST, ArrayRef, HostMemory, c_strides
from model_checkpoint.tree.values.dtypes import UINT8, DType


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array to store: what it is, and which found arrays show it (the first names it)."""

    kind: str
    dtype: DType
    shape: tuple[int, ...]
    source: Source
    members: Sequence[ArrayRef]
    frozen: bool


@dataclass(slots=True)
class _AliasPlan:
    leaders: dict[int, list[StoredArray]] = field(default_factory=dict)  # position of a member -> what is stored there
    absorbed: set[int] = field(default_factory=set)  # positions that need no array of their own
    apart: list[ArrayRef] = field(default_factory=list)


def overlapping(found: Sequence[ArrayRef]) -> list[list[int]]:
    """Return the groups of two and more arrays that have bytes in common, as positions in order.

    Example:
        >>> from model_checkpoint.tree.arrays.numpy_arrays import find
        >>> a = np.arange(6)
        >>> overlapping([find(a), find(np.zeros(2)), find(a[2:])])
        [[0, 2]]
    """
    groups: list[list[int]] = []
    spaces: dict[str, list[int]] = {}
    for position, one in enumerate(found):
        if one.nbytes and one.space is not None:
            spaces.setdefault(one.space, []).append(position)
    for positions in spaces.values():
        groups.extend(_sweep(found, positions))
    return sorted(groups)


def _sweep(found: Sequence[ArrayRef], positions: list[int]) -> list[list[int]]:
    low = np.fromiter((found[p].address for p in positions), np.uint64, len(positions))
    high = low + np.fromiter((found[p].span for p in positions), np.uint64, len(positions))
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    joins = low[order][1:] < reach[:-1]
    if not joins.any():
        return []
    groups: list[list[int]] = []
    for at in np.flatnonzero(joins):
        if not groups or groups[-1][-1] != order[at]:
            groups.append([int(order[at])])
        groups[-1].append(int(order[at + 1]))
    return [sorted(positions[p] for p in group) for group in groups]


def group_aliases(found: Sequence[ArrayRef]) -> tuple[list[StoredArray] | None, list[ArrayRef]]:
    """Return what to store, and the views stored apart; None when every array is simply stored itself.

    The nodes of the found arrays are rewritten to say which stored array they show, and how.
    """
    groups = overlapping(found)
    if not groups:
        return None, []
    plan = _AliasPlan()
    for group in groups:
        _settle([found[p] for p in group], group, plan)
    stored: list[StoredArray] = []
    for position, one in enumerate(found):
        if position in plan.absorbed:
            continue
        for what in plan.leaders.get(position) or [_alone(one, [one])]:
            _point(what, len(stored))
            stored.append(what)
    return stored, plan.apart


def _geometry(one: ArrayRef) -> tuple[object, ...]:
    strides = one.strides or c_strides(one.shape, one.dtype.itemsize)
    return (one.address, one.lead, one.dtype.name, one.shape, strides, one.plain)


def _alone(one: ArrayRef, members: Sequence[ArrayRef]) -> StoredArray:
    return StoredArray(one.kind, one.dtype, one.shape, one, members, any(m.frozen for m in members))


def _settle(members: list[ArrayRef], positions: list[int], plan: _AliasPlan) -> None:
    """Decide for one group of overlapping arrays how it is stored."""
    regions: dict[tuple[object, ...], list[ArrayRef]] = {}
    for one in members:
        regions.setdefault(_geometry(one), []).append(one)
    plan.absorbed.update(positions[1:])
    firsts = [same[0] for same in regions.values()]
    if len(regions) > 1 and all(one.plain for one in firsts):
        whole = _together(firsts, members)
        if whole is not None:
            plan.leaders[positions[0]] = [whole]
            return
    if len(regions) > 1:
        plan.apart.extend(members)
    plan.leaders[positions[0]] = [_alone(same[0], same) for same in regions.values()]


def _together(firsts: list[ArrayRef], members: list[ArrayRef]) -> StoredArray | None:
    """Return the memory all of them lie in as one stored array, if they cover half of it."""
    low = min(one.address for one in firsts)
    high = max(one.address + one.span for one in firsts)
    aligned = all((one.address + one.lead - low) % one.dtype.itemsize == 0 for one in firsts)
    if 2 * _covered(firsts) < high - low or not aligned:
        return None
    frozen = all(one.frozen for one in members)
    for one in firsts:
        if one.strides is None and one.span == high - low:
            return StoredArray(one.kind, one.dtype, one.shape, one, members, frozen)
    if any(one.space != HOST for one in firsts):
        return None
    dtype = _common_dtype(firsts, low, high - low)
    memory = HostMemory(low, high - low, [one.value for one in members])
    return StoredArray(firsts[0].kind, dtype, ((high - low) // dtype.itemsize,), memory, members, frozen)


def _common_dtype(firsts: list[ArrayRef], low: int, nbytes: int) -> DType:
    dtype = firsts[0].dtype
    item = dtype.itemsize
    fits = all(one.dtype == dtype and (one.address - low) % item == 0 for one in firsts) and nbytes % item == 0
    return dtype if fits else UINT8


def _covered(firsts: list[ArrayRef]) -> int:
    """Count the bytes of the hull that belong to some array (gaps inside strided views are gaps)."""
    covered, reach = 0, 0
    for one in sorted(firsts, key=lambda one: (one.nbytes < one.span, one.address)):
        dense = one.nbytes >= one.span
        fresh = one.address + one.span - max(reach, one.address)
        if dense:
            covered += max(fresh, 0)
            reach = max(reach, one.address + one.span)
        else:
            covered += min(one.nbytes, max(fresh, 0))
    return covered


def _point(stored: StoredArray, index: int) -> None:
    """Make the members' nodes say where they lie in stored array ``index``."""
    base = stored.source if isinstance(stored.source, ArrayRef) else None
    low = min(one.address for one in stored.members)
    numbers: dict[int, int] = {}
    for one in stored.members:
        flags = [one.flags] if one.flags else []
        if base is not None and one.value is base.value:
            one.node[:] = ["a", index, *flags]
            continue
        same = base is not None and _geometry(one) == _geometry(base)
        strides = None if same or one.strides is None else list(one.strides)
        offset = 0 if same else one.address + one.lead - low
        shown = numbers.setdefault(id(one.value), len(numbers))
        one.node[:] = ["v", index, one.kind, one.dtype.name, list(one.shape), strides, offset, one.flags, shown]
