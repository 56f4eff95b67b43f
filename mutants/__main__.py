"""Run it: ``python -m mutants [room ...] [--count N] [--minutes M] [--seed S]``, or ``--at path:line ...``."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue

from mutants.kinds import mutants_of
from mutants.tally import Trial, render
from mutants.workshop import BESIDE, Site, Workshop

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = Path("src/model_checkpoint")
_COUNT = 60
_OF_EACH_NAMED = 20  # fewer tell next to nothing of a room
_WORTH_REHEARSING = 12  # mutants of one room
_PATIENCE = 400.0  # seconds for all tests of a room


def main(argv: Sequence[str] | None = None, *, root: Path = _ROOT) -> int:
    """Draw mutants of every room, try some at a time, print who lived and the kill rate per room."""
    known = rooms(root)
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("rooms", nargs="*", help=f"which: {', '.join(known)} (default: all)")
    parser.add_argument("--count", type=int, help="mutants in all, spread over the rooms (default: 60, or 20 of each)")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no further mutant after this (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="which to draw (default: 0)")
    parser.add_argument("--at-once", type=int, default=2, help="mutants that run side by side (default: 2)")
    parser.add_argument("--also", nargs="+", default=[], help="tests of other rooms that may tell too, by their path")
    parser.add_argument("--at", nargs="+", default=[], help="all mutants of these lines, each path:line, and no others")
    wish = parser.parse_args(argv)
    unknown = [room for room in wish.rooms if room not in known]
    if unknown:
        parser.error(f"no room {unknown[0]!r} with tests of its own; there are {', '.join(known)}")
    print(f"rooms with tests of their own: {', '.join(known)}", flush=True)
    count = max(_COUNT, _OF_EACH_NAMED * len(wish.rooms)) if wish.count is None else wish.count
    drawn = all_at(root, wish.at) if wish.at else draw(root, wish.rooms or known, count=count, seed=wish.seed)
    trials = list(_try_rooms(root, drawn, minutes=wish.minutes, at_once=wish.at_once, also=wish.also))
    print(render(trials, left=len(drawn) - len(trials)))
    return 0


def rooms(root: Path) -> list[str]:
    """The folders of the package that have a folder of tests, and the modules beside them as one more."""
    found = [path.name for path in sorted((root / _PACKAGE).iterdir()) if (path / "__init__.py").exists()]
    return [*(room for room in found if (root / "tests" / room).is_dir()), BESIDE]


def draw(root: Path, chosen: Sequence[str], *, count: int, seed: int) -> list[tuple[str, Site]]:
    """Draw ``count`` mutants, as many of each room, room after room; the same for the same seed and sources."""
    chance, drawn = random.Random(seed), []
    for number, room in enumerate(chosen):
        sites = [
            Site(path.relative_to(root), mutant)
            for path in _sources(root, room)
            for mutant in mutants_of(path.read_bytes())
        ]
        share = count // len(chosen) + (number < count % len(chosen))
        drawn += [(room, site) for site in chance.sample(sites, min(share, len(sites)))]
    return drawn


def all_at(root: Path, places: Sequence[str]) -> list[tuple[str, Site]]:
    """All mutants of some lines: whether one that lived is told by now."""
    found: list[tuple[str, Site]] = []
    for path, _, line in (place.rpartition(":") for place in places):
        inside = Path(path).relative_to(_PACKAGE).parts
        room = inside[0] if len(inside) > 1 else BESIDE
        every = mutants_of((root / path).read_bytes())
        found += [(room, Site(Path(path), mutant)) for mutant in every if mutant.line == int(line)]
    return found


def _sources(root: Path, room: str) -> list[Path]:
    if room == BESIDE:
        return sorted(path for path in (root / _PACKAGE).glob("*.py") if not path.name.startswith("__"))
    return sorted((root / _PACKAGE / room).rglob("*.py"))


def _try_rooms(
    root: Path, drawn: Sequence[tuple[str, Site]], *, minutes: float, at_once: int, also: Sequence[str]
) -> Iterator[Trial]:
    """Room after room, each with its share of the time."""
    chosen, began = list(dict.fromkeys(room for room, _ in drawn)), time.monotonic()
    for number, room in enumerate(chosen, start=1):
        until = began + 60 * minutes * number / len(chosen)
        sites = [site for its, site in drawn if its == room]
        yield from _try_room(root, room, sites, until=until, at_once=at_once, also=also)


def _try_room(
    root: Path, room: str, sites: Sequence[Site], *, until: float, at_once: int, also: Sequence[str]
) -> Iterator[Trial]:
    scratch_folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # a killed test may leave what stays
    with scratch_folder as scratch, ThreadPoolExecutor(at_once) as team, ExitStack() as open_shops:
        free: SimpleQueue[Workshop] = SimpleQueue()

        def prepare(number: int) -> None:
            shop = open_shops.enter_context(closing(Workshop(root, Path(scratch, str(number)))))
            worth_it = also or shop.knows(room) or len(sites) >= _WORTH_REHEARSING
            if room != BESIDE and worth_it and time.monotonic() < until:
                shop.rehearse(room, also=also)
            free.put(shop)

        def attempt(site: Site) -> Trial | None:
            if time.monotonic() > until:
                return None
            shop = free.get()
            try:
                fate = shop.try_mutant(site, room, seconds=_PATIENCE)
            finally:
                free.put(shop)
            print(f"{fate.name.lower():<7} {site}", flush=True)
            return Trial(room, site, fate)

        for number in range(at_once):  # the first records, the others read what it kept
            prepare(number)
        yield from (trial for trial in team.map(attempt, sites) if trial is not None)


__all__ = ["all_at", "draw", "main", "rooms"]

if __name__ == "__main__":
    raise SystemExit(main())
