"""Many ranks against torch.distributed.checkpoint (DCP), which neither hashes nor survives a power cut.

Every figure is the median of the ratios within each round: both do the same in turn, each from an empty folder, and the
one that begins changes. ``python -m bench.ranks``; exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bench import disk
from bench.compression import Promise

WHO = ("ours", "dcp")
TENSORS, SIDE, SMALL = 24, 4096, 24
CHUNK = 4 << 20

Words = dict[str, Any]


class Ranks:
    """Processes joined by gloo that do what they are told, together; a context manager."""

    def __init__(self, world: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        base = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.rank_program"],
                env={**os.environ, **base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
            )
            for rank in range(world)
        ]

    def __enter__(self) -> Ranks:
        return self

    def tell(self, do: str, **words: Any) -> Words:
        """Have all ranks do something; what rank 0 answers."""
        for process in self._processes:
            process.stdin.write(json.dumps({"do": do, **words}) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        answer = self._processes[0].stdout.readline()  # type: ignore[union-attr]
        if not answer:
            raise RuntimeError(f"the ranks gave up on {do} {words}")
        told: Words = json.loads(answer)
        return told

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.stdin.close()  # type: ignore[union-attr]
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


class Bench:
    """What both did, round by round."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds = folder, rounds
        self.promises: list[Promise] = []

    def saves(self, ranks: Ranks, title: str, least: float) -> list[float]:
        """Save in turn; what was saved last stays, to be loaded. Seconds we planned, round by round."""
        figures: dict[str, list[Words]] = {who: [] for who in WHO}
        for number in range(self.rounds):
            for who in WHO[:: -1 if number % 2 else 1]:
                disk.empty(self.folder / who)
                figures[who].append(ranks.tell("save", who=who, folder=str(self.folder / who)))
        self._judge(title, figures, least)
        return [one["planning"] for one in figures["ours"]]

    def loads(self, ranks: Ranks, title: str, least: float | None, *, cold: bool, needed: int = 0) -> None:
        """Load in turn."""
        figures: dict[str, list[Words]] = {who: [] for who in WHO}
        for number in range(self.rounds):
            for who in WHO[:: -1 if number % 2 else 1]:
                figures[who].append(ranks.tell("load", who=who, folder=str(self.folder / who), cold=cold))
        self._judge(title, figures, least)
        if needed:
            read = {who: figures[who][-1]["read"] / needed for who in WHO}
            print(f"  {'':<44}bytes read / needed: ours {read['ours']:.3f}, DCP {read['dcp']:.3f}")
            self.promises.append(Promise(f"{title}: bytes read / needed", read["ours"], 1.05 + self._ends(needed)))

    def _ends(self, needed: int) -> float:
        """One chunk for each end of a run, as part of what is needed: pieces are small only in small runs."""
        return 0.25 * CHUNK * TENSORS / needed

    def _judge(self, title: str, figures: dict[str, list[Words]], least: float | None) -> None:
        seconds = {who: [one["seconds"] for one in figures[who]] for who in WHO}
        ratio = statistics.median(dcp / own for own, dcp in zip(seconds["ours"], seconds["dcp"], strict=True))
        middle = {who: statistics.median(seconds[who]) for who in WHO}
        cpu = {who: statistics.median(one["cpu"] for one in figures[who]) for who in WHO}
        print(
            f"  {title:<44}ours {middle['ours']:8.3f} s   DCP {middle['dcp']:8.3f} s   {ratio:6.2f}x   "
            f"CPU-seconds {cpu['ours']:.2f}, {cpu['dcp']:.2f}",
            flush=True,
        )
        if least is not None:
            self.promises.append(Promise(f"{title}: times as fast as DCP", ratio, least, least=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether every promise was kept."""
    parser = argparse.ArgumentParser(prog="bench.ranks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full sizes, for quick runs")
    parser.add_argument("--folder", type=Path, default=Path("bench-run"), help="where to save; on the disk in question")
    parser.add_argument("--only", choices=("large", "small"), help="one half of it")
    wish = parser.parse_args(argv)
    bench = Bench(wish.folder.resolve() / "ranks", wish.rounds)
    try:
        if wish.only != "small":
            large(bench, int(SIDE * wish.scale**0.5) // 8 * 8)
        if wish.only != "large":
            for count in (2_000, 20_000):
                small(bench, int(count * wish.scale))
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)
    print("\nPromises")
    for promise in bench.promises:
        print(promise.line())
    return 0 if all(promise.kept for promise in bench.promises) else 1


def large(bench: Bench, side: int) -> None:
    """A state of 1.6 GB cut by rows on four ranks; loaded on four, on two, on two by columns, and on eight."""
    shape = {"tensors": TENSORS, "side": side}
    with Ranks(4) as ranks:
        nbytes = ranks.tell("make", **shape, dim=0, blank=False)["nbytes"]
        ranks.tell("make", **shape, dim=0, blank=True)
        print(f"{nbytes / 1e9:.2f} GB in {TENSORS} tensors, cut by rows on 4 ranks")
        bench.saves(ranks, "save on 4", 1.5)
        bench.loads(ranks, "load on 4, cold", 1.5, cold=True)
        bench.loads(ranks, "load on 4, warm", 1.5, cold=False, needed=nbytes)
    for world, dim, title, least in (
        (2, 0, "rows 4 to 2, warm", 1.2),
        (2, 1, "rows to columns 4 to 2, warm", 2.0),
        (8, 0, "rows 4 to 8, warm", 2.0),
    ):
        with Ranks(world) as ranks:
            ranks.tell("make", **shape, dim=dim, blank=True)
            bench.loads(ranks, title, least, cold=False, needed=nbytes if dim == 0 else 0)


def small(bench: Bench, count: int) -> None:
    """Many small tensors, where what counts is the work for each."""
    with Ranks(4) as ranks:
        ranks.tell("make", tensors=count, side=SMALL, dim=0, blank=False)
        ranks.tell("make", tensors=count, side=SMALL, dim=0, blank=True)
        print(f"{count} tensors of {SMALL * SMALL * 4} bytes, cut by rows on 4 ranks")
        planning = bench.saves(ranks, f"save of {count} tensors", 5.0)
        first, again = planning[0], statistics.median(planning[1:])
        print(f"  {'our planning, first and again':<44}{first * 1e3:8.1f} ms {again * 1e3:8.1f} ms")
        bench.promises.append(Promise(f"{count} tensors: planning again / the first", again / max(first, 1e-9), 0.1))
        bench.loads(ranks, f"load of {count} tensors, warm", 5.0, cold=False)


if __name__ == "__main__":
    raise SystemExit(main())
