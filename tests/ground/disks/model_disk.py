"""Model disk: a file system in memory that keeps of what was not flushed only what it likes when the power goes.

A flush of a file saves its bytes, a flush of a folder the names in it; nothing else is promised. Every other change of
a name may be lost or may have reached the medium, each by itself and in any order, and so may the bytes of a file. One
thing a rename does promise, as on every file system there is: of itself, the old name goes only when the new one is
there. (A flush of the folder with the old name makes that one go for sure.) An exchange promises that both names
change, or neither.
"""

from __future__ import annotations

import copy
import errno
import fcntl
import os
import random
import stat
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from model_checkpoint.storage.contract.host import Moment
from model_checkpoint.storage.local.syscalls import Syscalls
from tests.ground.disks.disk_nodes import Change, File, Folder, picture, show_medium

Keep = Callable[[Change], bool]


class ModelDisk(Syscalls):
    """The system on such a disk.

    ``moments`` holds a copy of the disk as it was after each change since ``watch``; ``flushed`` the paths of all
    flushes since then, of which number ``forgotten`` was not carried out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Folder(1)
        self.pending: list[Change] = []
        self.dirty: list[File] = []
        self.boots, self.ticks, self.numbers = 1, 0.0, 1
        self.links, self.full = True, False
        self._forget()
        self.watch(watching=False)

    def _forget(self) -> None:
        self.open_files: dict[int, tuple[str, File | Folder]] = {}
        self.locks: dict[int, int] = {}

    # looking on ------------------------------------------------------------------------------------------------------

    def watch(self, *, forgotten: int | None = None, watching: bool = True) -> None:
        """Take a picture after each change from now on; forget that flush."""
        self.watching, self.forgotten = watching, forgotten
        self.moments: list[ModelDisk] = []
        self.flushed: list[str] = []

    def copy(self) -> ModelDisk:
        """This disk as a process finds it when all others have died."""
        twin = ModelDisk()
        twin.root, twin.pending, twin.dirty = copy.deepcopy((self.root, self.pending, self.dirty))
        twin.boots, twin.ticks, twin.numbers = self.boots, self.ticks, self.numbers
        twin.links, twin.full = self.links, self.full
        return twin

    def settle(self) -> None:
        """Let everything reach the medium."""
        for change in self.pending:
            change.apply()
        for file in self.dirty:
            file.safe = bytes(file.data)
        self.pending, self.dirty = [], []

    def _changed(self) -> None:
        if self.watching:
            self.moments.append(self.copy())

    # the power goes --------------------------------------------------------------------------------------------------

    def after_power_loss(self, keep: Keep, keep_bytes: Callable[[int], bool]) -> ModelDisk:
        """The disk as it comes back, with what was not flushed as the two say; files by their place in ``dirty``."""
        twin = self.copy()
        kept: set[int] = set()
        for mine, change in zip(self.pending, twin.pending, strict=True):
            met = change.needs is None or change.needs not in twin.pending or id(change.needs) in kept
            if keep(mine) and met:
                kept.add(id(change))
                change.apply()
        for place, file in enumerate(twin.dirty):
            if keep_bytes(place):
                file.safe = bytes(file.data)
            elif len(file.safe) < len(file.data):
                file.safe += bytes(len(file.data) - len(file.safe))
        twin.pending, twin.dirty = [], []
        show_medium(twin.root)
        twin.boots += 1
        return twin

    def power_losses(self, seed: int, *, samples: int = 12) -> Iterator[ModelDisk]:
        """The extremes and some of what lies between, each a disk of its own; what one loses the next may keep."""
        draw, changes = random.Random(seed), self.pending
        removals = {change for change in changes if change.node is None}
        choices: list[Keep] = [lambda _: False, lambda _: True, lambda c: c not in removals]
        choices += [lambda c, lost=lost: c is not lost for lost in changes]  # type: ignore[misc]
        choices += [lambda c, only=only: c in (only, only.needs) for only in changes]  # type: ignore[misc]
        for _ in range(samples):
            some = {change for change in changes if draw.random() < 0.5}
            choices.append(lambda c, some=some: c in some)  # type: ignore[misc]
        for keep in choices:
            yield self.after_power_loss(keep, lambda _: True)
            if self.dirty:
                yield self.after_power_loss(keep, lambda _: False)
        for lost in range(len(self.dirty)):
            yield self.after_power_loss(lambda _: True, lambda place, lost=lost: place != lost)  # type: ignore[misc]

    def picture(self) -> tuple[Any, ...]:
        """What is on it, to be compared: two names of one folder are seen as such."""
        return tuple(picture(self.root, "", {}))

    # names -----------------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> File | Folder:
        node: File | Folder = self.root
        for part in path.strip("/").split("/"):
            if part:
                if not isinstance(node, Folder):
                    raise OSError(errno.ENOTDIR, path)
                if part not in node.entries:
                    raise OSError(errno.ENOENT, path)
                node = node.entries[part]
        return node

    def _place(self, path: str, folder: int | None = None) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        node = self._find(above) if folder is None else self.open_files[folder][1]
        if not isinstance(node, Folder):
            raise OSError(errno.ENOTDIR, path)
        return node, name

    def _set(self, folder: Folder, name: str, node: File | Folder | None, needs: Change | None = None) -> Change:
        if node is not None and name not in folder.entries and self.full:
            raise OSError(errno.ENOSPC, name)
        change = Change(folder, name, node, needs)
        if node is None:
            del folder.entries[name]
        else:
            folder.entries[name] = node
        folder.stamp = self._tick()
        self.pending.append(change)
        return change

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def mkdir(self, path: str) -> None:
        folder, name = self._place(path)
        if name in folder.entries:
            raise OSError(errno.EEXIST, path)
        self._set(folder, name, Folder(self._number(), stamp=self._tick()))
        self._changed()

    def rmdir(self, path: str) -> None:
        folder, name = self._place(path)
        node = self._find(path)
        if isinstance(node, Folder) and node.entries:
            raise OSError(errno.ENOTEMPTY, path)
        self._set(folder, name, None)
        self._changed()

    def unlink(self, path: str) -> None:
        folder, name = self._place(path)
        if isinstance(self._find(path), Folder):
            raise OSError(errno.EISDIR, path)
        self._set(folder, name, None)
        self._changed()

    def rename(self, source: str, target: str, *, out_of: int | None = None, into: int | None = None) -> None:
        old, old_name = self._place(source, out_of)
        new, new_name = self._place(target, into)
        if old_name not in old.entries:
            raise OSError(errno.ENOENT, source)
        node, there = old.entries[old_name], new.entries.get(new_name)
        if isinstance(node, Folder) and there is not None:
            if not isinstance(there, Folder):
                raise OSError(errno.ENOTDIR, target)
            if there.entries:
                raise OSError(errno.ENOTEMPTY, target)
        self._set(old, old_name, None, self._set(new, new_name, node))
        self._changed()

    def exchange(self, one: str, other: str) -> None:
        (first, name), (second, place) = self._place(one), self._place(other)
        there = self._find(other)
        change = self._set(second, place, self._find(one))
        change.also = self._set(first, name, there)
        self.pending.remove(change.also)
        self._changed()

    def link(self, source: str, target: str, *, into: int) -> None:
        if not self.links:
            raise OSError(errno.EPERM, "no links here")
        folder, name = self._place(target, into)
        if name in folder.entries:
            raise OSError(errno.EEXIST, target)
        self._set(folder, name, self._find(source))
        self._changed()

    def listdir(self, path: str) -> list[str]:
        return list(self._place(f"{path}/")[0].entries)

    def stat(self, path: str) -> os.stat_result:
        return self._look(self._find(path))  # type: ignore[no-any-return]

    lstat = stat

    def _look(self, node: File | Folder) -> Any:
        kind, size = (stat.S_IFDIR, 0) if isinstance(node, Folder) else (stat.S_IFREG, len(node.data))
        return SimpleNamespace(
            st_mode=kind | 0o600,
            st_ino=node.number,
            st_dev=1,
            st_nlink=1,
            st_size=size,
            st_mtime=node.stamp,
            st_ctime=node.stamp,
            st_mtime_ns=int(node.stamp * 1e9),
            st_ctime_ns=int(node.stamp * 1e9),
        )

    def fsync_dir(self, path: str) -> None:
        self._flush(path, self._find(path))

    # files -----------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, *, folder: int | None = None) -> int:
        place, name = self._place(path, folder)
        made = flags & os.O_CREAT and name not in place.entries
        if made:
            self._set(place, name, File(self._number(), stamp=self._tick()))
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, path)
        if name not in place.entries:
            raise OSError(errno.ENOENT, path)
        node = place.entries[name]
        if flags & os.O_DIRECTORY and not isinstance(node, Folder):
            raise OSError(errno.ENOTDIR, path)
        fd = max(self.open_files, default=1000) + 1
        self.open_files[fd] = (path, node)
        if made:
            self._changed()
        return fd

    def close(self, fd: int) -> None:
        del self.open_files[fd]
        self.locks = {number: holder for number, holder in self.locks.items() if holder != fd}

    def _file(self, fd: int) -> File:
        node = self.open_files[fd][1]
        assert isinstance(node, File)
        return node

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        file = self._file(fd)
        file.data[len(file.data) :] = bytes(max(0, offset - len(file.data)))
        file.data[offset : offset + len(data)] = data
        self._soil(file)
        self._changed()
        return len(data)

    def preadv(self, fd: int, buffer: memoryview, offset: int) -> int:
        piece = self._file(fd).data[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def ftruncate(self, fd: int, size: int) -> None:
        file = self._file(fd)
        if size != len(file.data):
            file.data[size:] = bytes(max(0, size - len(file.data)))
            self._soil(file)

    def _soil(self, file: File) -> None:
        file.stamp = self._tick()
        if file not in self.dirty:
            self.dirty.append(file)

    def fsync(self, fd: int) -> None:
        self._flush(*self.open_files[fd])

    def _flush(self, path: str, node: File | Folder) -> None:
        self.flushed.append(path)
        if self.watching and len(self.flushed) - 1 == self.forgotten:
            return
        if isinstance(node, File):
            node.safe = bytes(node.data)
            self.dirty = [file for file in self.dirty if file is not node]
            return
        for change in self.pending:
            if change.is_in(node):
                change.apply()
        self.pending = [change for change in self.pending if not change.is_in(node)]

    def fallocate(self, fd: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "cannot reserve")

    def start_writeback(self, fd: int, offset: int, size: int) -> None:
        """Promises nothing."""

    def drop_cache(self, fd: int) -> None:
        """Nothing to drop."""

    def set_direct(self, fd: int, on: bool) -> None:
        raise OSError(errno.EINVAL, "no direct I/O here")

    def flock(self, fd: int, operation: int) -> None:
        holder = self.locks.setdefault(self.open_files[fd][1].number, fd)
        if holder != fd:
            raise BlockingIOError(errno.EAGAIN, "locked")
        assert operation & (fcntl.LOCK_EX | fcntl.LOCK_SH)

    def utime(self, fd: int) -> None:
        self.open_files[fd][1].stamp = self._tick()

    def fstat(self, fd: int) -> os.stat_result:
        return self._look(self.open_files[fd][1])  # type: ignore[no-any-return]

    def statvfs(self, path: str) -> Any:
        return SimpleNamespace(f_bavail=1 << 30, f_frsize=1)

    def filesystem(self, fd: int) -> int:
        return 0xEF53

    def _tick(self) -> float:
        self.ticks += 1.0
        return self.ticks

    def now(self) -> Moment:
        ticks = self._tick()
        return Moment(boot=f"{self.boots:08x}", since_boot=ticks, wall=int(ticks * 1e9))
