"""Run lines: which tests run a line of a room and how long each takes, kept until the room or the tests change.

A change in another room may lead a test to other lines of this one. What is kept then names a test too many, which
costs time, or one too few, which can let a mutant live but never kills one: no reason to record all rooms again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

_ENOUGH = 60.0  # seconds of tests for one mutant; beyond them only the longest are left
Ran = dict[str, list[int]]  # lines by the path of their file


class RunLines:
    """What was recorded of the tests of a room."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))

    def add(self, test: str, seconds: float, ran: Ran) -> None:
        """Take in one test."""
        self.seconds[test] = seconds
        for path, lines in ran.items():
            for line in lines:
                self._tests[path][line].add(test)

    def tests_of(self, path: str, first: int, last: int) -> list[str]:
        """The tests that run any of these lines, the quickest first."""
        lines = self._tests[path]
        return self._in_order(test for line in range(first, last + 1) for test in lines[line])

    def tests_around(self, path: str) -> list[str]:
        """The tests that run anything of a file, the quickest first."""
        return self._in_order(test for tests in self._tests[path].values() for test in tests)

    def _in_order(self, tests: Iterable[str]) -> list[str]:
        ordered = sorted(set(tests), key=lambda test: (self.seconds[test], test))
        spent = accumulate(self.seconds[test] for test in ordered)
        return [test for test, total in zip(ordered, spent, strict=True) if total <= _ENOUGH]


class Shelf:
    """Keeps what the tests of a module ran, under the digest of that module, of the room and of what tests share."""

    def __init__(self, kept: Path, tree: Path, room: str) -> None:
        self._tree, self._folder = tree, kept / f"{room}-{_digest(_files_below_all_tests(tree, room), tree)}"
        for stale in set(kept.glob(f"{room}-*")) - {self._folder}:
            shutil.rmtree(stale)
        self._folder.mkdir(parents=True, exist_ok=True)

    def take(self, module: Path) -> dict[str, tuple[float, Ran]] | None:
        """Seconds and lines of every test of the module that passes; None if they are to be recorded."""
        path = self._path(module)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, module: Path, tests: dict[str, tuple[float, Ran]]) -> None:
        """Keep them; a reader sees all or nothing."""
        path = self._path(module)
        half = path.with_suffix(".half")
        half.write_text(json.dumps(tests))
        half.replace(path)

    def _path(self, module: Path) -> Path:
        return self._folder / f"{_digest([module], self._tree)}.json"


def _files_below_all_tests(tree: Path, room: str) -> list[Path]:
    """Sources of the room, settings and what tests share: all but the modules of tests themselves."""
    shared = [one for one in (tree / "tests").rglob("*.py") if not one.name.startswith("test_")]
    sources = (tree / "src" / "model_checkpoint" / room).rglob("*.py")
    return sorted([*sources, *shared, *tree.glob("*.py"), *tree.glob("*.toml")])


def _digest(files: Iterable[Path], tree: Path) -> str:
    total = hashlib.sha256(sys.version.encode())
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(tree)} {content}\n".encode())
    return total.hexdigest()[:24]


__all__ = ["Ran", "RunLines", "Shelf"]
