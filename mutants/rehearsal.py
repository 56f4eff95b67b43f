"""Rehearsal: a process that has all tests of a room imported, knows the lines each runs, and forks for a mutant.

``rehearsed_room`` starts it. In a child the code of live functions is swapped, so a mutant costs no import; processes
that its tests start read the changed file.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

from mutants.code_swap import swap
from mutants.started import sitecustomize

_MEMORY = 12 << 30  # a wrong constant may ask for more than the machine has
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_AT_IMPORT = ""  # the test that runs what importing the tests runs


class Rehearsal:
    """A plugin that answers requests where pytest would run the tests."""

    def __init__(self, folder: Path, room: str, requests: int, answers: int) -> None:
        self.folder, self._sources = folder, f"{folder / 'src' / 'model_checkpoint' / room}{os.sep}"
        self._requests, self._answers = requests, answers
        self._walked: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._seconds: dict[str, float] = {}
        self._failed: list[str] = []
        self._coverage = self._watch()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, or how long a test took."""
        if report.failed:
            self._failed.append(report.nodeid)
        elif report.when == "call":
            self._seconds[report.nodeid] = report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn which lines each test runs, then answer until there are no more requests."""
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        self._coverage.stop()
        self._note_lines()
        self._in_child(lambda: self._record(session), seconds=3600.0)
        self._read_record()
        with os.fdopen(self._requests) as requests, os.fdopen(self._answers, "w") as answers:
            print(json.dumps({"tests": len(self._seconds)}), file=answers, flush=True)
            for line in requests:
                print(json.dumps(self._answer(session, json.loads(line))), file=answers, flush=True)
        return True

    def _answer(self, session: pytest.Session, wish: dict[str, Any]) -> dict[str, Any]:
        """Try a mutant on the tests that run its lines, the quickest first, or a test on the sources as they are."""
        if "test" in wish:
            return self._try([wish["test"]], session, lambda: True, wish["seconds"])
        path, source, changed = str(self.folder / wish["path"]), wish["source"].encode(), wish["changed"].encode()
        lines = self._walked[path]
        runs = {test for line in range(wish["first"], wish["last"] + 1) for test in lines[line]}
        answer = self._try(self._in_order(runs), session, lambda: swap(path, source, changed), wish["seconds"])
        around = {test for tests in lines.values() for test in tests}
        return answer | {"at_import": _AT_IMPORT in runs, "around": self._in_order(around)}

    def _try(self, names: Sequence[str], session: pytest.Session, change: Callable[[], bool], seconds: float) -> Any:
        told = self.folder / ".told"
        told.write_text("import only\n")

        def attempt() -> None:
            # not that of the one before, in which a killed test may have left what cannot be removed
            session.config._tmp_path_factory._given_basetemp = Path(scratch)
            if change():
                known = {item.nodeid: item for item in session.items}
                self._run([known[name] for name in names], told)

        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as scratch:
            end = self._in_child(attempt, seconds=seconds)
        said = [line.split(" ", 1) for line in told.read_text().splitlines()]
        answer = {word: next((test for what, test in said if what == word), None) for word in ("import", "failed")}
        return answer | {"running": said[-1][1] if said and said[-1][0] == "begin" else None, "end": end}

    def _in_order(self, tests: set[str]) -> list[str]:
        return sorted(tests & self._seconds.keys(), key=lambda test: (self._seconds[test], test))

    def _run(self, items: Sequence[pytest.Item], told: Path) -> None:
        """Run tests until one fails; what they started for all of them is ended."""
        self._failed.clear()
        with told.open("w") as file:
            for item, following in zip(items, [*items[1:], None], strict=True):
                print("begin", item.nodeid, file=file, flush=True)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                print("failed" if self._failed else "passed", item.nodeid, file=file, flush=True)
                if self._failed:
                    item.config.hook.pytest_runtest_teardown(item=item, nextitem=None)
                    return

    def _record(self, session: pytest.Session) -> None:
        """Run every test once, and write down lines, times and which of them pass."""
        record = self.folder / ".record"
        paths = [str(Path(sitecustomize.__file__).parent), os.environ["PYTHONPATH"]]
        settings = {"MUTANTS_RECORD": str(record), "MUTANTS_FOLDER": self._sources, "PYTHONPATH": ":".join(paths)}
        os.environ |= settings
        os.register_at_fork(after_in_child=lambda: sitecustomize.watch(str(record), self._sources))
        self._coverage = self._watch()
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            with record.open("a") as file:
                file.write(f"#{item.nodeid}\n")
            self._coverage.switch_context(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        self._coverage.stop()
        self._note_lines()
        passed = {test: seconds for test, seconds in self._seconds.items() if test not in self._failed}
        (self.folder / ".lines").write_text(json.dumps([self._plain(), passed]))

    def _watch(self) -> coverage.Coverage:
        watched = coverage.Coverage(data_file=None, config_file=False, include=[f"{self._sources}*"])
        watched.start()
        return watched

    def _note_lines(self) -> None:
        data = self._coverage.get_data()
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                self._walked[path][line].update(tests)

    def _plain(self) -> dict[str, dict[int, list[str]]]:
        return {path: {line: sorted(tests) for line, tests in of.items()} for path, of in self._walked.items()}

    def _read_record(self) -> None:
        """Take over what the recording child learned, and what the processes did that its tests started."""
        walked, self._seconds = json.loads((self.folder / ".lines").read_text())
        for path, lines in walked.items():
            for line, tests in lines.items():
                self._walked[path][int(line)].update(tests)
        test = _AT_IMPORT
        for line in (self.folder / ".record").read_text().splitlines():
            if line.startswith("#"):
                test = line[1:]
            else:
                path, first, last = line.split("\t")
                for number in range(int(first), int(last) + 1):
                    self._walked[path][number].add(test)

    def _in_child(self, work: Callable[[], None], *, seconds: float) -> str:
        """Do it in a fork: "whole", "died" or "late". No process it started outlives it."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
                work()
                code = 0
            finally:
                os._exit(code)
        until, status = time.monotonic() + seconds, None
        while status is None and time.monotonic() < until:
            ended, state = os.waitpid(child, os.WNOHANG)
            status = state if ended else time.sleep(0.02)
        _end_children()
        return "late" if status is None else "died" if status else "whole"


def _end_children() -> None:
    """Kill every child; theirs become ours as they die."""
    while children := list(_children()):
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _children() -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid():
            yield int(stat.parent.name)


def main(folder: str, room: str, requests: str, answers: str, *also: str) -> int:
    """Collect the tests of the room, its doctests and ``also`` others, and answer."""
    plugin = Rehearsal(Path(folder), room, int(requests), int(answers))
    options = ["-q", "--timeout=60", f"--basetemp={folder}/.rehearsal", "-p", "no:cacheprovider"]
    return pytest.main([*options, f"tests/{room}", f"src/model_checkpoint/{room}", *also], plugins=[plugin])


__all__ = ["Rehearsal", "main"]
