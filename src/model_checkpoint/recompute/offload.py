"""Offload: write a stage's saved tensors to disk or host memory, and fetch them before backward needs them.

The tensors of one stage call form a group. When backward asks for the first of them, the group is read on a worker
thread, and so is the group of the stage before, which backward needs next. Buffers are made on the asking thread, so
that a tracker counts them.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model_checkpoint.recompute.peak import tensors_in
from model_checkpoint.recompute.saved import Saved


class _Entry:
    """The bytes of one storage in a group."""

    __slots__ = ("buffer", "device", "host", "offset", "ready", "size", "users")

    def __init__(self, size: int, device: torch.device, offset: int) -> None:
        self.size, self.device, self.offset = size, device, offset
        self.host: Tensor | None = None
        self.buffer: Tensor | None = None
        self.ready: Future[None] | None = None
        self.users = 0


class Group:
    """The tensors one stage call put away."""

    def __init__(self, offloader: Offloader, path: Path | None) -> None:
        self._offloader, self._path = offloader, path
        self._entries: list[_Entry] = []
        self._lock = threading.Lock()
        self.previous: weakref.ref[Group] | None = None

    def write(self, data: Tensor) -> int:
        """Put the bytes of a storage away and return their number in this group."""
        last = self._entries[-1] if self._entries else None
        entry = _Entry(data.numel(), data.device, last.offset + last.size if last is not None else 0)
        if self._path is None:
            entry.host = data.to("cpu", copy=True)
        else:
            with self._path.open("ab") as file:
                file.write(_view(data.cpu()))
        self._entries.append(entry)
        return len(self._entries) - 1

    def share(self, number: int) -> None:
        """Note that one more saved tensor lives in a storage."""
        self._entries[number].users += 1

    def fetch(self) -> None:
        """Begin to bring everything back that is not here."""
        with self._lock:
            for entry in self._entries:
                if entry.buffer is None and entry.users > 0:
                    entry.buffer = torch.empty(entry.size, dtype=torch.uint8, device=entry.device)
                    entry.ready = self._offloader.submit(self._fill, entry, entry.buffer)

    def _fill(self, entry: _Entry, buffer: Tensor) -> None:
        if entry.host is not None:
            buffer.copy_(entry.host)
            return
        assert self._path is not None
        with self._path.open("rb", buffering=0) as file:
            file.seek(entry.offset)
            data = buffer if buffer.device.type == "cpu" else torch.empty(entry.size, dtype=torch.uint8)
            _read_all(file, _view(data))
        if data is not buffer:
            buffer.copy_(data)

    def read(self, number: int) -> Tensor:
        """Wait for the bytes of one storage; the last user takes them along."""
        entry = self._entries[number]
        if entry.buffer is None:
            entry.users = max(entry.users, 1)  # asked for again, as a retained graph does
            self.fetch()
        before = self.previous() if self.previous is not None else None
        if before is not None:
            before.fetch()
            self.previous = None
        assert entry.ready is not None
        assert entry.buffer is not None
        entry.ready.result()
        buffer, entry.users = entry.buffer, entry.users - 1
        if entry.users <= 0:
            entry.buffer = entry.ready = None
        return buffer

    def __del__(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _view(data: Tensor) -> memoryview:
    array: Any = data.numpy()
    return memoryview(array)


def _read_all(file: Any, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise EOFError(f"{file.name}: spill file ends after {done} bytes of a tensor, expected {len(view)}.")
        done += count


class Offloaded(Saved):
    """A saved tensor whose bytes are in a group."""

    __slots__ = ("dtype", "group", "number")

    def __init__(self, tensor: Tensor, group: Group, number: int) -> None:
        super().__init__(tensor)
        self.geometry = (tensor.size(), tensor.stride(), int(tensor.storage_offset()))
        self.dtype, self.tensor = tensor.dtype, None
        self.group, self.number = group, number
        group.share(number)

    def open(self, where: object = "saved tensor") -> Tensor:
        """Bring the tensor back."""
        assert self.geometry is not None
        storage = self.group.read(self.number).untyped_storage()
        value = torch.empty(0, dtype=self.dtype, device=storage.device)
        size, stride, offset = self.geometry
        return value.set_(storage, offset, size, stride)


class Offloader:
    """Puts tensors away for stages in the modes ``disk`` and ``host``.

    Args:
        folder: where spill files go; a temporary folder when None.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="recompute-") if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary is not None else str(folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._pool: ThreadPoolExecutor | None = None
        self._last: weakref.ref[Group] | None = None
        self._lock = threading.Lock()

    def submit(self, fill: Callable[[_Entry, Tensor], None], entry: _Entry, buffer: Tensor) -> Future[None]:
        """Run a read on the worker."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="recompute-offload")
            return self._pool.submit(fill, entry, buffer)

    @contextmanager
    def stage(
        self, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any], module: nn.Module
    ) -> Iterator[Callable[[Tensor], Saved]]:
        """Give the function that saves the tensors of one stage call away from memory."""
        group = Group(self, self._new_path() if mode == "disk" else None)
        group.previous, self._last = self._last, weakref.ref(group)
        # what others hold anyway is not worth a write
        held = {t.untyped_storage()._cdata for t in tensors_in([args, kwargs, *module.parameters(), *module.buffers()])}
        numbers: dict[int, int] = {}

        def save(tensor: Tensor) -> Saved:
            storage = tensor.untyped_storage()
            key = int(storage._cdata)
            if key in held:
                return Saved(tensor)
            if key not in numbers:
                data = torch.empty(0, dtype=torch.uint8, device=tensor.device)
                numbers[key] = group.write(data.set_(storage))
                # the address may be used again once the storage is gone
                weakref.finalize(storage, numbers.pop, key, None)
            return Offloaded(tensor, group, numbers[key])

        yield save

    def _new_path(self) -> Path:
        handle, name = tempfile.mkstemp(suffix=".spill", dir=self.folder)
        with open(handle, "wb"):
            return Path(name)

    def close(self) -> None:
        """Stop the worker and remove the temporary folder."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=True)
                self._pool = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
