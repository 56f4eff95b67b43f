"""Workshop: a copy of the tree in which a mutant runs against the tests of its room; the checkout is never touched."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from typing import NamedTuple

from mutants.kinds import Mutant, statement_lines
from mutants.rehearsed_room import RehearsedRoom

_PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--timeout=60")
_MEMORY = 12 << 30  # a wrong constant may ask for more than the machine has

BESIDE = "beside"  # what the modules that lie beside the rooms are called together


class Fate(Enum):
    """What became of a mutant."""

    KILLED = "a test failed that passes without the change"
    LIVED = "every test passed"
    UNSURE = "no end in time, or the test that failed does so without the change too"


@dataclass(frozen=True, slots=True)
class Site:
    """A mutant of one file, given from the root of the tree."""

    path: Path
    mutant: Mutant

    def __str__(self) -> str:
        after = self.mutant.after if len(self.mutant.after) <= 90 else f"{self.mutant.after[:87]}..."
        before = self.mutant.before if len(self.mutant.before) <= 90 else f"{self.mutant.before[:87]}..."
        return f"{self.path}:{self.mutant.line}: {before}  ->  {after}"


class Run(NamedTuple):
    """How a run of pytest ended."""

    code: int | None  # None: it was ended
    failed: list[str]


class Workshop:
    """One copy of the tree."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self._seconds = folder, count(1)
        self._kept = root / "build" / "mutants"
        self._rehearsed: RehearsedRoom | None = None
        self._sound: dict[str, bool] = {}  # whether a test passes on the sources as they are
        copy_tree(root, folder)

    def knows(self, room: str) -> bool:
        """Whether tests of the room were recorded before, so that little is left to learn."""
        return any(self._kept.glob(f"{room}-*"))

    def rehearse(self, room: str, *, also: Sequence[str] = ()) -> None:
        """Import the tests of a room, and ``also`` others, once and learn what each runs; worth it for some mutants."""
        self.close()
        self._rehearsed = RehearsedRoom(self.folder, room, kept=self._kept, also=also)

    def close(self) -> None:
        """End the process of the rehearsed room."""
        if self._rehearsed is not None:
            self._rehearsed.close()

    def try_mutant(self, site: Site, room: str, *, seconds: float) -> Fate:
        """Make the change, run the tests that tell, and undo it."""
        path = self.folder / site.path
        source = path.read_bytes()
        changed = site.mutant.apply(source)
        self._write(path, changed)
        try:
            run = self._trial(site, room, source, changed, seconds)
        finally:
            self._write(path, source)
        if run.code == 0:
            return Fate.LIVED
        told = run.code is not None and all(self._passes_unchanged(test, seconds) for test in run.failed)
        return Fate.KILLED if told else Fate.UNSURE

    def _trial(self, site: Site, room: str, source: bytes, changed: bytes, seconds: float) -> Run:
        """Ask the rehearsed room first; what an import runs is tried in a new process, nearest tests first."""
        nearest = nearest_tests(self.folder, site.path, room)
        if self._rehearsed is None:
            return self._run(nearest, seconds=seconds)
        lines = statement_lines(source, site.mutant)
        answer = self._rehearsed.ask(site.path, lines, source, changed, seconds=seconds)
        if answer.failed or answer.late:
            return Run(None if answer.late else 1, answer.failed)
        return Run(0, []) if answer.whole else self._run(answer.around or nearest, seconds=seconds)

    def _passes_unchanged(self, test: str, seconds: float) -> bool:
        if test not in self._sound and self._rehearsed is not None and "::" in test:
            self._sound[test] = self._rehearsed.passes(test, seconds=seconds)
        if test not in self._sound:
            only = [test] if "::" in test else [test, "--collect-only"]  # a whole file could not be imported
            self._sound[test] = self._run(only, seconds=seconds).code == 0
        return self._sound[test]

    def _write(self, path: Path, source: bytes) -> None:
        """Write with a time no other version has had: Python tells a stale compiled file by time and size alone."""
        path.write_bytes(source)
        os.utime(path, times=(next(self._seconds),) * 2)

    def _run(self, arguments: list[str], *, seconds: float) -> Run:
        scratch = self.folder / ".scratch"
        scratch.mkdir()
        settings = {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": ""}
        process = subprocess.Popen(
            [*_PYTEST, f"--basetemp={scratch / 'tmp'}", "-o", f"cache_dir={scratch / 'cache'}", *arguments],
            cwd=self.folder,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
        try:
            code = process.wait(seconds)
            last = scratch / "cache" / "v" / "cache" / "lastfailed"
            return Run(code, list(json.loads(last.read_text())) if last.exists() else [])
        except subprocess.TimeoutExpired:
            return Run(None, [])
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(scratch, ignore_errors=True)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))


def copy_tree(root: Path, folder: Path) -> None:
    """Copy every file that git knows or would add, and the compiled modules."""
    listed = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=root).decode().split("\0")
    compiled = [str(path.relative_to(root)) for path in (root / "src").rglob("*.so")]
    for name in {*filter(None, listed), *compiled}:
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def nearest_tests(root: Path, path: Path, room: str) -> list[str]:
    """What to run for a file, nearest first: tests that bear its name, its sub-folder's, its room's, its doctests.

    A module beside the rooms has no tests of its own: those of any room that speak of it tell.
    """
    if room == BESIDE:
        named = sorted((root / "tests").rglob(f"test_*{path.stem}*.py"))
        words = f"model_checkpoint.{path.stem} ", f"model_checkpoint import {path.stem}\n"
        asking = [
            one for one in sorted((root / "tests").rglob("test_*.py")) if any(w in one.read_text() for w in words)
        ]
        return [str(one.relative_to(root)) for one in dict.fromkeys([*named, *asking, root / path])]
    home, cut = root / "tests" / room, path.parts.index(room) + 1
    below = path.with_suffix("").parts[cut:]
    named = sorted(home.rglob(f"test_*{below[-1]}*.py")) if below else []
    folders = [home.joinpath(*below[:depth]) for depth in range(len(below), 0, -1)]
    found = [*named, *(folder for folder in folders if folder.is_dir()), home, root.joinpath(*path.parts[:cut])]
    return [str(one.relative_to(root)) for one in dict.fromkeys(found)]


__all__ = ["BESIDE", "Fate", "Site", "Workshop", "copy_tree", "nearest_tests"]
