"""Rehearsed room: the process of a rehearsal, seen from the workshop that asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_TOOL = Path(__file__).resolve().parent.parent
_START = "import sys; sys.path.append(sys.argv[1]); from mutants.rehearsal import main; sys.exit(main(*sys.argv[2:]))"


class Answer(NamedTuple):
    """What the tests said that run the lines of a mutant."""

    failed: list[str]
    late: bool
    whole: bool  # every test that could tell was run
    around: list[str]  # tests that run anything of the file


class RehearsedRoom:
    """Asks one mutant at a time."""

    def __init__(self, folder: Path, room: str, *, kept: Path, also: Sequence[str] = ()) -> None:
        theirs, self._requests = os.pipe()
        self._answers, ours = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(_TOOL), str(folder), room, str(kept), str(theirs), str(ours), *also],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs, ours),
        )
        os.close(theirs)
        os.close(ours)
        self._from, self._to = os.fdopen(self._answers), os.fdopen(self._requests, "w")
        self.tests: int = self._hear()["tests"]

    def ask(self, path: Path, lines: tuple[int, int], source: bytes, changed: bytes, *, seconds: float) -> Answer:
        """Try one."""
        wish = {"path": str(path), "first": lines[0], "last": lines[1], "seconds": seconds}
        wish |= {"source": source.decode(), "changed": changed.decode()}
        said = self._hear(wish)
        whole = not said["import"] and not said["at_import"]
        return Answer(_failed(said), said["end"] == "late", whole, said["around"])

    def passes(self, test: str, *, seconds: float) -> bool:
        """Tell whether a test passes by itself on the sources as they are."""
        said = self._hear({"test": test, "seconds": seconds})
        return said["end"] == "whole" and not _failed(said)

    def _hear(self, wish: dict[str, Any] | None = None) -> dict[str, Any]:
        if wish is not None:
            print(json.dumps(wish), file=self._to, flush=True)
        line = self._from.readline()
        if not line:
            raise RuntimeError(f"the tests could not be rehearsed: exit code {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def close(self) -> None:
        """No more requests."""
        self._to.close()
        self._from.close()
        self._process.wait()


def _failed(said: dict[str, Any]) -> list[str]:
    """Return the test that failed, or during which the process died."""
    failed = said["failed"] or (said["running"] if said["end"] == "died" else None)
    return [failed] if failed else []


__all__ = ["Answer", "RehearsedRoom"]
