"""Run the trials: ``python -m proof [--cuts N] [--flips N] [--only NAME]``; a whole run writes ``docs/proof.md``."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# children are forked from a server with every library loaded; they must not wait for threads that exist only there
os.environ.setdefault("OMP_NUM_THREADS", "1")

from bench.measuring.contenders import OURS
from bench.measuring.machine import machine
from bench.measuring.report import grid
from tests.ground.disks.power import Disk, PowerUnavailable

from proof.bit_flip import Flip, flip_bits
from proof.power_cut import Cut, Ending, check_harness, cut_power
from proof.reading import CONTENDERS, Reading
from proof.report import markdown, short_rows

_DOCS = Path(__file__).resolve().parent.parent / "docs" / "proof.md"
_DISKS = ("ext4", "xfs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run all trials, print the counts, and write the report after a whole run; 0 if ours lost and believed nothing."""
    wish = _parser().parse_args(argv)
    names = wish.only or [one.name for one in CONTENDERS]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            cuts = list(_cuts(names, Path(scratch), wish.cuts))
        except PowerUnavailable as error:
            print(f"no power to cut here: {error}")
            return 2
        flips = list(_flips(names, Path(scratch), wish.flips))
        here = machine(Path(scratch))
    print(grid(short_rows(cuts, flips)))
    if not wish.only:
        _DOCS.write_text(markdown(cuts, flips, here), encoding="utf-8")
    return 0 if _ours_hold(cuts, flips) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument(
        "--cuts", type=int, default=20, help="power cuts per library, file system and way (default: 20)"
    )
    parser.add_argument("--flips", type=int, default=200, help="bits in the values and elsewhere, each (default: 200)")
    known = [one.name for one in CONTENDERS]
    parser.add_argument("--only", action="append", choices=known, help="one library, for quick runs; writes no report")
    return parser


def _cuts(names: Sequence[str], scratch: Path, count: int) -> Iterator[Cut]:
    for kind in _DISKS:
        with _mounted(scratch, kind) as disk:
            for name in names:
                check_harness(disk, name)
                for flushed in (False,) if name == OURS.name else (False, True):
                    print(f"power cut: {name} on {kind}{', flushed by the caller' if flushed else ''}", flush=True)
                    for _ in range(count):
                        yield cut_power(disk, kind, name, flushed=flushed)


@contextlib.contextmanager
def _mounted(scratch: Path, kind: str) -> Iterator[Disk]:
    disk = Disk(scratch, kind)
    try:
        yield disk
    finally:
        disk.unmount()


def _flips(names: Sequence[str], scratch: Path, count: int) -> Iterator[Flip]:
    for name in names:
        print(f"bit flips: {name}", flush=True)
        yield from flip_bits(name, scratch / "flips" / name, count=count)


def _ours_hold(cuts: Sequence[Cut], flips: Sequence[Flip]) -> bool:
    ours_cut = [one.ending for one in cuts if one.contender == OURS.name]
    ours_flipped = [one.reading for one in flips if one.contender == OURS.name]
    refused = all(reading in (Reading.NAMED, Reading.REFUSED) for reading in ours_flipped)
    return refused and all(ending is Ending.KEPT for ending in ours_cut)


if __name__ == "__main__":
    raise SystemExit(main())
