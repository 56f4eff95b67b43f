"""Offload: write a stage's saved tensors to disk or host memory, and fetch them before backward needs them."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from model_checkpoint.recompute.peak import tensors_in
from model_checkpoint.recompute.saved import Saved


class Group:
    """The tensors one stage call put away; all are fetched when the first is asked for."""

    def __init__(self, offloader: Offloader, path: Path | None) -> None:
        self.offloader, self.path = offloader, path
        self.previous: Group | None = None
        self._sizes: list[int] = []
        self._host: list[Tensor] = []
        self._devices: list[torch.device] = []
        self._fetched: list[Tensor] | None = None
        self._ready: Future[None] | None = None
        self._lock = threading.Lock()

    def write(self, storage: Tensor) -> int:
        """Put the bytes of a storage away and return their number in this group."""
        self._sizes.append(storage.numel())
        self._devices.append(storage.device)
        if self.path is None:
            self._host.append(storage.to("cpu", copy=True))
        else:
            with self.path.open("ab") as file:
                file.write(memoryview(storage.cpu().numpy()))
        return len(self._sizes) - 1

    def fetch(self) -> None:
        """Begin to bring the bytes back; the buffers are made on this thread, so that a tracker counts them."""
        with self._lock:
            if self._fetched is not None:
                return
            self._fetched = [
                torch.empty(n, dtype=torch.uint8, device=d) for n, d in zip(self._sizes, self._devices, strict=True)
            ]
            self._ready = self.offloader.submit(self._fill, list(self._fetched))

    def _fill(self, buffers: list[Tensor]) -> None:
        if self.path is None:
            for buffer, kept in zip(buffers, self._host, strict=True):
                buffer.copy_(kept)
            return
        with self.path.open("rb", buffering=0) as file:
            for buffer in buffers:
                view = memoryview(buffer.numpy()) if buffer.device.type == "cpu" else None
                data = view if view is not None else bytearray(buffer.numel())
                _read_all(file, memoryview(data))
                if view is None:
                    buffer.copy_(torch.frombuffer(data, dtype=torch.uint8))

    def read(self, number: int) -> Tensor:
        """Wait for the bytes of one storage; the group before this one is then fetched too."""
        self.fetch()
        assert self._ready is not None
        assert self._fetched is not None
        self._ready.result()
        if self.previous is not None:
            self.previous.fetch()
            self.previous = None
        return self._fetched[number]

    def release(self) -> None:
        """Let go of what was fetched; it can be fetched again."""
        with self._lock:
            self._fetched = self._ready = None

    def __del__(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _read_all(file: Any, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise EOFError(f"{file.name}: spill file ends after {done} bytes of a tensor, expected {len(view)}.")
        done += count


class Offloaded(Saved):
    """A saved tensor whose bytes are in a group."""

    __slots__ = ("dtype", "group", "number", "open_count")

    def __init__(self, tensor: Tensor, group: Group, number: int) -> None:
        super().__init__(tensor)
        self.geometry = (tensor.size(), tensor.stride(), int(tensor.storage_offset()))
        self.dtype = tensor.dtype
        self.tensor = None
        self.group, self.number = group, number

    def open(self, where: object = "saved tensor") -> Tensor:
        """Bring the tensor back."""
        assert self.geometry is not None
        data = self.group.read(self.number)
        flat = torch.empty(0, dtype=self.dtype, device=data.device).set_(data.untyped_storage())  # type: ignore[call-overload]
        value: Tensor = flat.as_strided(*self.geometry)
        return value


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
        self._count = 0
        self._last: Group | None = None
        self._lock = threading.Lock()

    def submit(self, fill: Callable[[list[Tensor]], None], buffers: list[Tensor]) -> Future[None]:
        """Run a read on the worker."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="recompute-offload")
            return self._pool.submit(fill, buffers)

    @contextmanager
    def stage(
        self, name: str, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any], module: nn.Module
    ) -> Iterator[Callable[[Tensor], Saved]]:
        """Give the function that saves the tensors of one stage call away from memory."""
        self._count += 1
        path = self.folder / f"{self._count:08d}.spill" if mode == "disk" else None
        group = Group(self, path)
        # what others hold anyway is not worth a write
        held = {t.untyped_storage()._cdata for t in tensors_in([args, kwargs, *module.parameters(), *module.buffers()])}
        numbers: dict[int, int] = {}

        def save(tensor: Tensor) -> Saved:
            storage = tensor.untyped_storage()
            key = int(storage._cdata)
            if key in held:
                return Saved(tensor)
            if key not in numbers:
                flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
                numbers[key] = group.write(flat)
            return Offloaded(tensor, group, numbers[key])

        yield save
        numbers.clear()

    def close(self) -> None:
        """Stop the worker and remove the temporary folder."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=True)
                self._pool = None
        if self._temporary is not None:
            self._temporary.cleanup()
