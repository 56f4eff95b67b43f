"""Storage use: where the bytes are, how fast they grow, and when a disk is full."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from model_checkpoint.api.library.run_titles import UNTITLED, RunTitle, titles_in
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.checkpoint.retention.candidates import Candidate
from model_checkpoint.checkpoint.retention.disk_forecast import pace_of
from model_checkpoint.database import Checkpoint, CheckpointSearch
from model_checkpoint.database.records import DELETED
from model_checkpoint.database.summed_records import RecentSave, RootSpace, SavedDay
from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore, open_store

_DAY = 86_400.0
_DAYS = 45
_PACE_SAVES = 21  # that make a pace
_STILL = 10  # gaps without a save after which a root is slower than it was; and after a day, taken for finished
_MINUTE = 60.0
_MOST_TRASH = 1000


def describe_storage(library: Library) -> dict[str, Any]:
    """The document of the bytes of all shelves."""
    now = time.time()
    since = now - _DAYS * _DAY
    shelves = library.shelves()
    spaces = [(shelf, space) for shelf in shelves for space in shelf.connection.spaces()]
    days = [day for shelf in shelves for day in shelf.connection.saved_days(since=since)]
    return {
        "disks": _disks([space for _, space in spaces], days, _rates(shelves, now), since=since, now=now),
        "runs": _runs(spaces),
        "trash": [one for shelf in shelves for one in _trash(shelf)],
    }


def _runs(spaces: Sequence[tuple[Shelf, RootSpace]]) -> list[dict[str, Any]]:
    titles: dict[str, RunTitle] = {}
    for shelf in dict.fromkeys(shelf for shelf, _ in spaces):
        titles |= titles_in(shelf.connection, [space.run for one, space in spaces if one is shelf])
    found: dict[str, dict[str, Any]] = {}
    for _, space in spaces:
        title = titles.get(space.run, UNTITLED)
        named = {"id": space.run, "name": title["run_name"], "experiment": title["experiment"]}
        empty = {**named, "unique": 0, "shared": 0, "n": 0}
        line = found.setdefault(space.run, empty)
        line["unique"] += space.unique_bytes
        line["shared"] += max(0, space.total_bytes - space.unique_bytes)
        line["n"] += space.checkpoints
    return sorted(found.values(), key=lambda line: (-line["unique"], line["id"]))


def _trash(shelf: Shelf) -> list[dict[str, Any]]:
    search = CheckpointSearch(state=DELETED)
    rows = shelf.connection.search_checkpoints(search, sort="-at", limit=_MOST_TRASH).items
    grace, now = Graces().trash, time.time()
    left = [row for row in rows if (row.deleted_at or 0.0) + grace > now]
    there = {root: _names_in_trash(root) for root in {row.root for row in left}}
    left = [row for row in left if (names := there[row.root]) is None or row.name in names]
    titles = titles_in(shelf.connection, {row.experiment_id for row in left})
    return [{**_trashed(shelf, row, grace), **titles.get(row.experiment_id, UNTITLED)} for row in left]


def _names_in_trash(root: str) -> set[str] | None:
    """What can be brought back: who dropped it may have given less grace. None where nobody asks, as of a bucket."""
    try:
        store = open_store(root) if root else None
        return {one.name for one in store.trash()} if isinstance(store, LocalStore) else None
    except CheckpointException:
        return None


def _trashed(shelf: Shelf, row: Checkpoint, grace: float) -> dict[str, Any]:
    deleted = row.deleted_at or 0.0
    return {
        "id": row.id,
        "run": row.experiment_id,
        "name": row.name,
        "step": row.step,
        "bytes": row.file_size if row.unique_bytes is None else row.unique_bytes,
        "deleted_at": deleted,
        "until": deleted + grace,
        "writable": shelf.writable,
    }


def _rates(shelves: Iterable[Shelf], now: float) -> dict[str, float]:
    """Bytes a day that come to each root that still saves: by the pace of `mckpt forecast`, or its silence."""
    saves: dict[str, list[RecentSave]] = defaultdict(list)
    for shelf in shelves:
        for one in shelf.connection.recent_saves(each=_PACE_SAVES):
            saves[one.root].append(one)
    rates: dict[str, float] = {}
    for root, some in saves.items():
        pace = pace_of([_candidate(one) for one in sorted(some, key=lambda one: (one.created_at, one.id))])
        silent = now - max(one.created_at for one in some)
        if pace.seconds is not None and silent <= max(_DAY, _STILL * pace.seconds):
            gap = pace.seconds if silent <= max(_MINUTE, _STILL * pace.seconds) else silent  # a burst that is over
            rates[root] = pace.nbytes / gap * _DAY
    return rates


def _candidate(save: RecentSave) -> Candidate:
    at = datetime.fromtimestamp(save.created_at, UTC)
    return Candidate(id=save.id, name=save.id, step=save.step, committed_at=at, files=((save.id, save.nbytes),))


def _disks(
    spaces: Iterable[RootSpace], days: Iterable[SavedDay], rates: Mapping[str, float], *, since: float, now: float
) -> list[dict[str, Any]]:
    """One entry for each file system, and one for each root that is none."""
    roots: dict[str, list[str]] = defaultdict(list)
    used: dict[str, int] = defaultdict(int)
    for space in spaces:
        disk = _disk_of(space.root)
        if space.root not in roots[disk]:
            roots[disk].append(space.root)
        used[disk] += space.unique_bytes
    grown: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for day in days:
        number = round((day.start - since) / _DAY)
        grown[_disk_of(day.root)][number] += day.saved_bytes - day.deleted_bytes
    return [
        _disk(disk, sorted(roots[disk]), used=used[disk], grown=grown[disk], rates=rates, since=since, now=now)
        for disk in sorted(roots)
    ]


def _disk_of(root: str) -> str:
    if not root or "://" in root:
        return root or "unknown"
    try:
        return f"disk {os.stat(root).st_dev}"
    except OSError:
        return "missing"


def _disk(
    disk: str,
    roots: list[str],
    *,
    used: int,
    grown: Mapping[int, int],
    rates: Mapping[str, float],
    since: float,
    now: float,
) -> dict[str, Any]:
    size = free = other = None
    if disk.startswith("disk "):
        stat = os.statvfs(roots[0])
        size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        other = max(0, size - free - used)
    level, history = 0, []
    for number in range(_DAYS + 1):
        level += grown.get(number, 0)
        history.append({"t": min(since + (number + 1) * _DAY, now), "used": max(0, level)})
    rate = sum(rates.get(root, 0.0) for root in roots)
    return {
        "name": roots[0] if len(roots) == 1 else os.path.commonpath(roots) if size is not None else disk,
        "roots": roots,
        "size": size,
        "free": free,
        "used": used,
        "other": other,
        "rate": rate,
        "full_at": now + free / rate * _DAY if free is not None and rate > 0 else None,
        "days": history,
    }
