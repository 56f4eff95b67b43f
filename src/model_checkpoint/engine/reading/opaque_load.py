"""Opaque load: files that a storage backend wrote are checked against their digests, then given back to it.

Where the files lie in a folder of this machine as they were written, the backend reads them there; from an object
store, and where their names had to be changed, they are laid out in a temporary folder first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TypeVar

from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.reading.chunks.chunk_reader import PlainChunk, read_plain
from model_checkpoint.engine.root.backend_files import BackendFiles, files_of_backend
from model_checkpoint.engine.root.listing import read_any_manifest
from model_checkpoint.errors import ChunkMismatch, WrongReference
from model_checkpoint.format import check_files
from model_checkpoint.manifest import OPAQUE, FileRecord, Manifest
from model_checkpoint.options import ReaderLimits
from model_checkpoint.storage.contract.store import FolderStore, Store
from model_checkpoint.storage.locate import Root, open_store

Loaded = TypeVar("Loaded")


def written_by(store: Store, name: str) -> BackendFiles | None:
    """Which backend wrote a checkpoint; None if the engine itself did."""
    manifest = read_any_manifest(store, name)
    return files_of_backend(manifest, path_of(store, name)) if OPAQUE in manifest.features else None


def load_opaque(root: Root, name: str, read: Callable[[str], Loaded], *, full: bool = True) -> Loaded:
    """Check every file of the checkpoint ``name``, then call ``read`` with the path its backend had written.

    Args:
        root: The folder or URL given to the save.
        name: Of its folder.
        read: Gives the state back.
        full: Whether SHA-256 is compared, and not only xxh3.

    Raises:
        ChunkMismatch: a byte is not what was saved; ``read`` was not called.

    Example:
        >>> from pathlib import Path
        >>> from model_checkpoint.engine.writing.opaque_save import save_opaque
        >>> write = lambda path: Path(path).write_bytes(b"mine")
        >>> info = save_opaque("memory://doc-opaque-load", write, backend="mine", step=3)
        >>> load_opaque("memory://doc-opaque-load", info.prefix, lambda path: Path(path).read_bytes())
        b'mine'
    """
    store = open_store(root)
    manifest, where = read_any_manifest(store, name), path_of(store, name)
    if OPAQUE not in manifest.features:
        raise WrongReference(f"{where}: was written by the engine itself. Load it with mc.load.", where)
    check_files(manifest.extras, where, ReaderLimits())
    with _laid_out(store, manifest, files_of_backend(manifest, where), where, full=full) as path:
        return read(path)


@contextmanager
def _laid_out(store: Store, manifest: Manifest, inside: BackendFiles, where: str, *, full: bool) -> Iterator[str]:
    """Yield the path of the verified files, arranged as they were written."""
    if isinstance(store, FolderStore) and not inside.empty and all(name == path for name, path in inside.paths.items()):
        for record in manifest.extras:
            for chunk in read_plain(store, manifest, record, full=full):
                _require(chunk, record, where)
        yield os.path.join(store.place(manifest.name), inside.file)
        return
    with TemporaryDirectory(prefix="mckpt-") as folder:
        for path in (*inside.paths.values(), *inside.empty):
            os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        for path in inside.empty:
            open(os.path.join(folder, path), "xb").close()
        for record in manifest.extras:
            with open(os.path.join(folder, inside.paths[record.name]), "xb") as copy:
                for chunk in read_plain(store, manifest, record, full=full):
                    _require(chunk, record, where)
                    copy.write(chunk.data)
        yield os.path.join(folder, inside.file)


def _require(chunk: PlainChunk, record: FileRecord, where: str) -> None:
    if not chunk.healthy:
        raise ChunkMismatch(
            f"{where}/{record.name}: chunk {chunk.number} (bytes {chunk.start} to {chunk.start + len(chunk.data)}) "
            "does not have the recorded digest: it was changed or damaged after the save. Load an older one; "
            "`mckpt verify` lists all damage.",
            where,
            file=record.name,
            chunk=chunk.number,
        )
