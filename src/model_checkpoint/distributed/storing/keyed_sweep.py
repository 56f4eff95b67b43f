"""Keyed sweep: remove from a storage what nobody needs any more.

Paths are listed before marks, marks before records, records before the trash: a save that ends meanwhile puts its
record before it removes its mark, and a deletion fills the trash before it removes the record, so nothing needed is
missed. A dead attempt is given up like one that the ranks lose patience with, or carried out if that was decided,
before anything of it goes. Its verdict goes last, a grace after the mark: without either nobody publishes any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable
from contextlib import suppress
from datetime import datetime

from model_checkpoint.distributed.storing.keyed_attempt import decide, is_living, mark_path
from model_checkpoint.distributed.storing.keyed_calls import KeyedCalls
from model_checkpoint.distributed.storing.keyed_files import KeyedRecord, decode_record, record_path
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.names import TrashToken
from model_checkpoint.storage.contract.store import Swept, Tell, Waiting

DATA, MARKS, RECORDS, TRASH, VERDICTS = "data/", ".attempts/", "checkpoints/", ".trash/", ".verdicts/"


def sweep(calls: KeyedCalls, graces: Graces, *, dry_run: bool, tell: Tell) -> Swept:
    """See :meth:`model_checkpoint.storage.contract.store.Store.sweep`."""
    data, verdicts, marks = calls.list(DATA), calls.list(VERDICTS), calls.list(MARKS)
    if not (data or verdicts or marks or calls.list(TRASH)):
        return Swept()
    now = _clock(calls)
    ages = {path: _age(calls, path, now) for path in marks}
    alive = [one for one in (path.removeprefix(MARKS) for path in marks) if is_living(calls.url, one)]
    waits = {path.removeprefix(MARKS): graces.foreign - ages[path] for path in marks}
    dead = [one for one, left in waits.items() if one not in alive and left <= 0]
    if not dry_run:
        _decide_all(calls, dead)
    held = {at for record in _records(calls, calls.list(RECORDS)) for at, _ in record.files.values()}
    trash = calls.list(TRASH)
    ages |= {path: _age(calls, path, now) for path in trash}
    past = _past_verdicts(calls, verdicts, waits, now, graces)
    left = {path: graces.of_trash(path.removeprefix(TRASH)) - ages[path] for path in trash}
    over = [path for path in trash if left[path] <= 0]
    deleted = _records(calls, [path for path in trash if path not in over])
    held |= {at for record in deleted for at, _ in record.files.values()}
    orphans = [path for path in data if path not in held and path.split("/")[1] not in waits.keys() - set(dead)]
    nbytes = sum(calls.look(path).size for path in (*orphans, *past))
    nbytes += sum(len(record.manifest or b"") for record in _records(calls, over))
    if not dry_run:
        _remove(calls, orphans)
        for path in over:
            calls.delete(path)
            tell(path.removeprefix(TRASH))
        for one in dead:
            calls.delete(mark_path(one))
            tell(one)
        _remove(calls, past)
    waiting = [
        Waiting(key=one, seconds=None if one in alive else left) for one, left in waits.items() if one not in dead
    ]
    waiting += [Waiting(key=path.removeprefix(TRASH), seconds=left[path]) for path in trash if path not in over]
    return Swept(
        attempts=dead, trashed=[path.removeprefix(TRASH) for path in over], alive=alive, nbytes=nbytes, waiting=waiting
    )


def _decide_all(calls: KeyedCalls, dead: Iterable[str]) -> None:
    """End dead attempts for good, so that no process of theirs that goes on publishes what is removed next."""
    for one in dead:
        with suppress(FileNotFoundError):  # over by now
            decide(calls, calls.read(mark_path(one)).decode(), one)


def _past_verdicts(
    calls: KeyedCalls, verdicts: Iterable[str], marked: Container[str], now: datetime, graces: Graces
) -> list[str]:
    """Verdicts that nobody asks for any more: those of attempts without a mark, after the grace.

    One about the deletion of a checkpoint that is there stays: who was stopped in that may go on at any time.
    """
    past = [path for path in verdicts if path.removeprefix(VERDICTS) not in marked]
    past = [path for path in past if _age(calls, path, now) >= graces.foreign]
    tokens = {path: TrashToken.find(path.removeprefix(VERDICTS)) for path in past}
    return [path for path, token in tokens.items() if token is None or not calls.exists(record_path(token.name))]


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
