"""Delivery: what a run has to say reaches the database, or waits in the spool while that is away.

Nothing here raises because a database is away: it is told once, records go to the spool, and every so often it is tried
again; when it is back, the spool is replayed first. A replayed record may have reached the database before, so what is
done with each is the same done twice.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint import forks
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.errors import DatabaseUnreachable, RowRefused, SchemaOutdated, SchemaTooNew
from model_checkpoint.database.records import Experiment
from model_checkpoint.errors import OptionInvalid, StorageFailure, WrongReference
from model_checkpoint.tracking.metric_queue import Logged
from model_checkpoint.tracking.run_change import RunChange
from model_checkpoint.tracking.spool import Spool

log = logging.getLogger("model_checkpoint.tracking")

RUN, CHANGE, METRICS = "run", "change", "metrics"
AWAY = (DatabaseUnreachable, SchemaTooNew, SchemaOutdated)
REFUSALS = (RowRefused, WrongReference, OptionInvalid)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_REPLAY_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Where the points of this process are; truthy if all of them are in the database.

    Example:
        >>> bool(Tally(stored=20)), bool(Tally(stored=20, spooled=20))
        (True, False)
    """

    stored: int = 0  # in the database
    spooled: int = 0  # on disk, until the database is back
    refused: int = 0  # on disk, since the database does not take them
    dropped: int = 0  # gone: the queue or the spool was full

    def __bool__(self) -> bool:
        return not (self.spooled or self.refused or self.dropped)


class _MoreToReplay(Exception):
    """The time for this round is over; what was replayed stays so."""


