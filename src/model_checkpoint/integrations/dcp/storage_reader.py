"""Storage reader: what ``dcp.load`` reads with: any checkpoint of ours, onto any ranks, every chunk verified."""

from __future__ import annotations

import io
import os
from typing import Any

import torch
from torch.distributed.checkpoint import storage as dcp_storage
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from model_checkpoint.distributed.dcp_keys.saved_items import SavedItems, read_values, saved_items
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.errors import CheckpointException, OptionInvalid, WrongReference
from model_checkpoint.integrations.dcp.checkpoint_ids import named_place
from model_checkpoint.integrations.dcp.filling import TensorFilling, WantedBox
from model_checkpoint.integrations.dcp.plug_ranks import default_group
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.locate import open_store


class StorageReader(dcp_storage.StorageReader):
    """Loads a checkpoint of ours into what ``dcp.load`` is given.

    Args:
        root: A root (its newest checkpoint) or a reference, as in :func:`model_checkpoint.load`. ``checkpoint_id=`` of
            ``dcp.load`` names a checkpoint instead, by what ``dcp.save`` was given or by any reference.
        step: A training step; ``id``, ``best`` and ``name`` choose as in :func:`model_checkpoint.load`.
        id: A checkpoint id, or the beginning of one.
        best: A metric.
        name: A folder name.
        per_rank: The rank of the save whose values to take where ranks had values of their own.
        cast: Let tensors keep their dtype where another was saved.
        verify: ``"fast"`` (xxh3 of every chunk touched) or ``"full"`` (SHA-256 too).
        process_group: The group that ``dcp.load`` is called with, if it is called with one.

    Example:
        >>> import tempfile, warnings, torch, torch.distributed.checkpoint as dcp, model_checkpoint as mc
        >>> from model_checkpoint.integrations.dcp import StorageReader
        >>> root = tempfile.mkdtemp()
        >>> _ = mc.save(root, {"model": {"w": torch.ones(2)}, "epoch": 3}, step=5)
        >>> state = {"model": {"w": torch.zeros(2)}, "epoch": 0}
        >>> with warnings.catch_warnings(action="ignore"):  # DCP warns that there is no process group
        ...     dcp.load(state, storage_reader=StorageReader(root, step=5))
        >>> state
        {'model': {'w': tensor([1., 1.])}, 'epoch': 3}
    """

    def __init__(
        self,
        root: Reference,
        *,
        step: int | None = None,
        id: str | None = None,  # the name users know
        best: str | None = None,
        name: str | None = None,
        per_rank: int | None = None,
        cast: bool = False,
        verify: str = "fast",
        process_group: Any = None,
    ) -> None:
        super().__init__()
        if verify not in ("fast", "full"):
            raise OptionInvalid(f'verify={verify!r}: expected "fast" or "full"; what is loaded is always verified.')
        self._root: Reference = root
        self._choice: dict[str, Any] = {"step": step, "id": id, "best": best, "name": name}
        self._per_rank, self._cast, self._full, self._group = per_rank, cast, verify == "full", process_group
        self._store: Store | None = None
        self._saved: SavedItems | None = None
        self._error: CheckpointException | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Take a checkpoint in hand; ``checkpoint_id`` names it."""
        self._saved = self._error = None
        if checkpoint_id is None:
            return
        place = named_place(checkpoint_id)
        if open_store(place.root).has(place.name):
            self._root, self._choice = place.root, {"name": place.name}
        else:
            self._root, self._choice = checkpoint_id, {}

    @collector_paused()
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Tell what the checkpoint holds.

        DCP takes any error here for metadata that is kept elsewhere, so one is told when the reader is set up.
        """
        group = default_group(self._group)
        rank, world = (0, 1) if group is None else (group.rank(), group.size())
        try:
            self._store, found = choose_one(self._root, **self._choice)
            self._saved = saved_items(self._store, found.name, rank=rank, world_size=world, per_rank=self._per_rank)
        except CheckpointException as error:
            self._error = error
            return Metadata({})
        return self._saved.metadata(str(self._root))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Raise what went wrong before, where DCP passes it on."""
        if self._error is not None:
            raise self._error

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Check that all that is asked for can be told, and say which checkpoint this rank reads."""
        saved = self._opened()
        saved.require_decided({item.storage_index.fqn for item in plan.items})
        plan.storage_data = saved.manifest.attempt
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Refuse to load if ranks have chosen different checkpoints."""
        chosen = {plan.storage_data for plan in plans if plan.storage_data is not None}
        if len(chosen) > 1:
            raise WrongReference(
                f"{self._root}: a checkpoint came while the ranks were choosing the newest one, and they chose "
                "different ones. Load again, or name the step: StorageReader(..., step=). Nothing was changed."
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what the plan asks for; everything is checked before the first tensor changes."""
        saved = self._opened()
        assert self._store is not None  # opened with what it holds
        with collector_paused():
            asked = [item for item in plan.items if item.type is not LoadItemType.BYTE_IO]
            boxes = [(item, self._wanted(item, planner, saved)) for item in asked]
        views = {one.key for _, one in boxes if _is_view(saved, one.key)}
        keys = {item.storage_index.fqn for item in plan.items if item.type is LoadItemType.BYTE_IO} | views
        with ChunkReader(self._store, saved.manifest, full=self._full) as medium:
            wanted = [one for _, one in boxes if one.key not in views]
            with collector_paused():
                filling = TensorFilling(saved, wanted, subchunks=not self._full)
                medium.prepare(saved.manifest.stored_of(filling.entries))
            values = read_values(medium, saved.manifest, {key: saved.nodes[key] for key in sorted(keys)})
            filling.run(medium)
        for item, one in boxes:
            if one.key in views:
                one.live.copy_(values[one.key][one.box.slices()])
            planner.commit_tensor(item, one.live)
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, _pickled(values[item.storage_index.fqn]))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _opened(self) -> SavedItems:
        if self._saved is None:
            raise OptionInvalid(f"{self._root}: read_metadata comes first, as dcp.load calls it.")
        return self._saved

    def _wanted(self, item: ReadItem, planner: LoadPlanner, saved: SavedItems) -> WantedBox:
        key = item.storage_index.fqn
        start = item.storage_index.offset or (0,) * len(item.lengths)
        offsets = tuple(a + b for a, b in zip(start, item.storage_offsets, strict=True))
        one = WantedBox(key, ArrayBox(offsets, tuple(item.lengths)), planner.resolve_tensor(item).detach())
        one.check(saved.tensors[key], cast=self._cast)
        return one

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether a checkpoint can have this id."""
        return bool(os.fspath(checkpoint_id))


def _is_view(saved: SavedItems, key: str) -> bool:
    """Whether a tensor lies in memory that it shares with others, in its own order."""
    node = saved.nodes[key]
    return isinstance(node, list) and node[0] == "v"


def _pickled(value: Any) -> io.BytesIO:
    """A value as planners of DCP take it; made here and now, of what was verified."""
    data = io.BytesIO()
    torch.save(value, data)
    data.seek(0)
    return data
