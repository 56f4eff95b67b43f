"""Changes: what changed between two looks at the shelves, and what the server itself did, in one numbered row.

Shelves are looked at only while somebody listens, and at most a few times a second however many do.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from model_checkpoint import forks
from model_checkpoint.api.library.shelves import Library, Shelf
from model_checkpoint.api.live.file_version import FileVersion
from model_checkpoint.database.opening.database_url import is_file, read_url
from model_checkpoint.database.records import Experiment
from model_checkpoint.database.summed_records import RunPulse
from model_checkpoint.tracking.reporting.vitals import RunState, judge_run

ChangeType = Literal["points", "step", "checkpoint", "run", "job", "damage", "reset"]
EVERY = 0.25  # seconds between two looks, and between two messages
_KEPT = 2000


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that changed; ``since`` is the step behind which points are new, if that is all."""

    type: ChangeType
    id: str
    since: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it is sent."""
        return {"type": self.type, "id": self.id, "since": self.since}


class ChangeLog:
    """The latest changes, each with a number.

    Example:
        >>> log = ChangeLog(lambda: [])
        >>> log.add(Change("job", "j1"))
        >>> log.after(0)
        ([Change(type='job', id='j1', since=None)], 1)
    """

    def __init__(self, look: Callable[[], list[Change]]) -> None:
        self.boot = secrets.token_hex(4)  # numbers of another server mean nothing here
        self._look, self._lock = look, forks.lock()
        self._looked = float("-inf")
        self._count = 0
        self._changes: deque[tuple[int, Change]] = deque(maxlen=_KEPT)

    def add(self, *changes: Change) -> None:
        """Note changes."""
        with self._lock:
            self._append(changes)

    def _append(self, changes: tuple[Change, ...] | list[Change]) -> None:
        for change in changes:
            self._count += 1
            self._changes.append((self._count, change))

    def refresh(self) -> None:
        """Look at the shelves, unless somebody did a moment ago."""
        with self._lock:
            if time.monotonic() - self._looked < EVERY:
                return
            self._looked = time.monotonic()
            self._append(self._look())

    @property
    def last(self) -> int:
        """The number of the latest change."""
        return self._count

    def after(self, number: int) -> tuple[list[Change], int]:
        """What came behind a number, each change once, and the latest number; ``reset`` if some of it is forgotten."""
        with self._lock:
            oldest = self._changes[0][0] if self._changes else self._count + 1
            if number > self._count or number < oldest - 1:
                return [Change("reset", "")], self._count
            return _merged([change for place, change in self._changes if place > number]), self._count


def _merged(changes: list[Change]) -> list[Change]:
    """Each thing once: of new points of one run, those since the first."""
    found: dict[tuple[str, str], Change] = {}
    for change in changes:
        key = (change.type, change.id)
        first = found.get(key, change)
        ends = [one.since for one in (first, change)]
        found[key] = Change(
            change.type, change.id, None if None in ends else min(one for one in ends if one is not None)
        )
    return list(found.values())


class ShelfWatch:
    """Finds what changed on all shelves since it looked last."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[int, Mapping[str, RunPulse]] = {}
        self._states: dict[int, Mapping[str, RunState]] = {}
        self._files: dict[int, FileVersion] = {}
        self._versions: dict[int, tuple[Any, ...]] = {}

    def look(self) -> list[Change]:
        """What changed; at the first look nothing, since nobody knows what was before."""
        return [change for shelf in self._library.shelves() for change in self._look_at(shelf)]

    def _look_at(self, shelf: Shelf) -> list[Change]:
        place, found = id(shelf), list[Change]()
        version = self._version(shelf)  # before the rows: what comes between the two is looked at again
        if version is None or self._versions.get(place) != version:  # else there is nothing new to be read
            now, before = shelf.connection.pulses(), self._known.get(place)
            if before is not None:
                found.extend(_changes(before, now))
            self._known[place] = now
            if version is not None:
                self._versions[place] = version
        return [*found, *self._fallen_silent(shelf)]

    def _version(self, shelf: Shelf) -> tuple[Any, ...] | None:
        if id(shelf) not in self._files:
            url = read_url(shelf.connection.database_url)
            if not is_file(url):
                return None
            self._files[id(shelf)] = FileVersion(str(url.database))
        return self._files[id(shelf)].read()

    def _fallen_silent(self, shelf: Shelf) -> list[Change]:
        """Runs that are judged otherwise than at the last look: silence writes nothing, so the clock has to tell."""
        running = {run: pulse for run, pulse in self._known[id(shelf)].items() if pulse.status == "running"}
        now = shelf.connection.now() if running else 0.0
        states = {run: _state(run, pulse, now) for run, pulse in running.items()}
        before = self._states.get(id(shelf), {})
        self._states[id(shelf)] = states
        return [Change("run", run) for run, state in states.items() if before.get(run, state) is not state]


def _state(run: str, pulse: RunPulse, now: float) -> RunState:
    row = Experiment(
        id=run,
        name="",
        status=pulse.status,
        start_time=pulse.started,
        last_seen=pulse.last_seen,
        last_step_at=pulse.last_step_at,
    )
    return judge_run(row, now).state


def _changes(before: Mapping[str, RunPulse], now: Mapping[str, RunPulse]) -> Iterator[Change]:
    for run, pulse in now.items():
        old = before.get(run)
        if old == pulse:
            continue
        if old is None or (old.status, old.words) != (pulse.status, pulse.words):
            yield Change("run", run)
        if old is None:
            continue
        if old.step != pulse.step:
            yield Change("step", run)
        if old.points != pulse.points:
            further = old.last_step is not None and pulse.last_step is not None and pulse.last_step > old.last_step
            yield Change("points", run, old.last_step if further else None)
        if _of_checkpoints(old) != _of_checkpoints(pulse):
            yield Change("checkpoint", run)
        if old.damaged != pulse.damaged:
            yield Change("damage", run)
    yield from (Change("run", run) for run in before.keys() - now.keys())


def _of_checkpoints(pulse: RunPulse) -> tuple[Any, ...]:
    return pulse.checkpoints, pulse.saved, pulse.checkpoint_words
