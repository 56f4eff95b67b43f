"""Tracker options: how a tracker carries metrics on, and where they wait while the database is away."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from model_checkpoint.database.opening.database_url import is_file, read_url, shown
from model_checkpoint.database.schema.migration import Notify, ignore_change
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.hooks import HookManager
from model_checkpoint.tracking.metric_queue import CAPACITY, WhenFull
from model_checkpoint.tracking.migration_hooks import migration_notifier
from model_checkpoint.tracking.reporting.vitals import BEAT_SECONDS
from model_checkpoint.tracking.spool import LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """How a tracker carries metrics on.

    Example:
        >>> TrackerOptions(when_full="drop").queue_points
        500000
    """

    when_full: WhenFull = "block"  # what a logging call does when the queue is full: wait, or drop and count
    queue_points: int = CAPACITY
    spool_folder: str | os.PathLike[str] | None = None  # None: beside a SQLite file, else in the user's state folder
    spool_bytes: int = LIMIT
    beat_seconds: float = BEAT_SECONDS  # how often the run says that it lives
    bridge_seconds: float = 10.0  # how long the end of a run waits for each other tracker, at most
    hooks: HookManager | None = None  # who hears of a migration, which may come with the first word of a run

    def __post_init__(self) -> None:
        if self.when_full not in get_args(WhenFull):
            raise OptionInvalid(f"when_full must be 'block' or 'drop', got {self.when_full!r}. Nothing was done.")

    @property
    def notify(self) -> Notify:
        """What the database tells of a migration."""
        return ignore_change if self.hooks is None else migration_notifier(self.hooks)

    def spool_home(self, database_url: str) -> str:
        """Where what the database did not take waits, so that the next start finds it.

        Example:
            >>> TrackerOptions().spool_home("sqlite:////data/runs.db")
            '/data/runs.db.spool'
        """
        if self.spool_folder is not None:
            return os.path.abspath(self.spool_folder)
        url = read_url(database_url)
        if is_file(url):
            return f"{url.database}.spool"
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        name = hashlib.sha256(shown(url).encode()).hexdigest()[:16]  # no password, not even a trace of one
        return str(Path(state) / "model_checkpoint" / "spool" / name)
