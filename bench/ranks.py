"""Many ranks against torch.distributed.checkpoint (DCP), which neither hashes nor survives a power cut.

After a rehearsal both do the same in turn, each save from an empty folder, and the one that begins changes every round.
A figure is the median of the ratios within each round; CPU-seconds are of all ranks together. Cold loads begin with
nothing of the files in the page cache, warm ones with all of it. ``python -m bench.ranks``; exit code 1 if a promise is
not kept.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ground.ports import free_port

from bench.measuring import disk
from bench.measuring.arguments import rounds_parser
from bench.measuring.promises import Promise, judge
from model_checkpoint.manifest import Layout, Placement
from model_checkpoint.plan.sharding.share_out import PlannedArray, share_out

WHO, DISK = ("ours", "dcp"), "disk"
CHUNK, FINE, SMALL_PIECE = 4 << 20, 256 << 10, 16 << 20
NEAR = 1.15  # times the disk alone: no load can be much faster than that, whatever it is compared with

Words = dict[str, Any]


@dataclass(frozen=True)
class State:
    """Tensors of one shape in fp32, saved on four ranks, each with some rows of every tensor."""

    name: str
    tensors: int
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        """Of all of it."""
        return self.tensors * self.rows * self.columns * 4

    def slack(self, world: int, dim: int) -> float:
        """One chunk for every end of a run that lies inside a stored piece, as a part of all bytes.

        Where another number of ranks cuts inside a piece, two runs end. Small pieces have chunks within chunks. By
        columns a run ends in every row, so that each chunk holds some of every rank: each reads it once, and no more.
        """
        if dim:
            return world - 1
        piece = -(-self.rows // 4)
        cuts = {min(self.rows, -(-self.rows // world) * rank) for rank in range(1, world)}
        ends = 2 * sum(cut % piece != 0 for cut in cuts if cut < self.rows)
        chunk = FINE if piece * self.columns * 4 < SMALL_PIECE else CHUNK
        return ends * chunk * self.tensors / self.nbytes


LARGE = State("large", 24, 4096, 4096)  # 1.6 GB
PIECES = State("pieces", 96, 1200, 1000)  # parts of 1.2 MB, none of which begins or ends with a chunk
SMALL = (State("2,000", 2_000, 24, 24), State("20,000", 20_000, 24, 24))


@dataclass(frozen=True)
class NearDisk(Promise):
    """So many times as fast as DCP; or, where the disk does not let anybody be, hardly slower than the disk alone."""

    over_disk: float = 0.0  # seconds of ours over those of the disk alone

    @property
    def kept(self) -> bool:
        """Whether one of the two holds."""
        return super().kept or self.over_disk <= NEAR

    def line(self) -> str:
        """Both figures as a line of the report."""
        either = f"or {self.over_disk:.3f} of the disk alone <= {NEAR:g}"
        return f"  {self.name:<58} {self.value:8.3f}  >= {self.bound:g}, {either}  {'ok' if self.kept else 'MISSED'}"


class Ranks:
    """Processes joined by gloo that do what they are told, together; a context manager."""

    def __init__(self, world: int) -> None:
        self.world = world
        base = {
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
        }
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

    def make(self, state: State, *, dim: int = 0, blank: bool = True, full: bool = False) -> None:
        """Have them make tensors to load into, to save, or both."""
        shape = {"tensors": state.tensors, "rows": state.rows, "columns": state.columns}
        self.tell("make", **shape, dim=dim, full=full, blank=blank)

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

    def _place(self, state: State, who: str) -> Path:
        return self.folder / state.name.replace(",", "") / who

    def rehearse(self, ranks: Ranks) -> None:
        """Let both do all of it once, so that nobody pays for what Python imports."""
        state = State("rehearsal", 2, 24, 24)
        ranks.make(state, full=True)
        for who in WHO:
            place = self._place(state, who)
            disk.empty(place)
            ranks.tell("save", who=who, folder=str(place))
            ranks.tell("load", who=who, folder=str(place), cold=False)

    def saves(self, ranks: Ranks, state: State, least: float | None, *, rounds: int) -> list[float]:
        """Save in turn; what was saved last stays, to be loaded. Seconds we planned, round by round."""
        figures: dict[str, list[Words]] = {who: [] for who in WHO}
        for number in range(rounds):
            for who in WHO[:: -1 if number % 2 else 1]:
                place = self._place(state, who)
                disk.empty(place)
                figures[who].append(ranks.tell("save", who=who, folder=str(place)))
        self._judge(f"{state.name}: save on {ranks.world}", figures, least)
        return [one["planning"] for one in figures["ours"]]

    def plans(self, ranks: Ranks, state: State, count: int) -> list[float]:
        """Save ours some more times, seconds each, where those of DCP would take minutes; seconds we planned."""
        place, found = self._place(state, "ours"), []
        for _ in range(count):
            disk.empty(place)
            found.append(ranks.tell("save", who="ours", folder=str(place))["planning"])
        return found

    def loads(
        self,
        ranks: Ranks,
        state: State,
        title: str,
        least: float | None,
        *,
        cold: bool,
        rounds: int = 0,
        beside_disk: bool = False,
    ) -> None:
        """Load in turn, perhaps beside the disk alone, which brings the bytes of ours and does no more."""
        title = f"{state.name}: {title}, {'cold' if cold else 'warm'}"
        turns = (*WHO, DISK) if beside_disk else WHO
        figures: dict[str, list[Words]] = {who: [] for who in turns}
        for number in range(rounds or self.rounds):
            for who in turns[:: -1 if number % 2 else 1]:
                place = self._place(state, "ours" if who == DISK else who)
                figures[who].append(ranks.tell("load", who=who, folder=str(place), cold=cold))
        self._judge(title, figures, least)
        if beside_disk:
            self._judge_beside_disk(title, figures)

    def _judge_beside_disk(self, title: str, figures: dict[str, list[Words]]) -> None:
        """Print what the disk alone takes, and let a promise be kept by who is hardly slower."""
        seconds = {who: [one["seconds"] for one in figures[who]] for who in ("ours", DISK)}
        over = statistics.median(own / alone for own, alone in zip(seconds["ours"], seconds[DISK], strict=True))
        middle = statistics.median(seconds[DISK])
        print(f"  {f'{title}, bytes off the disk alone':<54}disk {middle:8.3f} s{over:28.2f}x", flush=True)
        last = self.promises.pop()
        self.promises.append(NearDisk(last.name, last.value, last.bound, least=True, over_disk=over))

    def bytes_read(self, ranks: Ranks, state: State, title: str, dim: int = 0) -> None:
        """Load once more and count the bytes that all ranks ask the system for."""
        title = f"{state.name}: {title}, bytes read / needed"
        told = [ranks.tell("load", who=who, folder=str(self._place(state, who)), cold=False) for who in WHO]
        read = {who: one["read"] / state.nbytes for who, one in zip(WHO, told, strict=True)}
        print(f"  {title:<54}ours {read['ours']:8.3f}     DCP {read['dcp']:8.3f}", flush=True)
        self.promises.append(Promise(title, read["ours"], 1.05 + state.slack(ranks.world, dim)))

    def _judge(self, title: str, figures: dict[str, list[Words]], least: float | None) -> None:
        seconds = {who: [one["seconds"] for one in figures[who]] for who in WHO}
        ratio = statistics.median(dcp / own for own, dcp in zip(seconds["ours"], seconds["dcp"], strict=True))
        middle = {who: statistics.median(seconds[who]) for who in WHO}
        cpu = {who: statistics.median(one["cpu"] for one in figures[who]) for who in WHO}
        print(
            f"  {title:<54}ours {middle['ours']:8.3f} s   DCP {middle['dcp']:8.3f} s   {ratio:6.2f}x   "
            f"CPU-seconds {cpu['ours']:.2f}, {cpu['dcp']:.2f}",
            flush=True,
        )
        if least is not None:
            self.promises.append(Promise(f"{title}: times as fast as DCP", ratio, least, least=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether every promise was kept."""
    parser = rounds_parser("bench.ranks", __doc__, rounds=3)
    parser.add_argument("--only", choices=("large", "pieces", "small", "many", "planner"), help="one part of it")
    wish = parser.parse_args(argv)
    bench = Bench(wish.folder.resolve() / "ranks", wish.rounds)
    large, pieces, small, many = (
        replace(state, tensors=max(1, int(state.tensors * wish.scale))) for state in (LARGE, PIECES, *SMALL)
    )
    try:
        with Ranks(4) as ranks:
            bench.rehearse(ranks)
            if wish.only in (None, "large"):
                save_large(bench, ranks, large)
            if wish.only in (None, "pieces"):
                save_pieces(bench, ranks, pieces)
            if wish.only in (None, "small"):
                many_small(bench, ranks, small)
        reshard(bench, *(state for state in (large, pieces) if wish.only in (None, state.name)))
        if wish.only in (None, "many"):
            with Ranks(4) as ranks:
                bench.rehearse(ranks)
                many_small(bench, ranks, many)
        if wish.only in (None, "planner"):
            plan_many(bench, 4096, int(100_000 * wish.scale))
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)
    return judge(bench.promises)


