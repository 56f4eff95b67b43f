"""DCP export: a checkpoint as a folder that ``dcp.load`` opens, a stretch of each tensor in memory at a time."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem, WriteItemType

from model_checkpoint.distributed.dcp_keys.saved_items import SavedItems, read_values, saved_items
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.reading.export import Exported, draft_of, free_place
from model_checkpoint.engine.reading.gather_boxes import BoxGather
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.options import MIB
from model_checkpoint.state import Spec
from model_checkpoint.storage.contract.failures import typed_errors
from model_checkpoint.tree.arrays.torch_arrays import adopt, torch_dtype

_WINDOW = 64 * MIB


def export_dcp(
    ref: Reference, target: str | os.PathLike[str], *, per_rank: int | None = None, progress: Listen = None
) -> Exported:
    """Write a checkpoint as a folder of torch.distributed.checkpoint.

    Example:
        >>> import model_checkpoint as mc, tempfile, torch
        >>> _ = mc.save("memory://doc-dcp", {"model": {"w": torch.ones(2)}, "epoch": 3}, step=1)
        >>> export_dcp("memory://doc-dcp", tempfile.mkdtemp() + "/dcp").tensors
        1
    """
    folder = free_place(Path(target))
    store, found = choose_one(ref)
    saved = saved_items(store, found.name, rank=0, world_size=1, per_rank=per_rank)
    saved.require_decided(set(saved.nodes))
    medium = ChunkReader(store, saved.manifest, full=False)
    with (
        draft_of(folder) as draft,
        listening(progress, "exporting") as emit,
        _Stretches.opened(medium, saved, Meter("export", 0, emit)) as planner,
    ):
        writer = FileSystemWriter(draft)
        with typed_errors(str(folder), "could not be written"):
            _write(writer, planner)
            names = sorted(path.name for path in draft.iterdir())
    return Exported(
        files=tuple(str(folder / name) for name in names), tensors=len(saved.tensors), nbytes=planner.nbytes
    )


def _write(writer: FileSystemWriter, planner: _Stretches) -> None:
    """What ``dcp.save`` does on one rank."""
    writer.set_up_storage_writer(True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([plan])
    (plan,) = writer.prepare_global_plan(plans)
    done = writer.write_data(planner.finish_plan(plan), planner)
    done.wait()
    writer.finish(metadata, [done.value()])


class _Stretches(SavePlanner):
    """A planner that reads what is to be written when it is asked for, and no sooner."""

    def __init__(self, medium: ChunkReader, saved: SavedItems, meter: Meter) -> None:
        self._medium, self._saved, self._meter = medium, saved, meter
        self._spans: dict[MetadataIndex, tuple[int, int]] = {}
        self.nbytes = 0

    @classmethod
    @contextmanager
    def opened(cls, medium: ChunkReader, saved: SavedItems, meter: Meter) -> Iterator[_Stretches]:
        """The planner over open and checked files."""
        with medium:
            medium.prepare(saved.manifest.stored_of(sorted({spec.entry for spec in saved.tensors.values()})))
            yield cls(medium, saved, meter)

    def set_up_planner(
        self, state_dict: Any, storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """There is no state but that of the checkpoint."""

    def create_local_plan(self) -> SavePlan:
        """Every tensor in stretches, and every other value."""
        items: list[WriteItem] = []
        for key in self._saved.nodes:
            spec = self._saved.tensors.get(key)
            if spec is None:
                items.append(WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO))
            else:
                items += self._cut(key, spec)
        return SavePlan(items, planner_data=dict(self._saved.paths))

    def _cut(self, key: str, spec: Spec) -> Iterator[WriteItem]:
        dtype, size = torch_dtype(spec.dtype), torch.Size(spec.shape)
        rows, nbytes = (size[0] if size else 1), size.numel() * dtype.itemsize
        self.nbytes += nbytes
        self._meter.expect(nbytes)
        step = max(1, rows * _WINDOW // max(1, nbytes)) if not self._is_view(key) else max(1, rows)
        for first in range(0, max(1, rows), step):
            count = min(step, rows - first)
            sizes = torch.Size((count, *size[1:])) if size else size
            offsets = torch.Size((first, *[0] * (len(size) - 1))) if size else size
            index = MetadataIndex(key, offsets)
            row = nbytes // max(1, rows)
            self._spans[index] = (first * row, (first + count) * row)
            chunk = ChunkStorageMetadata(offsets, sizes)
            yield WriteItem(
                index,
                WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=TensorProperties(dtype=dtype), size=size),
            )

    def _is_view(self, key: str) -> bool:
        node = self._saved.nodes[key]
        return isinstance(node, list) and node[0] == "v"

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """The plan of the only rank is the plan."""
        plans, metadata = create_default_global_save_plan(all_plans)
        metadata.planner_data = dict(self._saved.paths)
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """As it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """Read one stretch, or one value."""
        read = self._read(write_item)
        if isinstance(read, torch.Tensor):
            self._meter.add(read.nbytes)
        return read

    def _read(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        key = write_item.index.fqn
        if write_item.type is WriteItemType.BYTE_IO or self._is_view(key):
            value = read_values(self._medium, self._saved.manifest, {key: self._saved.nodes[key]})[key]
            return value.detach().contiguous() if isinstance(value, torch.Tensor) else _pickled(value)
        spec, planned = self._saved.tensors[key], write_item.tensor_data
        assert planned is not None  # every stretch was planned with it
        if not planned.chunk.sizes.numel():
            return torch.empty(planned.chunk.sizes, dtype=planned.properties.dtype)
        gather, rooms = BoxGather.of_runs(self._saved.manifest, spec.entry, [self._spans[write_item.index]])
        gather.run(self._medium)
        return adopt(rooms[0].data, spec.dtype, tuple(planned.chunk.sizes))


def _pickled(value: Any) -> io.BytesIO:
    data = io.BytesIO()
    torch.save(value, data)
    return data
