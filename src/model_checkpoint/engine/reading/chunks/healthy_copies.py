"""Healthy copies: what one verification has read and found whole, so that what checkpoints share is read once.

A file that is repeated by link is one copy on the medium. Its header is still compared with each manifest; its bytes
tell nothing new. Damage is not remembered: it is looked at again, and told for each checkpoint that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import FileRecord, Manifest
from model_checkpoint.storage.contract.store import FileStat, Store

Copy = tuple[Any, ...]  # a copy of a store, and the digests it was compared with


class HealthyCopies:
    """The copies with more than one name that were found whole.

    Example:
        >>> copies = HealthyCopies()
        >>> copies.spared
        0
    """

    def __init__(self) -> None:
        self._whole: set[Copy] = set()
        self.spared = 0  # bytes that were not read again

    def shared_by(self, store: Store, manifest: Manifest) -> dict[str, Copy]:
        """The files of a checkpoint that have other names too, and which copy each is."""
        try:
            stamps = store.stamps(manifest.name)
        except CheckpointException:  # whoever reads the files finds out, and tells
            return {}
        found = ((record, stamps.get(record.name)) for record in manifest.files)
        return {one.name: _copy(store, one, stamp) for one, stamp in found if stamp is not None and stamp.links > 1}

    def knows(self, copy: Copy | None) -> bool:
        """Whether it was found whole."""
        return copy in self._whole

    def spare(self, record: FileRecord) -> int:
        """Count the bytes of a file that are not read again, all but its header, and return how many."""
        self.spared += (nbytes := record.raw_size - record.ends[0])
        return nbytes

    def learn(self, store: Store, manifest: Manifest, found: Mapping[str, Copy]) -> None:
        """Remember what was found whole, unless another copy took its place while it was read."""
        now = self.shared_by(store, manifest) if found else {}
        self._whole.update(copy for name, copy in found.items() if now.get(name) == copy)


def _copy(store: Store, record: FileRecord, stamp: FileStat) -> Copy:
    return store.url, stamp.identity, stamp.size, record.ends, record.sha256, record.frames