def save_large(bench: Bench, ranks: Ranks, state: State) -> None:
    """Save, and load on as many ranks."""
    ranks.make(state, full=True)
    print(f"{state.name}: {state.nbytes / 1e9:.2f} GB in {state.tensors} tensors, cut by rows on {ranks.world} ranks")
    bench.saves(ranks, state, 1.5, rounds=bench.rounds + 1)
    for cold in (True, False):
        bench.loads(ranks, state, "load on 4", 1.5, cold=cold)
    bench.bytes_read(ranks, state, "load on 4")


def save_pieces(bench: Bench, ranks: Ranks, state: State) -> None:
    """Save tensors that are cut into small parts."""
    ranks.make(state, full=True)
    part = -(-state.rows // ranks.world) * state.columns * 4 / 1e6
    print(f"{state.name}: {state.nbytes / 1e9:.2f} GB in {state.tensors} tensors, in parts of {part:.1f} MB")
    bench.saves(ranks, state, None, rounds=bench.rounds)
    bench.loads(ranks, state, "load on 4", None, cold=False)


def reshard(bench: Bench, *states: State) -> None:
    """Load on two ranks, by columns, on eight, and on three, warm and cold.

    Cold ones are judged where DCP asks for more than it needs, which it does not where the cut is aligned. What two of
    its ranks ask for the disk gives once, though, so that a cold row is bounded by the disk: as many processes that
    only read the same bytes. Whoever is within 1.15 of their time has kept the promise, too.
    """
    cases = {
        2: (("rows 4 to 2", 0, 1.2, None), ("rows to columns 4 to 2", 1, 2.0, 2.0)),
        8: (("rows 4 to 8", 0, 2.0, 2.0),),
        3: (("rows 4 to 3", 0, None, None),),
    }
    for world, rows in cases.items() if states else ():
        with Ranks(world) as ranks:
            bench.rehearse(ranks)
            for state in states:
                for title, dim, *least in rows:
                    ranks.make(state, dim=dim)
                    for cold in (True, False):
                        judged = least[cold] if state.name == "large" else None
                        beside = cold and judged is not None
                        bench.loads(ranks, state, title, judged, cold=cold, beside_disk=beside)
                    bench.bytes_read(ranks, state, title, dim)


def many_small(bench: Bench, ranks: Ranks, state: State) -> None:
    """Many small tensors, where what counts is the work for each; those of DCP take long, so fewer rounds do."""
    ranks.make(state, full=True)
    print(f"{state.name}: {state.tensors} tensors of {state.rows * state.columns * 4} bytes, on {ranks.world} ranks")
    rounds = bench.rounds if state.tensors < 10_000 else 2
    first, *again = bench.saves(ranks, state, 5.0, rounds=rounds)
    again = statistics.median([*again, *bench.plans(ranks, state, bench.rounds - rounds)])
    title = f"{state.name}: our planning, first and again"
    print(f"  {title:<54}{first * 1e3:13.1f} ms{again * 1e3:12.1f} ms", flush=True)
    bench.promises.append(Promise(f"{state.name}: planning again / the first", again / max(first, 1e-9), 0.1))
    bench.loads(ranks, state, "load on 4", 5.0, cold=False, rounds=rounds)


def plan_many(bench: Bench, world: int, count: int) -> None:
    """Plan what one of very many ranks writes, with nobody to talk to: HSDP on a square mesh, every shape its own."""
    side, draw = int(world**0.5), random.Random(0)
    ranks = tuple(range(world))
    layouts = [
        Layout(mesh=(side, side), ranks=ranks, placements=(Placement(), Placement(0))),
        Layout(mesh=(world,), ranks=ranks, placements=(Placement(0),)),
    ]
    arrays = [PlannedArray((draw.randint(256, 8192), 1024), 4, number % 2) for number in range(count)]
    began = time.process_time()
    share_out(arrays, layouts, world // 3)
    seconds = time.process_time() - began
    title = f"planner alone: {world:,} ranks, {count:,} tensors"
    print(f"{title:<56}{seconds:8.3f} CPU-seconds", flush=True)
    bench.promises.append(Promise(f"{title}, CPU-seconds", seconds, 10.0))


if __name__ == "__main__":
    raise SystemExit(main())
