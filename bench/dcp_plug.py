"""The plug for torch.distributed.checkpoint against its own FileSystemWriter, which neither hashes nor verifies.

Four ranks joined by gloo call ``dcp.save`` and ``dcp.load`` with the one and the other in turn, each save into an empty
folder, the order changing every round. Cold loads, which are no promise, begin with nothing of the files in the page
cache, warm ones with all of it. A figure is the median over the rounds; CPU-seconds are of all ranks together.
``python -m bench.dcp_plug``; exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.ground.ports import free_port

from bench.measuring import disk
from bench.measuring.arguments import rounds_parser
from bench.measuring.promises import Promise, judge

WORLD = 4
RANK_OF = "BENCH_DCP_RANK"
PLUG, THEIRS = "plug", "FileSystemWriter"
SAVE, COLD, WARM = "save", "cold load", "warm load"
CASES = {"large": (24, 4000), "small": (2000, 48)}  # tensors, and the side of each


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether every promise was kept."""
    wish = rounds_parser("bench.dcp_plug", __doc__, rounds=5).parse_args(argv)
    folder: Path = wish.folder.resolve() / "dcp"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rows = _measured(
            [sys.executable, "-m", "bench.dcp_plug", "--rounds", str(wish.rounds), "--scale"], wish, folder
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    promises = [promise for case in CASES for promise in _told(case, rows[case])]
    return judge(promises)


def _told(case: str, figures: dict[str, Any]) -> list[Promise]:
    print(f"\n{figures['title']}: seconds, CPU-seconds of all ranks (medians)")
    ratios = {}
    for verb in (SAVE, COLD, WARM):
        ratios[verb] = statistics.median(
            ours / theirs for ours, theirs in zip(figures[verb][PLUG][0], figures[verb][THEIRS][0], strict=True)
        )
        for who in (PLUG, THEIRS):
            seconds, cpu = (statistics.median(values) for values in figures[verb][who])
            print(f"  {verb:<11}{who:<18}{seconds:8.3f}{cpu:8.2f}")
        print(f"  {verb:<11}ratio             {ratios[verb]:8.2f}")
    return [
        Promise(f"{case} tensors: {verb} through the plug / FileSystem{kind}", ratios[verb], 1.0)
        for verb, kind in ((SAVE, "Writer"), (WARM, "Reader"))
    ]


def _measured(command: list[str], wish: argparse.Namespace, folder: Path) -> dict[str, Any]:
    group = {
        "WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [*command, str(wish.scale), "--folder", str(folder)],
            env={**os.environ, **group, RANK_OF: str(rank), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit("a rank failed; see above")
    return json.loads(said[0].splitlines()[-1])


class RankBench:
    """One of the ranks, which all do the same together."""

    def __init__(self, folder: Path, rounds: int, scale: float) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.rank, self.mesh = dist.get_rank(), init_device_mesh("cpu", (WORLD,))
        self.folder, self.rounds, self.scale = folder, rounds, scale

    def run(self) -> dict[str, Any]:
        """Every case."""
        return {case: self._case(case, *size) for case, size in CASES.items()}

    def _case(self, case: str, tensors: int, side: int) -> dict[str, Any]:
        if case == "large":
            side = int(side * self.scale**0.5) // WORLD * WORLD
        else:
            tensors = max(100, int(tensors * self.scale))
        state, target = self._state(tensors, side, 1.0), self._state(tensors, side, 0.0)
        figures: dict[str, Any] = {verb: {PLUG: ([], []), THEIRS: ([], [])} for verb in (SAVE, COLD, WARM)}
        for number in range(self.rounds + 1):  # the first is a rehearsal
            for who in (PLUG, THEIRS) if number % 2 else (THEIRS, PLUG):
                place = self.folder / f"{case}-{who}-{number}"
                for verb, work in ((SAVE, self._save), (COLD, self._load), (WARM, self._load)):
                    self._make_ready(verb, place)
                    seconds, cpu = self._timed(lambda work=work, who=who, place=place: work(who, place, state, target))
                    if number:
                        figures[verb][who][0].append(seconds)
                        figures[verb][who][1].append(cpu)
                if self.rank == 0:
                    shutil.rmtree(place)
        megabytes = tensors * side * side * 4 / 1e6
        return {"title": f"{tensors} tensors, {megabytes:.0f} MB, {WORLD} ranks", **figures}

    def _make_ready(self, verb: str, place: Path) -> None:
        """Take the files out of the page cache, or bring them into it; what was written before disturbs nobody."""
        if self.rank == 0:
            {SAVE: lambda _: os.sync(), COLD: disk.chill, WARM: disk.warm}[verb](place)

    def _state(self, tensors: int, side: int, value: float) -> dict[str, Any]:
        import torch
        from torch.distributed.tensor import DTensor, Shard

        return {
            "model": {
                f"layer{i}.weight": DTensor.from_local(
                    torch.full((side // WORLD, side), value * (i + 1)), self.mesh, [Shard(0)], run_check=False
                )
                for i in range(tensors)
            }
        }

    def _save(self, who: str, place: Path, state: dict[str, Any], _: dict[str, Any]) -> None:
        import torch.distributed.checkpoint as dcp

        from model_checkpoint.integrations.dcp import StorageWriter

        writer = StorageWriter(place, step=1) if who == PLUG else dcp.FileSystemWriter(place)
        dcp.save(state, storage_writer=writer)

    def _load(self, who: str, place: Path, state: dict[str, Any], target: dict[str, Any]) -> None:
        import torch.distributed.checkpoint as dcp

        from model_checkpoint.integrations.dcp import StorageReader

        reader = StorageReader(place) if who == PLUG else dcp.FileSystemReader(place)
        dcp.load(target, storage_reader=reader)
        for name, tensor in target["model"].items():
            if tensor.to_local()[0, 0] != state["model"][name].to_local()[0, 0]:
                raise AssertionError(f"{name} did not come back")
            tensor.to_local().zero_()

    def _timed(self, work: Callable[[], None]) -> tuple[float, float]:
        import torch
        import torch.distributed as dist

        dist.barrier()
        began, cpu = time.monotonic(), time.process_time()
        work()
        spent = torch.tensor([time.process_time() - cpu], dtype=torch.float64)
        dist.barrier()
        seconds = time.monotonic() - began
        dist.all_reduce(spent)
        return seconds, float(spent.item())


def _rank() -> None:
    """What each process of the group does."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--folder", type=Path)
    wish = parser.parse_args()
    figures = RankBench(wish.folder, wish.rounds, wish.scale).run()
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if RANK_OF in os.environ:
        _rank()
    raise SystemExit(main())
