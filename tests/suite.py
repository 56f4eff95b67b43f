"""The whole suite, as ``make test`` runs it: ``python -m tests.suite``.

Real servers, kills and deadlines on a busy machine: what failed gets a second go, three times in a row with nothing
beside it, and must pass all three. What needed one is printed at the end and kept in ``second_go.txt``, a file of the
repository: a test that stands there gets no second go, since the same test failing now and then is a bug in it or in
what it tests. Who mends it takes its line out.
Nothing beside the checkout has a say: the same commit gets the same verdict wherever it is tried.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "second_go.txt"
# These fork at every call to the medium: in processes that have loaded no framework that takes half the time.
FORKING = (
    "tests/engine/faults/test_engine_faults.py",
    "tests/engine/faults/test_forks.py",
    "tests/storage/local/faults/test_local_crashes.py",
)
# The rest often waits: for servers, for deadlines, for processes that are stopped.
GROUPS = (("-n", "2", *FORKING), ("-n", "3", *(f"--ignore={path}" for path in FORKING)))
GOES = 3
_PASSED, _SOME_FAILED = 0, 1


class Broken(Exception):
    """A run of pytest ended in neither passes nor failures; the message says how."""


def main(groups: Sequence[Sequence[str]], *, record: Path = RECORD, folder: Path = ROOT) -> int:
    """Run every group, give what failed its second go, print what needed one; 0 if in the end all passed."""
    try:
        failed = [test for group in groups for test in failures(["--dist", "worksteal", *group], folder)]
        known = _recorded(record)
        unsteady = [test for test in failed if test in known]
        red = [*unsteady, *_red_again([test for test in failed if test not in known], folder)]
    except Broken as error:
        print(error)
        return 2
    saved = [test for test in failed if test not in red]
    _keep(record, saved)
    print(summary(saved, unsteady, red))
    return 1 if red else 0


def failures(arguments: Sequence[str], folder: Path) -> list[str]:
    """Run pytest with everything included and return the tests that failed."""
    with tempfile.TemporaryDirectory() as cache:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "",
            "-rfEs",
            "--durations=40",
            "--durations-min=5",
            "-o",
            f"cache_dir={cache}",
            *arguments,
        ]
        code = subprocess.run(command, cwd=folder, check=False).returncode
        last = Path(cache, "v", "cache", "lastfailed")
        failed = list(json.loads(last.read_text())) if last.exists() else []
    if code not in (_PASSED, _SOME_FAILED) or (code == _SOME_FAILED) != bool(failed):
        raise Broken(f"pytest ended with code {code}, with {len(failed)} failed tests: nothing to try again.")
    return failed


def _red_again(failed: Sequence[str], folder: Path) -> list[str]:
    """Run them alone, three times; return what failed in one of them."""
    red: list[str] = []
    for go in range(GOES):
        left = [test for test in failed if test not in red]
        if left:
            print(f"\n== second go, {go + 1} of {GOES}, for {len(left)} tests", flush=True)
            red += failures(left, folder)
    return red


def _recorded(record: Path) -> set[str]:
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def _keep(record: Path, tests: Sequence[str]) -> None:
    if not tests:
        return
    try:
        with record.open("a", encoding="utf-8") as file:
            file.writelines(f"{test}\n" for test in tests)
    except OSError as error:
        print(f"== {record}: not kept ({error})")


def summary(saved: Sequence[str], unsteady: Sequence[str], red: Sequence[str]) -> str:
    """The closing lines: what is red, and last what needed a second go."""
    lines = [""]
    if unsteady:
        lines += ["== failed again after an earlier second go: a bug", *(f"   {test}" for test in unsteady)]
    others = [test for test in red if test not in unsteady]
    if others:
        lines += ["== red", *(f"   {test}" for test in others)]
    if saved:
        lines.append(f"== commit {RECORD.name}, where these now stand: their next failure is red at once")
    return "\n".join([*lines, f"== needed a second go: {len(saved)}", *(f"   {test}" for test in saved)])


if __name__ == "__main__":
    raise SystemExit(main(GROUPS))
