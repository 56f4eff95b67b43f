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
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import coverage
import pytest

from mutants.code_swap import swap
from mutants.run_lines import Ran, RunLines, Shelf
from mutants.started import sitecustomize

_MEMORY = 12 << 30  # a wrong constant may ask for more than the machine has
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_NEW_MOUNTS, _PRIVATE_BELOW = 0x20000, 0x4000 | 1 << 18  # CLONE_NEWNS; MS_REC | MS_PRIVATE
_BROKEN = ".broken"  # what a child says that could not do its work
_HANGS, _SLOWER = 20.0, 10.0  # a test may take so many seconds, and so many times its own, before it counts as failed


class Rehearsal:
    """A plugin that answers requests where pytest would run the tests."""

    def __init__(self, folder: Path, room: str, kept: Path, requests: int, answers: int) -> None:
        self.folder, self._sources = folder, f"{folder / 'src' / 'model_checkpoint' / room}{os.sep}"
        self._shelf, self._requests, self._answers = Shelf(kept, folder, room), requests, answers
        self._lines = RunLines()
        self._seconds: dict[str, float] = {}
        self._failed: list[str] = []
        self._at_import = self._watch()

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
        self._at_import.stop()
        self._learn(session)
        with os.fdopen(self._requests) as requests, os.fdopen(self._answers, "w") as answers:
            print(json.dumps({"tests": len(self._lines.seconds)}), file=answers, flush=True)
            for line in requests:
                print(json.dumps(self._answer(session, json.loads(line))), file=answers, flush=True)
        return True

    def _answer(self, session: pytest.Session, wish: dict[str, Any]) -> dict[str, Any]:
        """Try a mutant on the tests that run its lines, the quickest first, or a test on the sources as they are."""
        if "test" in wish:
            return self._try([wish["test"]], session, lambda: True, wish["seconds"])
        path, source, changed = str(self.folder / wish["path"]), wish["source"].encode(), wish["changed"].encode()
        runs = self._lines.tests_of(wish["path"], wish["first"], wish["last"])
        answer = self._try(runs, session, lambda: swap(path, source, changed), wish["seconds"])
        imported = self._at_import.get_data().lines(path) or []
        at_import = any(wish["first"] <= line <= wish["last"] for line in imported)
        return answer | {"at_import": at_import, "around": self._lines.tests_around(wish["path"])}

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
            end = self._in_child(attempt, seconds=seconds, stuck=lambda: self._is_stuck(told))
        said = [line.split(" ", 1) for line in told.read_text().splitlines()]
        answer = {word: next((test for what, test in said if what == word), None) for word in ("import", "failed")}
        return answer | {"running": said[-1][1] if said and said[-1][0] == "begin" else None, "end": end}

    def _run(self, items: Sequence[pytest.Item], told: Path) -> None:
        """Run tests until one fails or takes far too long; what they started for all of them is ended."""
        self._failed.clear()
        with told.open("w") as file:
            for item, following in zip(items, [*items[1:], None], strict=True):
                print("begin", item.nodeid, file=file, flush=True)
                item.add_marker(pytest.mark.timeout(self._limit(item.nodeid)), append=False)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                print("failed" if self._failed else "passed", item.nodeid, file=file, flush=True)
                if self._failed:
                    item.config.hook.pytest_runtest_teardown(item=item, nextitem=None)
                    return

    def _limit(self, test: str) -> float:
        return _HANGS + _SLOWER * self._lines.seconds.get(test, 0.0)

    def _is_stuck(self, told: Path) -> bool:
        """Whether a test goes on although its time was over long ago, as one does that hangs when it is torn down."""
        waited = time.time() - told.stat().st_mtime
        return waited > 2 * _HANGS and waited > 2 * self._limit(told.read_text().rpartition("begin ")[2].strip())

    def _learn(self, session: pytest.Session) -> None:
        """Take what is known of each module of tests off the shelf, after recording what is not."""
        modules: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            modules[item.path].append(item)
        unknown = [module for module in modules if self._shelf.take(module) is None]
        if unknown and (end := self._in_child(lambda: self._record(modules, unknown), seconds=3600.0)) != "whole":
            raise RuntimeError(f"recording the tests ended {end}: {(self.folder / _BROKEN).read_text()}")
        for module in modules:
            for test, (seconds, ran) in (self._shelf.take(module) or {}).items():
                self._lines.add(test, seconds, ran)

    def _record(self, modules: Mapping[Path, Sequence[pytest.Item]], unknown: Sequence[Path]) -> None:
        """Run every test of some modules once, and keep lines and times of those that pass."""
        started = self.folder / ".record"
        paths = [str(Path(sitecustomize.__file__).parent), os.environ["PYTHONPATH"]]
        os.environ |= {"MUTANTS_RECORD": str(started), "MUTANTS_FOLDER": self._sources, "PYTHONPATH": ":".join(paths)}
        os.register_at_fork(after_in_child=lambda: sitecustomize.watch(str(started), self._sources))
        for module, following in zip(unknown, [*unknown[1:], None], strict=True):
            items = modules[module]
            after = modules[following][0] if following else None
            started.write_text("")
            watched = self._watch()
            for item, its_next in zip(items, [*items[1:], after], strict=True):
                with started.open("a") as file:
                    file.write(f"#{item.nodeid}\n")
                watched.switch_context(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=its_next)
            watched.stop()
            ran = self._ran(watched.get_data(), started)
            passed = [one.nodeid for one in items if one.nodeid in self._seconds and one.nodeid not in self._failed]
            self._shelf.put(module, {test: (self._seconds[test], ran[test]) for test in passed})

    def _watch(self) -> coverage.Coverage:
        watched = coverage.Coverage(data_file=None, config_file=False, include=[f"{self._sources}*"])
        watched.set_option("run:disable_warnings", ["no-data-collected"])  # a module of tests may run nothing here
        watched.start()
        return watched

    def _ran(self, data: coverage.CoverageData, started: Path) -> dict[str, Ran]:
        """The lines each test ran, also in processes that it started."""
        found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                for test in tests:
                    found[test][path].add(line)
        test = ""
        for line in started.read_text().splitlines():
            if line.startswith("#"):
                test = line[1:]
            else:
                path, first, last = line.split("\t")
                found[test][path].update(range(int(first), int(last) + 1))
        return defaultdict(dict) | {
            test: {str(Path(path).relative_to(self.folder)): sorted(lines) for path, lines in of.items()}
            for test, of in found.items()
        }

    def _in_child(self, work: Callable[[], None], *, seconds: float, stuck: Callable[[], bool] = lambda: False) -> str:
        """Do it in a fork: "whole", "died" (also if it was ``stuck``) or "late". No process it started outlives it."""
        helpers = set(_children())  # what a library started as it was imported, and may not live without
        child = os.fork()
        if child == 0:
            code = 1
            try:
                resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
                _keep_mounts_to_itself()
                work()
                code = 0
            except BaseException:  # noqa: BLE001 - what pytest has captured by now is lost at the exit
                (self.folder / _BROKEN).write_text(traceback.format_exc())
            finally:
                os._exit(code)
        until, status = time.monotonic() + seconds, None
        while status is None and time.monotonic() < until:
            if stuck():
                os.kill(child, signal.SIGKILL)
            ended, state = os.waitpid(child, os.WNOHANG)
            status = state if ended else time.sleep(0.02)
        _end_children(helpers)
        return "late" if status is None else "died" if status else "whole"


def _keep_mounts_to_itself() -> None:
    """What a test has mounted and a mutant keeps busy goes with the process; who may not do this may not mount."""
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_MOUNTS) == 0:
        libc.mount(None, b"/", None, _PRIVATE_BELOW, None)


def _end_children(helpers: Set[int]) -> None:
    """Kill every child but the helpers; theirs become ours as they die."""
    while children := set(_children()) - helpers:
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


def main(folder: str, room: str, kept: str, requests: str, answers: str, *also: str) -> int:
    """Collect the tests of the room, its doctests and ``also`` others, and answer."""
    plugin = Rehearsal(Path(folder), room, Path(kept), int(requests), int(answers))
    options = ["-q", "--timeout=60", f"--basetemp={folder}/.rehearsal", "-p", "no:cacheprovider"]
    return pytest.main([*options, f"tests/{room}", f"src/model_checkpoint/{room}", *also], plugins=[plugin])


__all__ = ["Rehearsal", "main"]
