"""Memory: how much this process may still take, by the machine and by its control group."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Return the bytes that can be allocated without swapping or being killed; None where no one can tell.

    Example:
        >>> available_bytes() is None or available_bytes() > 0
        True
    """
    limits = [room for room in (_machine_room(), _cgroup_room()) if room is not None]
    return min(limits) if limits else None


def _machine_room() -> int | None:
    try:
        rows = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    for row in rows:
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) * 1024
    return None


def _cgroup_room() -> int | None:
    """Room left below the control group's limit; page cache it could drop counts as room."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(row.split() for row in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    return max(0, int(limit) - used + int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0)))
