"""Storage writer: what ``dcp.save`` and ``dcp.async_save`` write with, so that they save through our format.

DCP plans; when every rank writes, the ranks save together through the engine: one stage, one commit, every byte hashed.
By the time DCP collects what was written, the checkpoint is in place and durable, or every rank has the same error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from torch.distributed.checkpoint import storage as dcp_storage
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from model_checkpoint.coordination import PATIENCE, Coordinator
from model_checkpoint.distributed.coordinators.local import LocalCoordinator
from model_checkpoint.distributed.dcp_keys.key_paths import nested
from model_checkpoint.distributed.dcp_keys.saved_items import FLAT_KEYS
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.writing.save import Overwrite, save
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.dcp.checkpoint_ids import named_place
from model_checkpoint.integrations.dcp.key_pool import pool_keys
from model_checkpoint.integrations.dcp.plan_items import HeldItems, held_items
from model_checkpoint.integrations.dcp.plug_ranks import default_group, ranks_of
from model_checkpoint.options import CompressionLevel
from model_checkpoint.performance.gc_pause import collector_paused
from model_checkpoint.storage.locate import Root, open_store


class StorageWriter(dcp_storage.StorageWriter):
    """Saves what DCP plans as an ordinary checkpoint of ``root``: durable, verified, resharding.

    Args:
        root: Where checkpoints go, as in :func:`model_checkpoint.save`; a store, such as ``LocalStore(root,
            direct=False)``, for writers that stay in this process. ``checkpoint_id="runs/a/step-100"`` of ``dcp.save``
            names root and checkpoint instead, and the step if the name tells one.
        step: Training step of the checkpoint.
        name: Folder name, instead of one made from the step.
        metrics: Numbers to choose by later; the same on every rank.
        metadata: Plain data to keep beside the state; the same on every rank.
        overwrite: Replace a checkpoint of that name.
        compression: How hard to compress the files, without loss.
        process_group: The group that ``dcp.save`` is called with, if it is called with one.
        patience: Seconds without any sign of a rank after which the others give it up.

    Example:
        >>> import tempfile, warnings, torch, torch.distributed.checkpoint as dcp, model_checkpoint as mc
        >>> from model_checkpoint.integrations.dcp import StorageWriter
        >>> root = tempfile.mkdtemp()
        >>> with warnings.catch_warnings(action="ignore"):  # DCP warns that there is no process group
        ...     _ = dcp.save({"model": {"w": torch.ones(2)}, "epoch": 3}, storage_writer=StorageWriter(root, step=5))
        >>> mc.load(root)
        {'model': {'w': tensor([1., 1.])}, 'epoch': 3}
    """

    def __init__(
        self,
        root: Root,
        *,
        step: int | None = None,
        name: str | None = None,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        overwrite: Overwrite = False,
        compression: CompressionLevel = CompressionLevel.NONE,
        process_group: Any = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__()
        self._store = None if isinstance(root, (str, os.PathLike)) else open_store(root)
        self.root = os.fspath(root) if isinstance(root, (str, os.PathLike)) else open_store(root).url
        self.step, self.name = step, name
        self._metrics, self._metadata = dict(metrics or {}), dict(metadata or {})
        self._overwrite, self._compression = overwrite, compression
        self._group, self._patience = process_group, patience
        self.info: CheckpointInfo | None = None  # of the checkpoint this rank has saved last
        self._begin()

    def _begin(self) -> None:
        self._leads, self._rank, self._collective, self._plans = False, 0, True, 0
        self._local: SavePlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the process group, which the process of an ``async_save`` has one of its own for."""
        if self._store is not None:
            raise OptionInvalid(
                f"{self.root}: a store cannot go to the process of an async_save. Give StorageWriter the path or URL, "
                "or save in a thread."
            )
        return {**self.__dict__, "_group": None}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Take a new checkpoint in hand; ``checkpoint_id`` names it."""
        self._begin()
        if checkpoint_id is not None:
            place = named_place(checkpoint_id)
            if self._store is not None and self._store.url not in (place.root, os.path.abspath(place.root)):
                self._store = None
            self.root, self.name = place.root, place.name
            self.step = place.step if place.step is not None else self.step

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Hear which rank this is; DCP looks for the very name ``kwargs``."""
        self._begin()
        self._leads, self._rank = is_coordinator, int(kwargs.get("rank") or 0)
        self._collective = bool(kwargs.get("use_collectives", True))

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Remember what this rank proposed; nothing of ours goes into a plan, since DCP may bring old ones back."""
        self._local = plan if plan.usable else None
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Count the ranks that save; what is refused here, DCP tells all of them."""
        self._plans = len(plans)
        self._ranks()
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Save together with all ranks; the checkpoint is in place when this returns."""
        ranks = self._ranks()
        if ranks is None:
            held = held_items(plan, self._local, planner)
            split = {fqn: one.whole(fqn) for fqn, one in held.split.items()}
        else:
            held, pooled = pool_keys(ranks, lambda: held_items(plan, self._local, planner))
            split = {fqn: one.marked() for fqn, one in pooled.items()}
            held = HeldItems(pooled, held.plain, held.flat)
        self.info = save(
            self.root if self._store is None else self._store,
            _state(held, split),
            step=self.step,
            name=self.name,
            metrics=self._metrics,
            metadata={**self._metadata, FLAT_KEYS: True} if held.flat else self._metadata,
            overwrite=self._overwrite,
            compression=self._compression,
            coordinator=ranks or LocalCoordinator(),
        )
        done: Future[list[WriteResult]] = Future()
        with collector_paused():
            done.set_result([WriteResult(item.index, _size(item), self.info.path) for item in plan.items])
        return done

    def _ranks(self) -> Coordinator | None:
        """Who saves together; None for a process that saves alone."""
        group = default_group(self._group)
        if group is None or group.size() == 1:
            return None
        if self._leads and self._collective and self._plans == 1:
            return None  # no_dist=True: each rank takes itself for the only one
        if self._rank != group.rank() or (self._leads and self._collective and self._plans != group.size()):
            raise OptionInvalid(
                f"{self.root}: dcp.save runs on a process group of {self._plans or 'other'} ranks, this writer on one "
                f"of {group.size()}. Pass StorageWriter(..., process_group=) the group that dcp.save gets."
            )
        return ranks_of(group, self._patience)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing is left to do: the checkpoint was in place before DCP asked who had written what."""
        metadata.storage_meta = self.storage_meta()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether a checkpoint can have this id."""
        try:
            named_place(checkpoint_id)
        except OptionInvalid:
            return False
        return True

    def storage_meta(self) -> StorageMeta:
        """What a planner is told of the place; the same for every save to one root."""
        return StorageMeta(checkpoint_id=self.root)


def _state(held: HeldItems, split: Mapping[str, Any]) -> dict[str, Any]:
    """The state of this rank, nested as the program has it; what it has whole it does not have in parts."""
    items = [(held.split[fqn].path, value) for fqn, value in split.items() if fqn not in held.plain]
    return nested([*items, *held.plain.values()])


def _size(item: WriteItem) -> int:
    planned = item.tensor_data
    return planned.chunk.sizes.numel() * planned.properties.dtype.itemsize if planned else 0
