"""Shelves: catalogs side by side; which of them has a run or a checkpoint, and which may be changed."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_checkpoint import forks
from model_checkpoint.api.errors import NotFoundHere, ReadOnlyHere
from model_checkpoint.api.library.result_cache import ResultCache
from model_checkpoint.api.library.root_mirror import RootMirror
from model_checkpoint.api.library.served_places import ServedPlaces, discover
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, RunOverview, open_catalog
from model_checkpoint.database.opening.database_url import is_file, read_url, shown
from model_checkpoint.database.values.file_urls import file_url
from model_checkpoint.performance.lru import LRUCache

if TYPE_CHECKING:
    from model_checkpoint.checkpoint.managed_checkpoints import ManagedCheckpoints

_SEEN = 64  # a change of one part in so many is not seen in a sparkline
_LOOK_SECONDS = 5.0  # between two looks for new roots below the folders that were named


@dataclass(frozen=True, slots=True)
class _ShelfRecorder:
    """Where a manager records what it does: the part of a tracker it needs."""

    connection: EnhancedDatabaseConnection
    spool_folder: str


class Shelf:
    """One catalog; without one of its own, plain roots share a catalog that is made from them, and only read."""

    def __init__(
        self, connection: EnhancedDatabaseConnection, *, writable: bool, spool: str, mirror: bool = False
    ) -> None:
        self.connection, self.mirror = connection, mirror  # a mirror is made from plain roots
        self._writable, self._spool = writable, spool
        self._managers = LRUCache(64)
        self._sparks = LRUCache(5000)

    @property
    def writable(self) -> bool:
        """Whether checkpoints of this shelf may be pinned, deleted and repaired from here."""
        return self._writable and not self.connection.read_only

    @property
    def keeps_verdicts(self) -> bool:
        """Whether what a verification finds is recorded: not in the catalog of a server that changes nothing."""
        return self.mirror or self.writable

    def told_by(self, root: str) -> str:
        """What a command on ``root`` must say so that this catalog hears of it, quoted for a shell.

        Nothing where it finds the catalog by itself: in the root. A password is never shown.
        """
        url = read_url(self.connection.database_url)
        own = is_file(url) and os.path.abspath(str(url.database)) == os.path.abspath(f"{root}/catalog.db")
        return "" if own else f"--database {shlex.quote(shown(url))}"

    def sparklines(self, series: Mapping[str, tuple[str, int]]) -> dict[str, list[float | None]]:
        """Of each run one series as a few numbers; drawn anew when so many points came that one would see it.

        Args:
            series: The metric of each run, and how many points it has.
        """
        lines, stale = dict[str, list[float | None]](), dict[str, str]()
        for run, (key, count) in series.items():
            drawn, line = self._sparks.get((run, key)) or (0, [])
            if drawn and drawn <= count <= drawn + drawn // _SEEN:
                lines[run] = line
            else:
                stale[run] = key
        for run, line in self.connection.sparklines(stale).items():
            lines[run] = line
            self._sparks.set((run, series[run][0]), (series[run][1], line))
        return lines

    def manager(self, root: str) -> ManagedCheckpoints:
        """Who changes the checkpoints of a root of this shelf.

        Raises:
            ReadOnlyHere: Nobody may.
        """
        if not self.writable:
            raise ReadOnlyHere(
                "nothing is changed here: the server was started read-only, or shows plain roots, of which nothing is "
                "recorded. Use `mckpt` on the root itself, or serve its catalog."
            )
        known: ManagedCheckpoints | None = self._managers.get(root)
        if known is None:  # brings all that saves and loads, which a server that shows does without
            from model_checkpoint.checkpoint.managed_checkpoints import ManagedCheckpoints
            from model_checkpoint.checkpoint.manager_options import ManagerOptions
            from model_checkpoint.checkpoint.opening import open_services

            recorder = _ShelfRecorder(self.connection, self._spool)
            services = open_services(
                root,
                tracker=recorder,
                backend="native",
                database_url=None,
                options=ManagerOptions(caching=False),
                cache_size=64,
                cache_ttl=1.0,
            )
            known = ManagedCheckpoints(services, None)
            self._managers.set(root, known)
        return known


class Library:
    """All shelves of one server.

    Example:
        >>> import model_checkpoint as mc
        >>> _ = mc.save("memory://doc-library", {"a": 1}, step=1)
        >>> with Library(["memory://doc-library"]) as library:
        ...     [run.experiment.name for shelf in library.shelves() for run in shelf.connection.overviews()]
        ['doc-library']
    """

    def __init__(
        self,
        places: Sequence[str],
        *,
        database_url: str | None = None,
        read_only: bool = False,
        cache_dir: str | None = None,
    ) -> None:
        self._places, self._read_only = tuple(places), read_only
        self._database_url = database_url
        self._home = tempfile.mkdtemp(prefix="mckpt-serve-")
        self.result_cache = ResultCache(cache_dir or default_cache())
        self._lock = forks.lock()
        self._open: dict[str, Shelf] = {}
        self._mirror: tuple[Shelf, RootMirror] | None = None
        self._found, self._looked = ServedPlaces(), float("-inf")
        try:
            self.shelves()
        except BaseException:
            self.close()
            raise

    @property
    def read_only(self) -> bool:
        """Whether nothing at all may be changed."""
        return self._read_only

    def shelves(self) -> list[Shelf]:
        """Every shelf, as it is now."""
        with self._lock:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                self._look()
            shelves = list(self._open.values())
            if self._found.roots:
                shelf, mirror = self._mirrored()
                mirror.refresh(self._found.roots)
                shelves.append(shelf)
            return shelves

    def _look(self) -> None:
        found = discover(self._places)
        named = () if self._database_url is None else (self._database_url,)
        for url in (*named, *found.databases):
            if url not in self._open:
                connection = open_catalog(url, not self._read_only)
                spool = f"{self._home}/spool-{len(self._open)}"
                self._open[url] = Shelf(connection, writable=not self._read_only, spool=spool)
        covered = {space.root for shelf in self._open.values() for space in shelf.connection.spaces()}
        bare = tuple(root for root in found.roots if root not in covered)
        self._found = ServedPlaces(databases=found.databases, roots=bare)
        self._looked = time.monotonic()

    def _mirrored(self) -> tuple[Shelf, RootMirror]:
        if self._mirror is None:
            connection = open_catalog(file_url(f"{self._home}/mirror.db"))
            shelf = Shelf(connection, writable=False, spool=f"{self._home}/spool", mirror=True)
            self._mirror = shelf, RootMirror(connection)
        return self._mirror

    def run(self, run_id: str) -> tuple[Shelf, RunOverview]:
        """A run by its id, and its shelf."""
        for shelf in self.shelves():
            found = shelf.connection.overviews([run_id])
            if found:
                return shelf, found[0]
        raise NotFoundHere(f"run {run_id!r}: there is none of that id. List the runs first.")

    def checkpoint(self, checkpoint_id: str) -> tuple[Shelf, Checkpoint]:
        """A checkpoint by its id, deleted or not, and its shelf."""
        for shelf in self.shelves():
            found = shelf.connection.get_checkpoint(checkpoint_id)
            if found is not None:
                return shelf, found
        raise NotFoundHere(f"checkpoint {checkpoint_id!r}: there is none of that id. List the checkpoints first.")

    def close(self) -> None:
        """Let go of all catalogs, and of what was kept for this server alone."""
        for shelf in (*self._open.values(), *([self._mirror[0]] if self._mirror else [])):
            shelf.connection.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def default_cache() -> str:
    """Where what took long to compute is kept: the user's cache folder.

    Example:
        >>> default_cache().endswith("model_checkpoint/dashboard")
        True
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return f"{home}/model_checkpoint/dashboard"
