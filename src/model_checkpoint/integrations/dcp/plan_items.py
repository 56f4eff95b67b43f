"""Plan items: what the items of a DCP plan hold: parts of tensors, whole tensors, plain values."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_local_save_plan
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType

from model_checkpoint.distributed.dcp_keys.key_paths import KeyPath, path_of_key
from model_checkpoint.errors import OptionInvalid, StructureMismatch
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.tiling import tiles
from model_checkpoint.tree.arrays.shards.marker import Shard, ShardParts


@dataclass(frozen=True, slots=True)
class SplitTensor:
    """A tensor that lies on many ranks, and the parts of it that this one is to write."""

    path: KeyPath
    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: Sequence[Shard]

    def marked(self) -> Any:
        """What stands for it in the state of this rank."""
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=self.dtype)
        like = self.parts[0].array if self.parts else torch.empty((0,), dtype=self.dtype)
        return ShardParts(self.parts, global_shape=self.shape, like=like)

    def whole(self, key: str) -> Any:
        """What it is for a process that saves alone, which must have all of it."""
        boxes = [ArrayBox(part.offsets, tuple(part.array.shape)) for part in self.parts]
        if not tiles(self.shape, [box for box in boxes if box.elements]):
            raise StructureMismatch(
                f"{key}: this process has {[(list(box.offsets), list(box.sizes)) for box in boxes[:4]]} of a tensor of "
                f"shape {list(self.shape)}, and with no_dist=True, or without a process group, nobody else writes the "
                "rest. Call dcp.save on every rank without no_dist=True. Nothing was saved."
            )
        return self.parts[0].array if len(self.parts) == 1 else self.marked()


@dataclass(frozen=True, slots=True)
class HeldItems:
    """All that one rank is to write, by key."""

    split: Mapping[str, SplitTensor]
    plain: Mapping[str, tuple[KeyPath, Any]]  # tensors that are no part of another, and values; ranks compare them
    flat: bool  # the keys are not paths: the planner did not take the state apart


@collector_paused()
@torch.no_grad()  # with a gradient to record, taking the part of a DTensor costs many times as much
def held_items(plan: SavePlan, local: SavePlan | None, planner: SavePlanner) -> HeldItems:
    """Ask the planner for what this rank writes, and for all plain values that it has: others may have other ones.

    ``plan`` is the final one, from which what several ranks have is struck on all but one of them; ``local`` what this
    rank proposed, None where DCP took it from its cache.
    """
    paths = plan.planner_data if isinstance(plan.planner_data, Mapping) else None
    split: dict[str, list[WriteItem]] = {}
    plain: dict[str, tuple[KeyPath, Any]] = {}
    for item in (*plan.items, *_proposed(local, planner)):
        fqn = item.index.fqn
        if item.type is WriteItemType.SHARD:
            split.setdefault(fqn, []).append(item)
        elif fqn not in plain:
            plain[fqn] = (path_of_key(fqn, paths), _value(item, planner))
    made = {fqn: _split_tensor(path_of_key(fqn, paths), items, planner) for fqn, items in split.items()}
    return HeldItems(made, plain, paths is None)


def _proposed(local: SavePlan | None, planner: SavePlanner) -> Iterable[WriteItem]:
    """The items of whole tensors and values as this rank has them."""
    if local is None:
        if not isinstance(planner, DefaultSavePlanner):
            raise OptionInvalid(
                f"{type(planner).__qualname__}: sends an empty plan, as a cache of plans does, and is no "
                "DefaultSavePlanner, so nobody can tell what plain values this rank has. Send the plan each time."
            )
        local = create_default_local_save_plan(planner.state_dict, False)
    return [item for item in local.items if item.type is not WriteItemType.SHARD]


def _value(item: WriteItem, planner: SavePlanner) -> Any:
    """A whole tensor, or a value: as it is, where the planner would but pickle it."""
    if item.type is WriteItemType.TENSOR:
        return _tensor(item, planner)
    as_usual = isinstance(planner, DefaultSavePlanner) and all(
        getattr(type(planner), name) is getattr(DefaultSavePlanner, name)
        for name in ("resolve_data", "transform_object")
    )
    if as_usual and isinstance(planner, DefaultSavePlanner):
        return planner.lookup_object(item.index)
    data = planner.resolve_data(item)
    if not isinstance(data, io.BytesIO):
        raise StructureMismatch(f"{item.index.fqn}: the planner gives {type(data).__qualname__}, expected a BytesIO.")
    data.seek(0)
    return torch.load(data, weights_only=False)  # made a moment ago, by the planner of this very process


def _tensor(item: WriteItem, planner: SavePlanner) -> torch.Tensor:
    found = planner.resolve_data(item)
    planned = item.tensor_data
    if not isinstance(found, torch.Tensor) or planned is None or tuple(found.shape) != tuple(planned.chunk.sizes):
        has = list(found.shape) if isinstance(found, torch.Tensor) else type(found).__qualname__
        wanted = list(planned.chunk.sizes) if planned is not None else "a tensor"
        raise StructureMismatch(
            f"{item.index.fqn}: the plan of DCP says that this rank has {wanted} of it, but it has {has}, so nobody "
            "knows which elements those are (FSDP2 over tensor parallelism with sizes that do not divide is planned "
            "so). Save with mc.save(..., coordinator=TorchCoordinator()), which asks all ranks. Nothing was saved."
        )
    return found.detach()


def _split_tensor(path: KeyPath, items: Sequence[WriteItem], planner: SavePlanner) -> SplitTensor:
    parts: list[Shard] = []
    for item in items:
        assert item.tensor_data is not None  # a shard without would have been refused by the planner
        array = _tensor(item, planner)
        if array.numel():
            parts.append(
                Shard(array, global_shape=item.tensor_data.size, offsets=tuple(item.tensor_data.chunk.offsets))
            )
        dtype = array.dtype
    first = items[0].tensor_data
    assert first is not None
    return SplitTensor(path, dtype, tuple(first.size), parts)
