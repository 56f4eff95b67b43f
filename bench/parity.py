"""Parity and repair: what protection costs and how fast what was lost comes back; ``python -m bench.parity``.

CPU-seconds are of this process alone, so that other jobs on the machine do not count. "Whole" is all that is done
behind a save: reading, comparing every chunk with its xxh3, the sums, their SHA-256, writing. "Sums" is the arithmetic
by itself. Exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import model_checkpoint as mc
from bench.measuring.arguments import rounds_parser
from bench.measuring.promises import Promise, judge
from model_checkpoint.engine.repairing.parity_writer import make_parity
from model_checkpoint.format import galois, galois_words
from model_checkpoint.storage import LocalStore

MB = 1_000_000
FILES = 8
STEP = "step-00000001"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether every promise was kept."""
    wish = rounds_parser("bench.parity", __doc__, rounds=3).parse_args(argv)
    folder: Path = wish.folder.resolve() / "parity"
    nbytes = int(512 * MB * wish.scale)
    try:
        promises = [*sums(wish.rounds), *protection(folder, nbytes, wish.rounds)]
        promises += pairs(folder, max(nbytes // 8, 40 * MB))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judge(promises)


def _state(nbytes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"w{i}": np.frombuffer(rng.bytes(nbytes // FILES), np.uint8) for i in range(FILES)}


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def sums(rounds: int) -> list[Promise]:
    """P and Q of eight columns, GB of data per CPU-second."""
    size = 1 << 20
    columns = [memoryview(np.random.default_rng(i).bytes(size)) for i in range(FILES)]
    p, q = memoryview(bytearray(size)), memoryview(bytearray(size))
    ways = {"compiled": galois.add_up, "NumPy": galois_words.add_up}
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for _, (name, add_up) in itertools.product(range(rounds), ways.items()):
        work = [lambda add_up=add_up: add_up(columns, p, q)] * 16
        figures[name].append(len(work) * FILES * size / 1e9 / max(sum(map(_cpu, work)), 1e-9))
    middle = {name: statistics.median(values) for name, values in figures.items()}
    print("Sums P and Q of eight columns, GB of data per CPU-second")
    for name, value in middle.items():
        print(f"  {name:<12}{value:8.2f}")
    return [
        Promise("sums P and Q: GB per CPU-second", middle["compiled" if galois.COMPILED else "NumPy"], 1.5, least=True)
    ]


def protection(folder: Path, nbytes: int, rounds: int) -> list[Promise]:
    """All that parity costs behind a save, and repairs of two lost files, against the save itself."""
    state = _state(nbytes)
    figures: dict[str, list[float]] = {name: [] for name in ("save", "xor", "pq", "repair")}
    extra = {}
    for _ in range(rounds):
        for scheme in ("xor", "pq"):
            shutil.rmtree(folder, ignore_errors=True)
            store = LocalStore(folder)
            figures["save"].append(
                _cpu(lambda store=store, scheme=scheme: mc.save(store, state, step=1, parity=scheme))
            )
            mc.finish_saves()
            figures[scheme].append(_cpu(lambda store=store: make_parity(store, STEP)))
            sizes = store.files(STEP)
            extra[scheme] = sum(size for name, size in sizes.items() if name.endswith(".parity")) / nbytes
        lost = [name for name in sizes if name.endswith(".safetensors")][:2]
        for name in lost:
            (folder / "checkpoints" / STEP / name).unlink()
        figures["repair"].append(_cpu(lambda: _repair(folder)))
    speed = {name: nbytes / 1e9 / statistics.median(values) for name, values in figures.items()}
    print(f"\nBehind a save of {nbytes / MB:.0f} MB in {FILES} files, GB of data per CPU-second, and room")
    print(f"  {'the save itself':<28}{speed['save']:8.2f}   (with what its follower did meanwhile)")
    for scheme in ("xor", "pq"):
        print(f"  {scheme + ' parity, whole':<28}{speed[scheme]:8.2f}{extra[scheme]:9.3f} of the data")
    print(f"  {'repair of two lost files':<28}{speed['repair']:8.2f}   (verifies all before and the two after)")
    return [
        Promise("pq parity, whole: GB per CPU-second", speed["pq"], 1.0, least=True),
        Promise("pq parity: room, part of the data", extra["pq"], 0.27),
        Promise("xor parity: room, part of the data", extra["xor"], 0.14),
    ]


def _repair(folder: Path) -> None:
    if not mc.repair(folder).ok:
        raise AssertionError("two lost files did not come back")


def pairs(folder: Path, nbytes: int) -> list[Promise]:
    """Every pair of the ten files lost, in turn."""
    shutil.rmtree(folder, ignore_errors=True)
    mc.save(folder, _state(nbytes), step=1, parity="pq")
    mc.finish_saves()
    home = folder / "checkpoints" / STEP
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    files = sorted(name for name in before if name != "manifest.json")
    exact = 0
    for pair in itertools.combinations(files, 2):
        for name in pair:
            (home / name).unlink()
        _repair(folder)
        exact += {path.name: path.read_bytes() for path in home.iterdir()} == before
    print(f"\nPairs of the {len(files)} files lost and rebuilt bit-exactly: {exact}")
    return [Promise("pairs of ten files rebuilt bit-exactly, of 45", exact, 45, least=True)]


if __name__ == "__main__":
    raise SystemExit(main())
