"""Spill files: bytes put away in private scratch files, and checked against their digest when they come back.

A folder is made for one user of it, readable by this user only, and goes when nobody holds it or the process ends; a
file goes with its object. Only the process that made a folder or a file deletes it: a forked child has the objects too,
but not the right. Files are scratch, so nothing is flushed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import xxhash

from model_checkpoint.errors import StorageFailure
from model_checkpoint.recompute.errors import SpillDamaged


class SpillFolder:
    """A private folder for spill files.

    Args:
        parent: where it is made; the system's temporary folder when None.

    Raises:
        StorageFailure: it cannot be made.

    Example:
        >>> folder = SpillFolder()
        >>> file = folder.new_file("layer-1")
        >>> extent = file.reserve(3)
        >>> file.write(extent, memoryview(b"abc"))
        >>> back = bytearray(3)
        >>> file.read(extent, memoryview(back))
        >>> bytes(back)
        b'abc'
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        place = str(parent or tempfile.gettempdir())
        with _typed(place, f"{place}: a spill folder cannot be made in it", advice="Give another folder."):
            if parent is not None:
                Path(parent).mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix="spill-", dir=parent))  # mode 0700
        self.remove = weakref.finalize(self, _remove_folder, self.path, os.getpid())

    def new_file(self, label: str) -> SpillFile:
        """Make an empty file; ``label`` names what it holds in messages."""
        return SpillFile(self, label)


def _remove_folder(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class Extent:
    """The place of some bytes in a spill file; they have a digest once they are written."""

    __slots__ = ("digest", "offset", "size")

    def __init__(self, offset: int, size: int) -> None:
        self.offset, self.size = offset, size
        self.digest: str | None = None


class SpillFile:
    """One scratch file of extents; extents of one file may be written and read from several threads."""

    __slots__ = ("__weakref__", "_folder", "_owner", "path", "size", "where")

    def __init__(self, folder: SpillFolder, label: str) -> None:
        place = str(folder.path)
        with _typed(place, f"{label}: a spill file cannot be made in {place}", advice="Give another folder."):
            handle, name = tempfile.mkstemp(suffix=".spill", dir=folder.path)  # mode 0600
        os.close(handle)
        self.path, self.where = Path(name), f"{label}: {name}"
        self.size = 0
        self._owner = os.getpid()
        self._folder = folder  # stays as long as its files

    @property
    def ours(self) -> bool:
        """Whether this process made it, and did not inherit it."""
        return os.getpid() == self._owner

    def reserve(self, size: int) -> Extent:
        """The place for the next ``size`` bytes."""
        extent = Extent(self.size, size)
        self.size += size
        return extent

    def write(self, extent: Extent, data: memoryview) -> None:
        """Put bytes in their place.

        Raises:
            StorageFailure: the medium refuses, or the file belongs to the process this one was forked from.
        """
        if not self.ours:
            raise StorageFailure(
                f"{self.where}: belongs to process {self._owner}, this is its child {os.getpid()}. "
                "Compute the activation again in this process.",
                str(self.path),
            )
        data = data.cast("B")
        extent.digest = xxhash.xxh3_128_hexdigest(data)
        # opened each time: many graphs may be alive; never made again, as it may be gone with its folder
        what = f"{self.where}: {extent.size} bytes cannot be written"
        with (
            _typed(str(self.path), what, advice="Free room there, or give another folder."),
            self.path.open("r+b", buffering=0) as file,
        ):
            file.seek(extent.offset)
            _write_all(file, data)

    def read(self, extent: Extent, target: memoryview) -> None:
        """Read bytes back into ``target``.

        Raises:
            SpillDamaged: they are not those that were written.
            StorageFailure: the medium refuses.
        """
        try:
            found, complete = self._read(extent.offset, target)
        except FileNotFoundError:
            raise self._damaged(f"the spill file is gone, expected {self.size} bytes") from None
        if not complete or found != self.size:
            raise self._damaged(f"the spill file has {found} bytes, expected {self.size}")
        digest = xxhash.xxh3_128_hexdigest(target)
        if digest != extent.digest:
            raise self._damaged(
                f"the spill file does not read back as written: bytes {extent.offset} to "
                f"{extent.offset + extent.size} have digest {digest}, expected {extent.digest}"
            )

    def _read(self, offset: int, target: memoryview) -> tuple[int, bool]:
        """Fill ``target``; the size of the whole file, and whether there were bytes enough."""
        what = f"{self.where}: the spill file could not be read"
        with (
            _typed(str(self.path), what, advice="Compute the activation again.", but=FileNotFoundError),
            self.path.open("rb", buffering=0) as file,
        ):
            file.seek(offset)
            return os.fstat(file.fileno()).st_size, _fill(file, target)

    def _damaged(self, what: str) -> SpillDamaged:
        return SpillDamaged(f"{self.where}: {what}. Compute the activation again.", str(self.path))

    def remove(self) -> None:
        """Delete the file if this process made it; what resists goes with the folder."""
        if self.ours:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def __del__(self) -> None:
        if hasattr(self, "_owner"):
            self.remove()


@contextmanager
def _typed(path: str, what: str, *, advice: str, but: type[OSError] | tuple[()] = ()) -> Iterator[None]:
    """Give what the system refuses a name of ours."""
    try:
        yield
    except but:
        raise
    except OSError as error:
        raise StorageFailure(f"{what}: {error}. {advice}", path, code=error.errno, inner_exception=error) from error


def _write_all(file: BinaryIO, data: memoryview) -> None:
    while data.nbytes:
        data = data[file.write(data) or 0 :]


def _fill(file: BinaryIO, target: memoryview) -> bool:
    while target.nbytes:
        got = file.readinto(target)  # type: ignore[attr-defined]
        if not got:
            return False
        target = target[got:]
    return True
