"""Training loop: what ``mc.Run`` costs per iteration beyond the plain loop, and how long it takes to find its place.

Run with ``python -m bench.training_loop [--rounds N] [--scale F] [--json]``; the exit code is 1 if a target is missed.
All figures are processor time, saves aside; plain loop and run take turns in one process, and the best round of each
counts, since other programs mostly add to it. Every kind of loop is judged; two cost more than the others: optimizers
of a hundred tensors, whose gradients are taken down at every step, and a loader that Accelerate prepared, of which each
batch is seeded and read apart.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import model_checkpoint as mc
from bench.measuring.promises import Promise, all_kept, judge

OVERHEAD_TARGET = 50.0  # microseconds of processor time per iteration
PLACE_TARGET = 0.6  # seconds of processor time beyond making the order
SKIP_TARGET = 2.0  # seconds of processor time, making the order of the epoch included
BATCHES, INDICES, BATCH = 20_000, 10_000_000, 64


class Numbers(Dataset[torch.Tensor]):
    """As many samples as wanted, none of which takes room."""

    def __init__(self, count: int) -> None:
        self._count, self._one = count, torch.zeros(1)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._one


class Stream(IterableDataset[torch.Tensor]):
    """The same without indices: a run reads it under generators of its own, which are swapped twice a batch."""

    def __init__(self, count: int) -> None:
        self._count, self._one = count, torch.zeros(1)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return repeat(self._one, self._count)


class Step:
    """A body that steps an optimizer and logs its loss, as small as one can be."""

    def __init__(self) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.weight.grad = torch.zeros(1)
        self.optimizer: Any = torch.optim.SGD([self.weight], lr=0.1)
        self.loss = torch.ones(())

    @property
    def trained(self) -> dict[str, Any]:
        """What the run saves."""
        return {"model": self.weight, "optimizer": self.optimizer}

    def plain(self, batches: Iterable[Any]) -> None:
        """The loop without a run."""
        seen = {}
        for _ in batches:
            self.optimizer.step()
            seen["loss"] = self.loss.detach()

    def under(self, run: mc.Run) -> None:
        """The same loop under a run."""
        for _ in run:
            self.optimizer.step()
            run.log(loss=self.loss)


class TwoOptimizers(Step):
    """The same with two optimizers of fifty tensors each, which step in every body."""

    def __init__(self) -> None:
        super().__init__()
        self._weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(100)]
        for one in self._weights:
            one.grad = torch.zeros(1)
        self._both = [torch.optim.SGD(self._weights[at::2], lr=0.1, foreach=True) for at in (0, 1)]
        self.optimizer = self

    def step(self) -> None:
        """Step both."""
        for one in self._both:
            one.step()

    @property
    def trained(self) -> dict[str, Any]:
        """What the run saves."""
        return {"model": self._weights, "optimizers": self._both}


def loader(count: int, **workers: Any) -> DataLoader[Any]:
    """Batches of one sample, shuffled: nothing costs much but the loop."""
    return DataLoader(TensorDataset(torch.zeros(count, 1)), batch_size=1, shuffle=True, **workers)


def cpu(work: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def overheads(folder: Path, *, rounds: int, batches: int) -> dict[str, float]:
    """Microseconds per iteration beyond the plain loop, by what the run has to do."""
    kinds: dict[str, dict[str, Any]] = {
        "a shuffled loader": {"data": loader(batches)},
        "two optimizers": {"data": loader(batches), "step": TwoOptimizers},
        "two workers": {"data": loader(batches, num_workers=2)},
        "a list": {"data": list(range(batches))},
        "two loaders": {"data": {"a": loader(batches), "b": loader(batches)}},
        "a stream": {"data": DataLoader(Stream(batches), batch_size=1)},
        "a loader of Accelerate": {"data": Accelerator(cpu=True).prepare(loader(batches))},
        "a shuffled loader, catalog": {"data": loader(batches), "catalog": f"sqlite:///{folder}/runs.db"},
    }
    plain: dict[str, list[float]] = {name: [] for name in kinds}
    under: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name, options in kinds.items():
            step, data = options.get("step", Step)(), options["data"]
            batches_of = zip(*data.values(), strict=True) if isinstance(data, dict) else data
            plain[name].append(cpu(lambda batches=batches_of, step=step: step.plain(batches)))
            root = f"memory://bench-{list(kinds).index(name)}-{number}"
            chosen = {key: value for key, value in options.items() if key != "step"}
            run = mc.Run(root, **chosen, every=None, **step.trained)
            under[name].append(cpu(lambda run=run, step=step: step.under(run)))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
    return {name: (min(under[name]) - min(plain[name])) / batches * 1e6 for name in kinds}


def skipping(folder: Path, *, rounds: int, indices: int) -> tuple[float, float]:
    """Processor seconds until the first batch: of a plain loop, which makes the order, and of a run near its end."""
    data = DataLoader(Numbers(indices), batch_size=BATCH, shuffle=True)
    near = len(data) - 10
    for _ in (run := mc.Run(folder, data=data, every=near, state={"a": 1})):
        if run.step > near:
            break
    mc.finish_saves(folder)
    plain, resumed = [], []
    for _ in range(rounds):
        plain.append(cpu(lambda: next(iter(data))))
        began = time.process_time()
        run = mc.Run(folder, data=data, every=None, state={"a": 1})
        for _ in run:
            resumed.append(time.process_time() - began)
            break
        if run.resumed_from != near:
            raise AssertionError(f"resumed from {run.resumed_from}, expected {near}")
    return median(plain), median(resumed)


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was measured; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="bench.training_loop", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the full sizes, for quick runs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="mckpt-bench-", dir="."))
    try:
        costs = overheads(folder, rounds=args.rounds, batches=max(200, int(BATCHES * args.scale)))
        indices = max(100 * BATCH, int(INDICES * args.scale))
        plain, resumed = skipping(folder / "run", rounds=args.rounds, indices=indices)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    promises = (
        *(Promise(f"us per iteration: {name}", cost, OVERHEAD_TARGET) for name, cost in costs.items()),
        Promise("s until the first batch of a run resumed near the end", resumed, SKIP_TARGET),
        Promise("s of these to find the place in the order", resumed - plain, PLACE_TARGET),
    )
    if args.json:
        met = all_kept(promises)
        print(json.dumps({"microseconds": costs, "order": plain, "resumed": resumed, "met": met}))
        return 0 if met else 1
    print("processor time per iteration beyond the plain loop; the best of the rounds")
    for name, cost in costs.items():
        print(f"{name:28} {cost:8.1f} us")
    print(f"{indices} shuffled indices: first batch after {plain:.2f} s, resumed near the end after {resumed:.2f} s")
    return judge(promises)


if __name__ == "__main__":
    sys.exit(main())
