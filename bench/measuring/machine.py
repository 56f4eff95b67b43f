"""Machine: what the figures were measured on; no names, no paths."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from model_checkpoint.format.sha256 import SIDE_BY_SIDE
from model_checkpoint.performance.copying import STREAMING

_PACKAGES = ("torch", "numpy", "safetensors", "orbax-checkpoint", "jax", "xxhash")


def machine(folder: Path) -> dict[str, str]:
    """Processor, memory, file system and the versions that matter."""
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "file system": _file_system(folder),
        "kernel": platform.release().split("-")[0],
        "load at the start": f"{os.getloadavg()[0]:.1f} runnable",  # figures from a busy machine are no figures
        "SHA-256": "several chunks side by side" if SIDE_BY_SIDE else "one chunk after the other",
        "copies": "past the caches" if STREAMING else "through the caches",
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    return next((row.split(":")[1].strip() for row in rows if row.startswith("model name")), platform.machine())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _file_system(folder: Path) -> str:
    """The type of the deepest mount that holds ``folder``."""
    here, best, kind = str(folder.resolve()), "", "unknown"
    for row in Path("/proc/mounts").read_text().splitlines():
        _, point, name, *_ = row.split()
        inside = here == point or here.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind
