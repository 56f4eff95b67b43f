"""Available memory: how much this process may still take, by the machine, its control groups and its own limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_STATM = Path("/proc/self/statm")
_MEMBERSHIP = Path("/proc/self/cgroup")
_CGROUP = Path("/sys/fs/cgroup")

_NAMES = (  # limit, use, and the page cache that could be dropped; of the second version and of the first
    ("memory.max", "memory.current", ("inactive_file", "active_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)


def available_bytes() -> int | None:
    """Return the bytes that can be allocated without swapping or being killed; None where no one can tell.

    Example:
        >>> available_bytes() is None or available_bytes() > 0
        True
    """
    groups = (_group_room(folder) for folder in _groups())
    limits = [room for room in (_machine_room(), _address_room(), *groups) if room is not None]
    return min(limits, default=None)


def _address_room() -> int | None:
    """Room left below the process's own limit (``ulimit -v``), where it has one."""
    try:
        import resource  # not everywhere

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(_STATM.read_text().split()[0])
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return None if most == resource.RLIM_INFINITY else max(0, most - pages * resource.getpagesize())


def _machine_room() -> int | None:
    try:
        rows = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    for row in rows:
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) * 1024
    return None


def _groups() -> Iterator[Path]:
    """The control groups that may limit this process: its own and all above, of either version.

    Inside a container the path may be one of the host, and the group is what is mounted: that one always counts.
    """
    try:
        rows = [row.split(":", 2) for row in _MEMBERSHIP.read_text().splitlines()]
    except OSError:
        rows = []
    paths = {_CGROUP: "/", _CGROUP / "memory": "/"}
    for _, controllers, path in rows:
        if not controllers:
            paths[_CGROUP] = path
        elif "memory" in controllers.split(","):
            paths[_CGROUP / "memory"] = path
    for mount, path in paths.items():
        own = mount / path.strip("/")
        yield from [own, *(above for above in own.parents if above.is_relative_to(mount))]


def _group_room(group: Path) -> int | None:
    """Room left below the limit of a group; page cache it could drop counts as room."""
    for limit, use, caches in _NAMES:
        try:
            most = (group / limit).read_text().strip()
            used = int((group / use).read_text())
            stat = dict(row.split() for row in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        return None if most == "max" else max(0, int(most) - used + sum(int(stat.get(cache, 0)) for cache in caches))
    return None
