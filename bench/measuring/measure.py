"""Measure: what one operation costs in wall time, processor time and memory."""

from __future__ import annotations

import ctypes
import gc
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

GB = 1e9
MIB = 1 << 20

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured operation."""

    wall: float  # seconds
    cpu: float  # seconds of all threads of this process
    peak: int  # bytes of resident memory beyond what was there before
    nbytes: int  # payload

    @property
    def speed(self) -> float:
        """Payload per second of wall time, in GB/s."""
        return self.nbytes / self.wall / GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All samples of one operation of one contender."""

    best: float
    median: float
    speed: float  # GB/s, of the median
    cpu_per_gb: float  # best
    peak: int  # worst


def summarize(samples: list[Sample]) -> Summary:
    """Return best and median of the rounds, and the worst memory peak."""
    walls = [sample.wall for sample in samples]
    nbytes = samples[0].nbytes
    return Summary(
        best=min(walls),
        median=median(walls),
        speed=nbytes / median(walls) / GB,
        cpu_per_gb=min(sample.cpu for sample in samples) / (nbytes / GB),
        peak=max(sample.peak for sample in samples),
    )


def measure(action: Callable[[], object], nbytes: int) -> Sample:
    """Run ``action`` once and return what it cost."""
    with _Peak() as peak:
        cpu, wall = _cpu_seconds(), time.perf_counter()
        action()
        wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
    return Sample(wall=wall, cpu=cpu, peak=peak.extra, nbytes=nbytes)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


class _Peak:
    """The most resident memory beyond the start; the kernel's own high-water mark, or sampled where it stays shut."""

    extra = 0

    def __enter__(self) -> _Peak:
        gc.collect()
        _libc.malloc_trim(0)  # else memory an earlier operation gave back hides what this one takes
        self._before = _status("VmRSS")
        self._sampler: _Sampler | None = None
        try:
            _CLEAR.write_text("5")
        except OSError:
            self._sampler = _Sampler()
            self._sampler.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._sampler is not None:
            self._sampler.stop()
        high = _status("VmHWM") if self._sampler is None else self._sampler.high
        self.extra = max(0, high - self._before)


class _Sampler(threading.Thread):
    """Looks at the resident memory every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.high, self._over = _status("VmRSS"), threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.005):
            self.high = max(self.high, _status("VmRSS"))

    def stop(self) -> None:
        self._over.set()
        self.join()


def bytes_read() -> tuple[int, int]:
    """Bytes this process has asked to read so far, and those that came from the medium (read-ahead included)."""
    rows = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(rows["rchar"]), int(rows["read_bytes"])
