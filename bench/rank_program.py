"""Rank program: one rank of the benchmark of many ranks; does what each line of its standard input says.

Rank 0 answers each with a line: seconds from the moment all ranks were ready until all were through, the bytes all of
them asked the system to read meanwhile, and how long it planned.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import model_checkpoint as mc
from bench.measuring import disk
from bench.measuring.measure import bytes_read
from model_checkpoint.distributed import TorchCoordinator

Words = dict[str, Any]


class Planning(logging.Handler):
    """Hears how long the last save planned."""

    seconds = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Take the figure out of the one message that has it."""
        if isinstance(record.args, tuple) and "planned" in record.msg:
            self.seconds = float(record.args[-1])  # type: ignore[arg-type]


class RankProgram:
    """The tensors of one rank, and what is done with them."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.mesh = init_device_mesh("cpu", (self.world,))
        self.ranks = TorchCoordinator()
        self.state: Words = {}
        self.target: Words = {}
        self.shape = (0, 0)
        self.heard = Planning()
        log = logging.getLogger("model_checkpoint.save")
        log.addHandler(self.heard)
        log.setLevel(logging.INFO)

    def make(self, *, tensors: int, rows: int, columns: int, dim: int, full: bool, blank: bool) -> Words:
        """Make tensors to save, and blank ones to load into, cut along one dimension."""
        self.state, self.target, self.shape = {}, {}, (rows, columns)
        if full:
            self.state = {"model": self._tensors(tensors, dim, blank=False)}
        if blank:
            self.target = {"model": self._tensors(tensors, dim, blank=True)}
        dist.barrier()
        return {}

    def _tensors(self, count: int, dim: int, *, blank: bool) -> Words:
        return {f"layer{i}.weight": self._tensor(i, dim, blank=blank) for i in range(count)}

    def _tensor(self, number: int, dim: int, *, blank: bool) -> DTensor:
        local = self._values(number, dim)
        if blank:
            local = torch.zeros_like(local)
        shape, stride = torch.Size(self.shape), (self.shape[1], 1)
        return DTensor.from_local(local, self.mesh, [Shard(dim)], run_check=False, shape=shape, stride=stride)

    def _values(self, number: int, dim: int) -> torch.Tensor:
        """What this rank has of a tensor whose every element tells where it lies."""
        side = self.shape[dim]
        size = -(-side // self.world)
        first, last = min(side, size * self.rank), min(side, size * (self.rank + 1))
        rows, columns = (torch.arange(side, dtype=torch.float32) for side in self.shape)
        rows, columns = (rows[first:last], columns) if dim == 0 else (rows, columns[first:last])
        return rows[:, None] * self.shape[1] + columns + number

    def save(self, *, who: str, folder: str) -> Words:
        """Save to a folder that is empty."""
        if who == "ours":
            return self._timed(lambda: mc.save(folder, self.state, step=1, coordinator=self.ranks))
        writer = dcp.FileSystemWriter(folder)
        return self._timed(lambda: dcp.save(self.state, storage_writer=writer))

    def load(self, *, who: str, folder: str, cold: bool) -> Words:
        """Load what was saved, and look whether it came; ``disk``: bring the bytes off the disk, and do no more."""
        if self.rank == 0:
            (disk.chill if cold else disk.warm)(Path(folder))
        if who == "disk":
            return self._timed(lambda: disk.read_share(Path(folder), self.rank, self.world))
        if who == "ours":
            told = self._timed(lambda: mc.load(folder, into=self.target, coordinator=self.ranks))
        else:
            told = self._timed(lambda: dcp.load(self.target, storage_reader=dcp.FileSystemReader(folder)))
        self._check()
        return told

    def _check(self) -> None:
        for number, tensor in enumerate(self.target["model"].values()):
            dim = tensor.placements[0].dim
            if not torch.equal(tensor.to_local(), self._values(number, dim)):
                raise AssertionError(f"rank {self.rank}: tensor {number} did not come back")
            tensor.to_local().zero_()

    def _timed(self, call: Callable[[], object]) -> Words:
        dist.barrier()
        read, cpu, began = bytes_read()[0], time.process_time(), time.monotonic()
        call()
        read, cpu = bytes_read()[0] - read, time.process_time() - cpu
        dist.barrier()
        seconds = time.monotonic() - began
        total = torch.tensor([read, cpu], dtype=torch.float64)
        dist.all_reduce(total)
        return {
            "seconds": seconds,
            "read": total[0].item(),
            "cpu": total[1].item(),
            "planning": self.heard.seconds,
        }


def main() -> None:
    """Do as told until there is nothing more to be told."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    program = RankProgram()
    for line in sys.stdin:
        order = json.loads(line)
        told = getattr(program, order.pop("do"))(**order)
        if program.rank == 0:
            print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
