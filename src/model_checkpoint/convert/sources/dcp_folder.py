"""DCP folder: a checkpoint of torch.distributed.checkpoint as one state, its tensors over the bytes of its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.dcp_metadata import StoragePlace, read_metadata
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.convert.sources.mapped_file import MappedFile
from model_checkpoint.convert.sources.torch_archive import archived_tensor, archived_value
from model_checkpoint.convert.sources.torch_file import read_torch
from model_checkpoint.distributed.dcp_keys.key_paths import nested, path_of_key
from model_checkpoint.distributed.dcp_keys.saved_items import FLAT_KEYS
from model_checkpoint.plan import trainer_step
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.plan.sharding.tiling import tiles
from model_checkpoint.storage.contract.names import is_name
from model_checkpoint.tree.arrays.shards.marker import Shard, ShardParts

_META = "meta.pt"  # what Lightning puts beside the tensors of a sharded checkpoint


def read_dcp(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The state in a checkpoint of DCP, nested as it was saved; nothing in its files is run.

    A tensor of several chunks stands there as :class:`~model_checkpoint.tree.arrays.shards.marker.ShardParts`, which a
    save takes as one array; all tensors lie in the files until they are copied.

    Example:
        >>> import tempfile, warnings, torch, torch.distributed.checkpoint as dcp
        >>> folder = tempfile.mkdtemp()
        >>> with warnings.catch_warnings(action="ignore"):  # DCP warns that there is no process group
        ...     _ = dcp.save({"model": {"w": torch.ones(2)}, "epoch": 3}, checkpoint_id=folder)
        >>> read_dcp(folder)
        {'epoch': 3, 'model': {'w': tensor([1., 1.])}}
    """
    opened = _OpenFolder(Path(folder))
    metadata = opened.metadata
    paths = metadata.planner_data if isinstance(metadata.planner_data, Mapping) else None
    keys = sorted(metadata.state_dict_metadata)
    return nested((path_of_key(key, paths), opened.value(key)) for key in keys)


def import_dcp(folder: str | os.PathLike[str]) -> Imported:
    """A folder as a checkpoint; the step is the one its name tells, if it tells one."""
    path = Path(folder)
    state = read_dcp(path)
    if (path / _META).is_file():
        state[_META.removesuffix(".pt")] = read_torch(path / _META)
    metadata = read_metadata(path)
    flat = metadata.planner_data is None
    return Imported(state=state, step=trainer_step(path.name), metadata={FLAT_KEYS: True} if flat else {})


class _OpenFolder:
    """The files of one checkpoint, each mapped once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.metadata: Metadata = read_metadata(folder)
        self._files: dict[str, MappedFile] = {}

    def value(self, key: str) -> Any:
        """What lies under a key."""
        record = self.metadata.state_dict_metadata[key]
        if not isinstance(record, TensorStorageMetadata):
            return archived_value(*self._stretch(key, MetadataIndex(key)))
        shape = tuple(record.size)
        boxes = [ArrayBox(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in record.chunks]
        if not tiles(shape, [box for box in boxes if box.elements]):
            raise self._broken(f"the chunks of {key!r} do not make up a tensor of shape {list(shape)}")
        parts = []
        for box in boxes:
            found = archived_tensor(*self._stretch(key, MetadataIndex(key, box.offsets)))
            if tuple(found.shape) != box.sizes or found.dtype != record.properties.dtype:
                raise self._broken(f"the chunk of {key!r} at {list(box.offsets)} is another than its metadata says")
            parts.append(Shard(found, global_shape=shape, offsets=box.offsets))
        if len(parts) == 1:
            return parts[0].array
        return ShardParts(parts, global_shape=shape, like=parts[0].array)

    def _stretch(self, key: str, index: MetadataIndex) -> tuple[MappedFile, int, int]:
        place: StoragePlace | None = (self.metadata.storage_data or {}).get(index)
        if place is None:
            raise self._broken(f"{key!r} is told of, but nowhere to be found")
        if not is_name(place.relative_path):
            raise self._broken(f"{key!r} is said to lie in {place.relative_path!r}, which is no file of the folder")
        if getattr(place, "transform_descriptors", None):
            raise self._broken(f"{key!r} was changed by an extension of DCP on its way, {place.transform_descriptors}")
        if place.relative_path not in self._files:
            self._files[place.relative_path] = MappedFile(self._folder / place.relative_path)
        return self._files[place.relative_path], place.offset, place.offset + place.length

    def _broken(self, what: str) -> SourceUnreadable:
        return SourceUnreadable(f"{self._folder}: {what}. The checkpoint is not whole, or forged.", str(self._folder))
