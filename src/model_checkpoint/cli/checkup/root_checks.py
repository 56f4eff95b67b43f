"""Root checks: a root's file system, room, permissions, leftovers, and damage that shows without reading the data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

from model_checkpoint.cli.checkup.diagnosis import Diagnosis, bad, good, note
from model_checkpoint.cli.finding.runs import runs_in
from model_checkpoint.cli.quantities import counted, duration, size
from model_checkpoint.database.opening.network_files import network_kind
from model_checkpoint.engine.common.info import CheckpointInfo
from model_checkpoint.engine.root.intents import open_intents
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import FolderStore, Store
from model_checkpoint.storage.locate import open_store

_FLEETING = {
    "tmpfs": "lies in memory: it is gone with the power, or a reboot",
    "ramfs": "lies in memory: it is gone with the power, or a reboot",
}
_LAYERED = {"overlay": "is a layer of a container: it may be gone with the container", "aufs": "is a container's layer"}
_SKEW = 5.0  # seconds; what clocks differ by without harm
_FEW = 10  # saves


def check_root(root: str) -> list[Diagnosis]:
    """Look at a root; a check that cannot be made is a finding too."""
    store = open_store(root)
    try:
        if not store.exists():
            return [
                bad("root", f"{root}: there is no such root", "check the path; the first mc.save there makes it"),
                *(_place(os.path.dirname(os.path.abspath(os.path.expanduser(root)))) if "://" not in root else ()),
            ]
        infos = list_checkpoints(root)
    except CheckpointException as error:
        return [bad("root", f"{root}: cannot be looked at: {error}", "see the message; is the address right?")]
    checks: list[Callable[[], Iterator[Diagnosis]]] = [
        lambda: _checkpoints(root, infos),
        lambda: _room(store, root, infos),
        lambda: _leftovers(store, root),
        lambda: _clock(infos),
    ]
    if isinstance(store, FolderStore):
        path = os.path.abspath(os.path.expanduser(root))
        checks = [checks[0], lambda: _place(path), lambda: _permissions(path), *checks[1:]]
    return [finding for check in checks for finding in _made(check)]


def _made(check: Callable[[], Iterator[Diagnosis]]) -> list[Diagnosis]:
    try:
        return list(check())
    except (CheckpointException, OSError) as error:
        return [bad("root", f"could not be looked at: {error}", "see the message")]


def _checkpoints(root: str, infos: list[CheckpointInfo]) -> Iterator[Diagnosis]:
    total = size(sum(info.size_bytes for info in infos))
    unusable = [info for info in infos if info.problem]
    if unusable:
        yield bad(
            "checkpoints",
            f"{len(unusable)} of {counted(len(infos), 'checkpoint')} cannot be used, first {unusable[0].prefix}",
            f"mckpt verify {quote(root)}, then mckpt repair {quote(root)}",
        )
    elif infos:
        yield good("checkpoints", f"{counted(len(infos), 'checkpoint')}, {total}; mckpt verify reads their bytes too")
    else:
        yield note("checkpoints", runs_in(root) or "none committed yet")
    missing = [info.prefix for info in infos if info.parity and not info.protected]
    if missing:
        yield note(
            "parity", f"{counted(len(missing), 'checkpoint')} without its parity files", f"mckpt repair {quote(root)}"
        )


def _place(path: str) -> Iterator[Diagnosis]:
    """What the folder, or the nearest one above that is there, lies on."""
    while path and not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    mount, kind, options = mount_of(path)
    network = network_kind(Path(path))
    told = f"{kind or 'unknown'}, mounted at {mount}"
    if kind in _FLEETING:
        yield bad("file system", f"{told}; it {_FLEETING[kind]}", "save to a disk, or with mirror= to a second root")
    elif "ro" in options:
        yield bad("file system", f"{told}, read-only", f"mount -o remount,rw {quote(mount)}")
    elif network:
        yield note(
            "file system",
            f"{told}; {network}: saves are safe, but locks and clocks are the server's, and mmap=True is refused",
            "for many writers keep the catalog in PostgreSQL or MariaDB",
        )
    elif kind in _LAYERED:
        yield note("file system", f"{told}; it {_LAYERED[kind]}", "mount a volume and save there")
    else:
        yield good("file system", told)


def mount_of(path: str) -> tuple[str, str, tuple[str, ...]]:
    """Where the file system of a path is mounted, its kind and options; empty where nobody can tell.

    Example:
        >>> mount_of("/proc")[1]
        'proc'
    """
    real = os.path.realpath(path)
    best: tuple[str, str, tuple[str, ...]] = ("/", "", ())
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
            rows = [line.split() for line in table]
    except OSError:
        return best
    for row in rows:
        at = row[1].encode().decode("unicode_escape")
        if (real == at or real.startswith(at.rstrip("/") + "/")) and len(at) >= len(best[0]):
            best = (at, row[2], tuple(row[3].split(",")))
    return best


def _permissions(path: str) -> Iterator[Diagnosis]:
    names = ("", "checkpoints", ".staging", ".trash", ".sidecars")
    folders = [folder for name in names if os.path.isdir(folder := os.path.join(path, name))]
    closed = [folder for folder in folders if not os.access(folder, os.R_OK | os.W_OK | os.X_OK)]
    if closed:
        yield bad(
            "permissions", f"{closed[0]} cannot be written to", f"chmod u+rwx {quote(closed[0])}, or save as its owner"
        )
    else:
        yield good("permissions", "can be read and written")


def _room(store: Store, root: str, infos: list[CheckpointInfo]) -> Iterator[Diagnosis]:
    free, trash = store.free_bytes(), sum(item.nbytes for item in store.trash())
    held = f"; {size(trash)} in the trash" if trash else ""
    if free is None:
        yield good("room", f"the medium does not tell how much is left{held}")
        return
    each = max((info.size_bytes for info in infos[:5]), default=0)
    saves = free // each if each else None
    told = f"{size(free)} free{held}" + ("" if saves is None else f", room for {saves:,} more saves of {size(each)}")
    name = quote(root)
    cure = f"mckpt gc {name} --trash frees {size(trash)}; mckpt prune {name} --keep last:3 --dry-run shows more"
    if saves == 0:
        yield bad("room", told, cure)
    elif saves is not None and saves < _FEW:
        yield note("room", told, cure)
    else:
        yield good("room", told)


def _leftovers(store: Store, root: str) -> Iterator[Diagnosis]:
    swept = store.sweep(Graces(), dry_run=True)
    if swept.attempts or swept.trashed:
        dead = f"{counted(len(swept.attempts), 'dead save')} and {counted(len(swept.trashed), 'old deletion')}"
        yield note("leftovers", f"{dead} ({size(swept.nbytes)})", f"mckpt gc {quote(root)}")
    else:
        alive = f"; {len(swept.alive)} may be saving now" if swept.alive else ""
        yield good("leftovers", f"none{alive}")
    if intents := open_intents(store):
        yield note("prune", f"{counted(len(intents), 'plan')} was cut off", f"mckpt prune {quote(root)} --resume")


def _clock(infos: list[CheckpointInfo]) -> Iterator[Diagnosis]:
    latest = max((info.timestamp.timestamp() for info in infos if info.timestamp), default=0.0)
    ahead = latest - time.time()
    if ahead > _SKEW:
        yield bad(
            "clock",
            f"the newest checkpoint was saved {duration(ahead)} from now by its writer's clock",
            "set both clocks by NTP; the order of checkpoints follows steps, ages and graces follow clocks",
        )
    else:
        yield good("clock", "no checkpoint is from the future")
