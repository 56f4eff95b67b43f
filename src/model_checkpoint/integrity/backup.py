"""Backup: a second copy of a checkpoint, each byte compared with its digest on the way."""

from __future__ import annotations

import hashlib
import os

from model_checkpoint.database.records import Checkpoint
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.repairing.mirror import copy_checkpoint
from model_checkpoint.errors import CorruptedCheckpoint
from model_checkpoint.integrity.checksums import FileChecksum, FileMissing
from model_checkpoint.options import MIB
from model_checkpoint.performance.atomic_file import atomic_write
from model_checkpoint.storage import open_store
from model_checkpoint.storage.locate import Root


def back_up_folder(record: Checkpoint, target: Root) -> str:
    """Copy a checkpoint of a root to another root; return where the copy lies."""
    store = open_store(target)
    copy_checkpoint(open_store(record.root), record.name, store)
    return path_of(store, record.name)


def back_up_file(record: Checkpoint, folder: str, expected: FileChecksum | None) -> str:
    """Copy a bare file into a folder; return where the copy lies."""
    source = record.file_path
    if expected is None:
        raise CorruptedCheckpoint(f"{source}: no checksum was recorded, so a copy of it would prove nothing.", source)
    target = os.path.join(os.path.abspath(folder), os.path.basename(source))
    try:
        with open(source, "rb") as file, atomic_write(target) as copy:
            digest = hashlib.new(expected.algorithm)
            while data := file.read(4 * MIB):
                digest.update(data)
                copy.write(data)
            if (copy.size, digest.hexdigest()) != (expected.size, expected.checksum.lower()):
                raise CorruptedCheckpoint(
                    f"{source}: does not have the recorded size and checksum, so it was not copied. Verify it first.",
                    source,
                )
    except FileNotFoundError as error:
        raise FileMissing(f"{source}: no such file, so it cannot be copied.", source) from error
    return target
