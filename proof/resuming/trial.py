"""Trial: a training is killed once after its first save, started again, and compared with the same training unbroken.

``python -m proof.resuming.trial WAYS --kills N`` prints a line of JSON for each trial of one module of ways: a program
has one backend of Keras, and children are forked from it with everything imported.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.integrations.killing import ended, killed_in, start, starts_of, unbroken

from proof.resuming.way import Way

PAUSE = 0.02  # seconds by which a batch takes longer


class Ending(Enum):
    """What became of a killed training."""

    SAME = "ends as the unbroken one"
    OTHER = "ends with other weights"
    FAILED = "fails when it is started again"


@dataclass(frozen=True, slots=True)
class Trial:
    """One kill."""

    trainer: str
    way: str
    ours: bool
    kind: str
    ending: Ending


class TrialBroken(RuntimeError):
    """A training that nobody killed did not end, or not twice alike, so that a kill would prove nothing."""


def tried(way: Way, kind: str, *, kills: int, folder: Path) -> Iterator[Ending]:
    """Train unbroken, then ``kills`` times with a kill each."""
    whole, batches = _whole(way, kind, folder)
    moments = random.Random(kind)  # the same for every way
    left = kills
    while left:
        ending = _killed(way, kind, folder, whole, moment=moments.uniform(0.2, 0.8) * batches)
        if ending is not None:
            left -= 1
            yield ending


def _whole(way: Way, kind: str, folder: Path) -> tuple[str, int]:
    """What it ends with, and how many batches that takes."""
    found = []
    for number in range(1 if way.ours else 2):  # that ours ends alike is what the kills must show
        own = folder / f"whole-{number}"
        own.mkdir()
        found.append(unbroken(way.train, own, kind=kind, pause=PAUSE))
        shutil.rmtree(own)
    if found[0] != found[-1]:
        raise TrialBroken(f"{way.name}, {kind}: two unbroken trainings end differently: {found}. Mend the trial first.")
    return found[0]


def _killed(way: Way, kind: str, folder: Path, whole: str, *, moment: float) -> Ending | None:
    """Kill in batch ``moment``, or after the first save; None if it was over by then, or began anew: no proof."""
    own = folder / "killed"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    root, out = own / "run", own / "out"
    options = {"kind": kind, "pause": PAUSE}
    code = killed_in(way.train, root, out, batch=moment, saved=lambda: way.saved(root), **options)
    if code is not None:
        if code:
            raise TrialBroken(f"{way.name}, {kind}: ended with code {code} before anybody killed it. Mend it first.")
        return None
    if ended(start(way.train, root, out, **options)):
        return Ending.FAILED
    if starts_of(out)[-1] == 0:
        return None
    return Ending.SAME if out.read_text() == whole else Ending.OTHER


def main() -> None:
    """Print a line for each trial; what the trainers say goes to stderr."""
    parser = argparse.ArgumentParser(prog="proof.resuming.trial", description=__doc__)
    parser.add_argument("ways")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--kind", action="append", help="one kind of data instead of all")
    wish = parser.parse_args()
    told, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    ways: list[Way] = importlib.import_module(f"proof.resuming.{wish.ways}").WAYS
    for way in ways:
        for kind in wish.kind or way.kinds:
            with tempfile.TemporaryDirectory() as scratch:
                for ending in tried(way, kind, kills=wish.kills, folder=Path(scratch)):
                    print(json.dumps([way.name, way.ours, kind, ending.name]), file=told, flush=True)


if __name__ == "__main__":
    main()

__all__ = ["Ending", "Trial", "TrialBroken", "tried"]
