"""DCP rows: a load plan that asks DCP for some rows of one tensor, as a resharding load does."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem


class RowsPlanner(DefaultLoadPlanner):
    """Reads ``rows`` of the tensor ``fqn`` into ``found``."""

    def __init__(self, fqn: str, rows: slice) -> None:
        super().__init__()
        self._fqn, self._rows = fqn, rows
        self.found = torch.empty(0)

    def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        saved = metadata.state_dict_metadata[self._fqn]
        count = self._rows.stop - self._rows.start
        self.found = torch.empty((count, *saved.size[1:]), dtype=saved.properties.dtype)

    def create_local_plan(self) -> LoadPlan:
        rank = self.found.dim()
        index = MetadataIndex(self._fqn, torch.Size([0] * rank), 0)
        item = ReadItem(
            type=LoadItemType.TENSOR,
            dest_index=index,
            dest_offsets=torch.Size([0] * rank),
            storage_index=index,
            storage_offsets=torch.Size([self._rows.start, *[0] * (rank - 1)]),
            lengths=self.found.shape,
        )
        return LoadPlan([item])

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        return self.found

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """The rows are in place already."""
