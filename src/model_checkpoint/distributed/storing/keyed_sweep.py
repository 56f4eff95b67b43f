"""Keyed sweep: remove from a storage what nobody needs any more.

Paths are listed before marks, marks before records, records before the trash: a save that ends meanwhile puts its
record before it removes its mark, and a deletion fills the trash before it removes the record, so nothing needed is
missed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from model_checkpoint.distributed.storing.keyed_attempt import is_living, mark_path, verdict_path
from model_checkpoint.distributed.storing.keyed_calls import KeyedCalls
from model_checkpoint.distributed.storing.keyed_files import KeyedRecord, decode_record
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Swept, Tell, Waiting

DATA, MARKS, RECORDS, TRASH = "data/", ".attempts/", "checkpoints/", ".trash/"


def sweep(calls: KeyedCalls, graces: Graces, *, dry_run: bool, tell: Tell) -> Swept:
    """See :meth:`model_checkpoint.storage.contract.store.Store.sweep`."""
    data, marks = calls.list(DATA), calls.list(MARKS)
    held = {at for record in _records(calls, calls.list(RECORDS)) for at, _ in record.files.values()}
    trash = calls.list(TRASH)
    if not (data or marks or trash):
        return Swept()
    now = _clock(calls)
    ages = {path: _age(calls, path, now) for path in (*marks, *trash)}
    alive = [one for one in (path.removeprefix(MARKS) for path in marks) if is_living(calls.url, one)]
    waits = {path.removeprefix(MARKS): graces.foreign - ages[path] for path in marks}
    dead = [one for one, left in waits.items() if one not in alive and left <= 0]
    left = {path: graces.of_trash(path.removeprefix(TRASH)) - ages[path] for path in trash}
    over = [path for path in trash if left[path] <= 0]
    deleted = _records(calls, [path for path in trash if path not in over])
    held |= {at for record in deleted for at, _ in record.files.values()}
    orphans = [path for path in data if path not in held and path.split("/")[1] not in waits.keys() - set(dead)]
    nbytes = sum(calls.look(path).size for path in orphans)
    nbytes += sum(len(record.manifest or b"") for record in _records(calls, over))
    if not dry_run:
        _remove(calls, orphans)
        for path in over:
            calls.delete(path)
            tell(path.removeprefix(TRASH))
        for one in dead:
            _remove(calls, [mark_path(one), verdict_path(one)])
            tell(one)
    waiting = [
        Waiting(key=one, seconds=None if one in alive else left) for one, left in waits.items() if one not in dead
    ]
    waiting += [Waiting(key=path.removeprefix(TRASH), seconds=left[path]) for path in trash if path not in over]
    return Swept(
        attempts=dead, trashed=[path.removeprefix(TRASH) for path in over], alive=alive, nbytes=nbytes, waiting=waiting
    )


def _records(calls: KeyedCalls, paths: Iterable[str]) -> list[KeyedRecord]:
    """The records under some paths, but for those that are gone by now."""
    found: list[KeyedRecord] = []
    for path in paths:
        with suppress(FileNotFoundError):
            found.append(decode_record(calls.read(path), f"{calls.url}/{path}"))
    return found


def _age(calls: KeyedCalls, path: str, now: datetime) -> float:
    try:
        return (now - calls.look(path).last_modified).total_seconds()
    except FileNotFoundError:
        return 0.0


def _clock(calls: KeyedCalls) -> datetime:
    """What time the storage has, which alone its times can be compared with."""
    path = f".clock/{secrets.token_hex(8)}"
    calls.write(path, b"now")
    try:
        return calls.look(path).last_modified
    finally:
        calls.delete(path)


def _remove(calls: KeyedCalls, paths: Iterable[str]) -> None:
    for path in paths:
        calls.delete(path)
