"""Filling: the tensors a load of DCP asks for, filled with verified bytes, all of them checked before the first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from model_checkpoint.distributed.dcp_keys.saved_items import SavedItems
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.gather_boxes import BoxGather
from model_checkpoint.errors import CheckpointException, PartlyLoaded, StructureMismatch
from model_checkpoint.manifest import HeldRegion, Layout
from model_checkpoint.plan.sharding.holders import HeldBox
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.state import ShardTarget, Spec
from model_checkpoint.tree.arrays.torch_arrays import copy_into, empty, host_bytes, touched


@dataclass(frozen=True, slots=True)
class WantedBox:
    """A box of a saved tensor, and the tensor it goes to."""

    key: str
    box: ArrayBox
    live: torch.Tensor

    def check(self, spec: Spec, *, cast: bool) -> None:
        """Raise if the box does not fit the tensor, or would have to be cast without leave."""
        if tuple(self.live.shape) != self.box.sizes:
            raise StructureMismatch(
                f"{self.key}: the plan of DCP wants {list(self.box.sizes)} of it for a tensor of "
                f"{list(self.live.shape)}, so nobody knows which elements those are. Load with mc.load(..., "
                "coordinator=TorchCoordinator()). Nothing was changed."
            )
        dtype = str(self.live.dtype).removeprefix("torch.")
        if dtype != spec.dtype and not cast:
            raise StructureMismatch(
                f"{self.key}: saved as {spec.dtype}, but the tensor to fill is {dtype}. Pass StorageReader(..., "
                "cast=True) to convert it, or make the tensor of the saved dtype. Nothing was changed."
            )


class TensorFilling:
    """Every box of one load, each with the memory its bytes are gathered in: the tensor's own where that can be."""

    def __init__(self, saved: SavedItems, wanted: Iterable[WantedBox], *, subchunks: bool) -> None:
        self._saved = saved
        self._staged: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._filled: list[torch.Tensor] = []
        self._keys: dict[int, str] = {}
        by_entry: dict[int, list[tuple[ArrayBox, memoryview]]] = {}
        for one in wanted:
            if one.box.elements:
                number = saved.tensors[one.key].entry
                self._keys[number] = one.key
                by_entry.setdefault(number, []).append((one.box, self._memory(one, saved.tensors[one.key])))
        self.entries = sorted(by_entry)
        targets = {number: _target(boxes) for number, boxes in by_entry.items()}
        self._gather = BoxGather(saved.manifest, targets, _asked, subchunks=subchunks)

    def _memory(self, one: WantedBox, spec: Spec) -> memoryview:
        live = one.live
        if live.is_cpu and live.is_contiguous() and str(live.dtype) == f"torch.{spec.dtype}":
            self._filled.append(live)
            return host_bytes(live)
        room = empty(spec.dtype, one.box.sizes)
        self._staged.append((live, room))
        return host_bytes(room)

    def run(self, medium: ChunkReader) -> None:
        """Fill the tensors; raise, and name them, if some had begun to change when something was found damaged."""
        try:
            self._gather.run(medium)
        except CheckpointException as error:
            changed = sorted(self._keys[number] for number in self._gather.touched) if self._filled else []
            if not changed:
                raise
            raise PartlyLoaded(
                f"{medium.where}: the load stopped midway: {str(error).rstrip('.')}. Partly replaced: "
                f"{', '.join(changed[:8])}; all else is untouched. Load a healthy checkpoint into the same tensors.",
                medium.where,
                partial=changed,
                inner_exception=error,
            ) from error
        finally:
            if self._filled:
                touched(self._filled)
        for live, room in self._staged:
            copy_into(live, room)


def _target(boxes: Sequence[tuple[ArrayBox, memoryview]]) -> ShardTarget:
    regions = tuple(HeldRegion(box.offsets, box.sizes, ()) for box, _ in boxes)
    shapes, buffers = [box.sizes for box, _ in boxes], [memory for _, memory in boxes]
    return ShardTarget(Layout(regions=regions), shapes, buffers, live=True)


def _asked(shape: tuple[int, ...], layout: Layout) -> Sequence[HeldBox]:
    boxes = [ArrayBox(region.offsets, region.sizes) for region in layout.regions]
    return [HeldBox(box, (0,) * len(shape), part) for part, box in enumerate(boxes)]
