"""Folder storage: bytes in files under a folder; what the provider ``local`` is.

Checkpoints in it are kept by the engine's own store of that folder, which writes in slabs and maps; the seven calls are
for whatever else belongs beside them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from model_checkpoint.distributed.storing.storage_contract import StorageMetadata
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.local.store import LocalStore

_DRAFT = ".draft-"


class FolderStorage:
    """A folder; see :class:`CheckpointStorage`.

    Example:
        >>> import tempfile
        >>> storage = FolderStorage(tempfile.mkdtemp())
        >>> storage.write("notes/first.txt", b"all is well")
        >>> storage.read("notes/first.txt"), storage.create("notes/first.txt", b"again"), list(storage.list("notes/"))
        (b'all is well', False, ['notes/first.txt'])
    """

    def __init__(self, base_path: str | os.PathLike[str]) -> None:
        self.store = LocalStore(os.path.expanduser(os.fspath(base_path)))

    @property
    def url(self) -> str:
        """The absolute path of the folder."""
        return self.store.url

    def write(self, path: str, data: bytes) -> None:
        """Keep all of ``data``, durably, in place of what was there."""
        target = self._place(path)
        draft = self._draft(target, data)
        os.replace(draft, target)
        _flush_folder(os.path.dirname(target))

    def create(self, path: str, data: bytes) -> bool:
        """Keep ``data`` only if there is nothing."""
        target = self._place(path)
        draft = self._draft(target, data)
        try:
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        _flush_folder(os.path.dirname(target))
        return True

    def _draft(self, target: str, data: bytes) -> str:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise OptionInvalid(f"{target}: expected bytes, got {type(data).__qualname__}. Nothing was written.")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        draft = os.path.join(os.path.dirname(target), f"{_DRAFT}{secrets.token_hex(8)}")
        try:
            with open(draft, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft)
            raise
        return draft

    def read(self, path: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes ``[start, stop)``."""
        with open(self._place(path), "rb") as file:
            file.seek(start)
            return file.read(-1 if stop is None else max(0, stop - start))

    def exists(self, path: str) -> bool:
        """Whether there is a file."""
        return os.path.isfile(self._place(path))

    def delete(self, path: str) -> None:
        """Remove a file."""
        with suppress(FileNotFoundError):
            os.unlink(self._place(path))

    def list(self, prefix: str) -> Iterator[str]:
        """Every path that begins with ``prefix``."""
        for folder, _, files in os.walk(self.url):
            for file in files:
                path = os.path.relpath(os.path.join(folder, file), self.url).replace(os.sep, "/")
                if path.startswith(prefix) and not file.startswith(_DRAFT):
                    yield path

    def get_metadata(self, path: str) -> StorageMetadata:
        """Size and time of a file."""
        found = os.stat(self._place(path))
        return StorageMetadata(size=found.st_size, last_modified=datetime.fromtimestamp(found.st_mtime, UTC))

    def _place(self, path: str) -> str:
        parts = path.split("/") if isinstance(path, str) else [""]
        if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts):
            raise OptionInvalid(
                f"{self.url}: {path!r} is no path within the storage, expected names joined by '/'. Nothing was done."
            )
        return os.path.join(self.url, *parts)


def _flush_folder(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