class Delivery:
    """The way to one database; one for each tracker, any thread.

    Args:
        connection: The database, which need not be there.
        spool: Where records wait meanwhile.
    """

    def __init__(self, connection: EnhancedDatabaseConnection, spool: Spool) -> None:
        self.connection, self._spool = connection, spool
        self._guard = forks.lock()
        self._begin()
        forks.in_child(self._begin)

    def _begin(self) -> None:
        """At the start, and in a forked child, which counts what it says itself."""
        self._token = uuid.uuid4().hex
        self._there, self._told = False, False
        self._pause, self._next_try = _FIRST_PAUSE, 0.0
        self._stored = self._spooled = self._refused = self._dropped = 0
        self._replayed, self._round, self._replay_until = 0, 0, 0.0

    def tally(self) -> Tally:
        """Where the points of this process are."""
        with self._guard:
            return Tally(stored=self._stored, spooled=self._spooled, refused=self._refused, dropped=self._dropped)

    def record(self, kind: str, payload: dict[str, Any]) -> bool:
        """Write down something about the run; whether it is in the database rather than in the spool.

        Raises:
            RowRefused: The catalog does not take it; trying again does not help.
        """
        with self._guard:
            if self._is_there(urgent=False):
                try:
                    self._apply(kind, payload)
                    return True
                except AWAY as error:
                    self._depart(error)
            try:
                self._spool.put(kind, payload)
            except StorageFailure as error:
                log.error("neither the database nor the spool takes %s of the run: %s", kind, error)
            return False

    def deliver(self, experiment_id: str, batch: Sequence[Logged], *, urgent: bool, durable: bool) -> None:
        """Write the metrics of some calls; ``urgent`` tries a database that was away before its time."""
        points = _points(batch)
        payload = {"experiment_id": experiment_id, "logged": batch, "by": self._token}
        with self._guard:
            there = self._is_there(urgent=urgent)
            if points == 0:
                return
            if there and self._write(payload, points, durable=durable):
                return
            try:
                self._spool.put(METRICS, payload)
                self._spooled += points
            except StorageFailure as error:
                self._drop(points, error)

    def _write(self, payload: dict[str, Any], points: int, *, durable: bool) -> bool:
        """Whether the points have found their place; the lock is held."""
        try:
            self.connection.write_calls(payload["experiment_id"], payload["logged"], durable=durable)
            self._stored += points
        except REFUSALS as error:
            self._set_aside(payload, points, error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the points are kept, and the thread goes on
            self._depart(error)
            return False
        return True

    def beat(self, experiment_id: str, step: int | None, *, durable: bool) -> None:
        """Say that the run lives, and how far it is; says nothing while the database is away."""

        def say() -> None:
            self.connection.heartbeat(experiment_id, step=step)

        with self._guard:
            if self._is_there(urgent=False):
                try:
                    self.connection.together(say, durable=durable)
                except REFUSALS as error:
                    log.debug("%s: no sign of life: %s", experiment_id, error)
                except AWAY as error:
                    self._depart(error)

    def close(self) -> None:
        """Leave what waits in the spool to whoever comes next; the connection stays open."""
        self._spool.close()

    def _is_there(self, *, urgent: bool) -> bool:
        """Whether the database can be written to; tries one that was away if it is time. The lock is held."""
        if self._there:
            return True
        if time.monotonic() < self._next_try - (self._pause - _FIRST_PAUSE if urgent else 0.0):
            return False
        try:
            self._arrive()
        except AWAY as error:
            self._depart(error)
        return self._there

    def _arrive(self) -> None:
        """See that the database answers, and replay what waits, for a moment at a time; the lock is held.

        While there is more, new records go behind it, so that nobody who logs has to wait for all of it.
        """
        self.connection.now()
        self._round, self._replay_until = 0, time.monotonic() + _REPLAY_SECONDS
        try:
            self._spool.replay_batches(self._replay, refusals=REFUSALS)
        except _MoreToReplay:
            self._pause, self._next_try = _FIRST_PAUSE, 0.0
            return
        except StorageFailure as error:
            log.error("the spool cannot be replayed; what is in it stays there: %s", error)
        else:
            self._stored, self._spooled = self._stored + self._spooled, 0  # handed on by us, or by another process
        if self._told or self._replayed:
            log.info("the database is there; %d records of the spool were replayed", self._replayed)
        self._there, self._told, self._pause, self._replayed = True, False, _FIRST_PAUSE, 0

    def _depart(self, error: Exception) -> None:
        """The database is away; told once, tried again later and later. The lock is held."""
        if not self._told:
            log.warning(
                "the database is away, so what is logged waits in %s until it is back; training goes on: %s",
                *(self._spool.folder, error),
            )
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if self._told else _FIRST_PAUSE
        self._there, self._told, self._next_try = False, True, time.monotonic() + self._pause

    def _replay(self, kind: str, payloads: list[dict[str, Any]]) -> None:
        """Bring some records of one kind into the database; the lock is held."""
        if self._round and time.monotonic() > self._replay_until:
            raise _MoreToReplay
        self._round += 1
        mine = sum(_points(one["logged"]) for one in payloads if one.get("by") == self._token)
        try:
            for payload in _merged(payloads) if kind == METRICS else payloads:
                self._apply(kind, payload)
        except REFUSALS:
            if len(payloads) == 1:  # several are tried one by one
                self._refused += mine
                self._spooled -= mine
            raise
        self._replayed += len(payloads)
        self._stored += mine
        self._spooled -= mine

    def _apply(self, kind: str, payload: dict[str, Any]) -> None:
        """Bring one record into the database; the same record twice changes nothing."""
        if kind == METRICS:
            self.connection.write_calls(payload["experiment_id"], payload["logged"], durable=True)
        elif kind == CHANGE:
            self.connection.edit_experiment(payload["id"], lambda run: RunChange(**payload["change"]).made(run))
        elif kind == RUN:
            self.connection.save_experiment(Experiment(**payload))
        else:
            raise RowRefused(f"spool: a record of unknown kind {kind!r}; a newer version wrote it. Upgrade.")

    def _set_aside(self, payload: dict[str, Any], points: int, error: Exception) -> None:
        if not self._refused:
            log.error("the database refuses metrics, which are set aside in %s: %s", self._spool.folder, error)
        try:
            self._spool.set_aside(METRICS, payload)
            self._refused += points
        except StorageFailure as failure:
            self._drop(points, failure)

    def _drop(self, points: int, error: StorageFailure) -> None:
        if not self._dropped:
            log.error("metrics are dropped, since neither the database nor the spool takes them: %s", error)
        self._dropped += points


def _points(calls: Iterable[Any]) -> int:
    return sum(len(values) for _, _, values in calls)


def _merged(payloads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics of each run together."""
    runs: dict[str, list[Any]] = {}
    for payload in payloads:
        runs.setdefault(payload["experiment_id"], []).extend(payload["logged"])
    return [{"experiment_id": run, "logged": logged} for run, logged in runs.items()]
