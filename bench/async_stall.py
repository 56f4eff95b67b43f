"""Async stall: how long a background save holds up training, beside DCP's ``async_save``, and what hashing costs it.

Run with ``python -m bench.async_stall [--rounds N] [--scale F] [--json]``; the exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch import distributed as dist
from torch.distributed import checkpoint as dcp

from bench.measuring.promises import Promise, all_kept, judge
from model_checkpoint.engine.background.save_async import finish_saves, save_async

EAGER_TARGET = 0.6  # of DCP's stall
LAZY_TARGET = 0.1  # of the eager stall,
LAZY_GRACE = 0.005  # plus this many seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Median seconds, and the slow-down of a training loop that saves in the background."""

    state_bytes: int
    dcp: float
    eager: float
    lazy_call: float
    lazy_hook: float
    compute: float  # forward and backward of the loop
    loop_alone: float  # seconds per step
    loop_eager: float
    loop_lazy: float
    loop_dcp: float

    @property
    def eager_ratio(self) -> float:
        """Our stall as a share of DCP's."""
        return self.eager / self.dcp

    @property
    def lazy(self) -> float:
        """Time blocked in our code in lazy mode."""
        return self.lazy_call + self.lazy_hook

    @property
    def promises(self) -> list[Promise]:
        """Of the stall of either kind."""
        allowed = LAZY_TARGET * self.eager + LAZY_GRACE
        return [
            Promise("stall of save_async / of DCP's", self.eager_ratio, EAGER_TARGET),
            Promise("lazy: ms of call and hook", self.lazy * 1e3, allowed * 1e3),
        ]


class Training:
    """A loop whose forward and backward take longer than the copy of its state."""

    def __init__(self, scale: float) -> None:
        torch.manual_seed(0)
        self.width = max(64, int(2048 * scale**0.5) // 64 * 64)
        self.model = torch.nn.Sequential(*[torch.nn.Linear(self.width, self.width) for _ in range(5)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        self.data = torch.randn(256, self.width)
        self.compute()
        self.optimizer.step()

    @property
    def state(self) -> dict[str, object]:
        return {"model": self.model, "optimizer": self.optimizer}

    @property
    def nbytes(self) -> int:
        return 3 * sum(p.nbytes for p in self.model.parameters())

    def plain(self) -> dict[str, object]:
        """The state as DCP wants it."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def compute(self) -> None:
        """One forward and backward."""
        self.model(self.data).square().mean().backward()

    def step(self) -> None:
        self.compute()
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(folder: Path, *, rounds: int, scale: float) -> Stalls:
    """Interleave all contenders, so that a busy machine is busy for each of them."""
    training = Training(scale)
    kinds = {"dcp": _save_dcp, "eager": _save_eager, "lazy": _save_lazy}
    stalls: dict[str, list[float]] = {kind: [] for kind in (*kinds, "hook", "compute", "alone")}
    loops: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        order = list(kinds)[number % 3 :] + list(kinds)[: number % 3]
        for kind in order:
            shutil.rmtree(folder, ignore_errors=True)
            call, hook, loop = _round(training, folder, kinds[kind])
            if number:  # the first round warms the pools of all
                stalls[kind].append(call)
                loops[kind].append(loop)
                if kind == "lazy":
                    stalls["hook"].append(hook)
        if number:
            stalls["compute"].append(_timed(training.compute))
            stalls["alone"].append(_timed(training.step))
    training.optimizer.zero_grad()
    middle = {kind: median(values) for kind, values in stalls.items()}
    return Stalls(
        state_bytes=training.nbytes,
        dcp=middle["dcp"],
        eager=middle["eager"],
        lazy_call=middle["lazy"],
        lazy_hook=middle["hook"],
        compute=middle["compute"],
        loop_alone=middle["alone"],
        loop_eager=median(loops["eager"]),
        loop_lazy=median(loops["lazy"]),
        loop_dcp=median(loops["dcp"]),
    )


Save = Callable[[Training, Path], tuple[Callable[[], object], Callable[[], float]]]


def _round(training: Training, folder: Path, save: Save) -> tuple[float, float, float]:
    """Save once and train until it is durable; return the stall, the wait before a step, seconds per step."""
    started = time.perf_counter()
    finish, hook = save(training, folder)
    call = time.perf_counter() - started
    steps, began = 0, time.perf_counter()
    while steps < 4:
        training.step()
        steps += 1
    loop = (time.perf_counter() - began - hook()) / steps
    finish()
    return call, hook(), loop


def _save_dcp(training: Training, folder: Path) -> tuple[Callable[[], object], Callable[[], float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        future = dcp.async_save(training.plain(), checkpoint_id=folder, process_group=_group())
    return future.result, lambda: 0.0


def _save_eager(training: Training, folder: Path) -> tuple[Callable[[], object], Callable[[], float]]:
    job = save_async(folder, training.state, step=1)
    return job.result, lambda: 0.0


def _save_lazy(training: Training, folder: Path) -> tuple[Callable[[], object], Callable[[], float]]:
    job = save_async(folder, training.state, step=1, lazy=True)
    at_call = job.stall
    return job.result, lambda: job.stall - at_call


def _group() -> dist.ProcessGroup | None:
    if not dist.is_initialized():
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    return None


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def report(found: Stalls) -> str:
    """The table for people."""
    ms = 1e3

    def slower(loop: float) -> str:
        return f"{loop * ms:8.1f} ms per step ({loop / found.loop_alone:.2f} x)"

    return "\n".join(
        [
            f"state {found.state_bytes / 1e6:.0f} MB, forward+backward {found.compute * ms:.1f} ms",
            f"DCP async_save stall      {found.dcp * ms:8.1f} ms",
            f"save_async stall          {found.eager * ms:8.1f} ms",
            f"lazy: call + hook         {found.lazy * ms:8.1f} ms   "
            f"{found.lazy_call * ms:.1f} + {found.lazy_hook * ms:.1f}",
            f"loop alone                {slower(found.loop_alone)}",
            f"loop beside eager save    {slower(found.loop_eager)}",
            f"loop beside lazy save     {slower(found.loop_lazy)}",
            f"loop beside DCP           {slower(found.loop_dcp)}",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="bench.async_stall", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full state, for quick runs")
    parser.add_argument("--folder", type=Path, default=None, help="where to save; on the disk in question")
    parser.add_argument("--json", action="store_true")
    wish = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="async-stall-", dir=wish.folder or Path.cwd()))
    try:
        found = measure(folder / "run", rounds=wish.rounds, scale=wish.scale)
    finally:
        finish_saves()
        shutil.rmtree(folder, ignore_errors=True)
    if wish.json:
        print(json.dumps(asdict(found) | {"met": all_kept(found.promises)}, indent=1))
        return 0 if all_kept(found.promises) else 1
    print(report(found))
    return judge(found.promises)


if __name__ == "__main__":
    raise SystemExit(main())
