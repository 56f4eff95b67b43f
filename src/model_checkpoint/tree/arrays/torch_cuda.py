"""Torch CUDA: bring tensors of a device to the host through pinned memory, on a stream beside the training's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class _Lane(threading.local):
    """What each copying thread keeps: a stream per device, and pinned memory for one window."""

    def __init__(self) -> None:
        self.streams: dict[torch.device, Any] = {}
        self.pinned = torch.empty(0, dtype=torch.uint8)

    def stream(self, device: torch.device) -> Any:
        """The stream of this thread on ``device``."""
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self.streams[device]

    def room(self, nbytes: int) -> torch.Tensor:
        """Pinned memory of at least ``nbytes``; torch keeps what is given back, so threads cost no allocation."""
        if self.pinned.numel() < nbytes:
            self.pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        return self.pinned[:nbytes]


_lane = _Lane()


def mark(tensor: torch.Tensor) -> Any:
    """Return an event after which ``tensor`` holds what the caller's stream has written to it so far."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(tensor.device))
    return event


@contextmanager
def after(event: Any, device: torch.device) -> Iterator[Any]:
    """Work on this thread's own stream, once ``event`` has happened."""
    stream = _lane.stream(device)
    stream.wait_event(event)
    with torch.cuda.stream(stream):
        yield stream


def host_window(flat: torch.Tensor, start: int, stop: int, event: Any) -> memoryview:
    """Return bytes ``[start, stop)`` of a flat byte tensor on a device, in memory this thread's next call reuses."""
    room = _lane.room(stop - start)
    with after(event, flat.device) as stream:
        room.copy_(flat[start:stop], non_blocking=True)
        stream.synchronize()
    return room.numpy().data
