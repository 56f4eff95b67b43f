"""Commit time: when a checkpoint was saved, in an order that no clock set back turns round.

Which of two checkpoints is newer hangs on their times where they have no step, or the same one. So the time of a save
is later than every one that this process gave in the root before, and than those it found there when it first saved.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta

from model_checkpoint import forks
from model_checkpoint.engine.common.info import path_of
from model_checkpoint.engine.root.listing import ListedCheckpoint, read_listed, read_silent
from model_checkpoint.engine.writing.request import SaveRequest
from model_checkpoint.errors import CheckpointException
from model_checkpoint.plan import step_name, told_step
from model_checkpoint.storage.contract.store import Store

log = logging.getLogger("model_checkpoint.save")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_latest: dict[str, datetime] = {}  # by root: the latest time that was given or found there
_lock = forks.lock()
forks.in_child(lambda: _latest.clear())  # a child does not hear what its parent gives from now on; it looks for itself


def commit_time(store: Store, order: SaveRequest) -> str:
    """The present, or if a clock was set back, the moment after the latest time known of the root."""
    found = _found(store, order)
    with _lock:
        latest = max(found, _latest.get(store.url, _EPOCH))
        moment = max(_now(), _after(latest))
        _latest[store.url] = moment
    return moment.isoformat(timespec="microseconds")


def _now() -> datetime:
    return _EPOCH + timedelta(microseconds=time.time_ns() // 1000)


def _after(moment: datetime) -> datetime:
    return moment + _MICROSECOND if moment < datetime.max.replace(tzinfo=UTC) else moment


def _found(store: Store, order: SaveRequest) -> datetime:
    """The latest time of what may share its step with the save, as far as this process has not looked yet.

    A name that tells its step shares it only with names that tell none, so that an ordinary save looks but once.
    """
    rivals: list[ListedCheckpoint] = []
    try:
        if store.url not in _latest:
            rivals += read_silent(store)
        # asked whether it is there before it is read: the error of one that is not would hold on to the state
        if order.step is not None and told_step(order.name) is None and store.has(step_name(order.step)):
            named = read_listed(store, step_name(order.step))
            rivals += [] if named is None else [named]
    except CheckpointException as error:  # no reason to lose a save
        log.warning("%s: its time is that of the clock alone: %s", path_of(store, order.name), error)
    return max((_moment(one.created) for one in rivals if one.summary is not None), default=_EPOCH)


def _moment(created: str) -> datetime:
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except OverflowError:  # beyond the calendar, which no save has written
        return _EPOCH
