"""Lost manifest: one that cannot be used is found again: beside the parity, or in a second store.

Whatever is found must speak of files that lie in the folder, by the ids in their names: a manifest of another state
under the same name is never taken for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunks.parity_files import ParityFiles
from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import decode_summary
from model_checkpoint.storage.contract.store import Store


def find_manifest(store: Store, name: str, second: Store | None) -> bytes | None:
    """The manifest that ``name`` had, byte for byte; None if nothing gives it back."""
    present = store.files(name).keys()
    for candidate in _candidates(store, name, second):
        try:
            summary = decode_summary(candidate, path_of(store, name))
        except CheckpointException:
            continue
        ours = [file for file in summary.file_names if summary.attempt in file and not file.endswith(".parity")]
        if any(file in present for file in ours or summary.parity_files):
            return candidate
    return None


def _candidates(store: Store, name: str, second: Store | None) -> Iterator[bytes]:
    for file in sorted(store.files(name)):
        if file.endswith(".parity"):
            with ParityFiles(store, name, [file], path_of(store, name)) as parity:
                if parity.manifest is not None:
                    yield parity.manifest
    if second is not None:
        try:
            yield second.read_manifest(name)
        except CheckpointException:
            return  # the second store does not have it, or not now


def put_manifest(store: Store, name: str, manifest: bytes, *, damaged: bytes) -> bool:
    """Put a manifest in the place of the damaged one; False if that was replaced or deleted meanwhile."""
    mending = store.mend(name, uuid.uuid4().hex)
    try:
        return mending.finish(over=damaged, manifest=manifest)
    finally:
        mending.abort()
