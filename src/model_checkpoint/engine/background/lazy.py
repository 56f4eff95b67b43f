"""Lazy: which runs of a save may be copied after the call, because only a guarded step can change them.

A chunk is copied later if every tensor in it is guarded; one that holds anything else is copied at the call, which is
always right. Whether the guards kept their word is read off the tensors' version counters.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from model_checkpoint.engine.writing.save_plan import SavePlan
from model_checkpoint.engine.writing.slabs import ChunkRun, FileJob
from model_checkpoint.errors import StateChanged, UnsupportedType
from model_checkpoint.state import Flat
from model_checkpoint.tree.arrays.frameworks import loaded

if TYPE_CHECKING:
    from model_checkpoint.tree.flattening.torch_guards import Guard, Watched

log = logging.getLogger("model_checkpoint.save")


def guard_state(flat: Flat, guard: object, where: str) -> Guard | None:
    """Return the guard of a state; without any the save is eager, and says so."""
    if not isinstance(guard, Iterable):
        kind = type(guard).__qualname__
        raise TypeError(f"guard: expected a list of torch optimizers, got {kind}. Write guard=[optimizer].")
    more = tuple(guard)
    if loaded("torch"):
        from model_checkpoint.tree.flattening import torch_guards

        found = torch_guards.find_guard(flat, more)
        if found is not None:
            return found
    elif more:
        raise UnsupportedType(f"guard: expected torch optimizers, got {type(more[0]).__qualname__}")
    log.warning("%s: lazy=True, but no optimizer guards the state, so all is copied at the call", where)
    return None


def of_pieces(guard: Guard, origins: Sequence[int]) -> Guard:
    """The guard of leaves that are each a piece of one of those it guards."""
    from model_checkpoint.tree.flattening import torch_guards

    leaves = {number: guard.leaves[origin] for number, origin in enumerate(origins) if origin in guard.leaves}
    return torch_guards.Guard(guard.optimizers, leaves)


class Lazy:
    """The part of a save that is copied after the call."""

    def __init__(self, planned: SavePlan, guard: Guard, runs: Sequence[ChunkRun]) -> None:
        self._where, self._guard = planned.where, guard
        self._watched = {
            id(job): {
                place: guard.leaves[file.leaves[chosen]]
                for place, chosen in enumerate(job.layout.order)
                if file.leaves[chosen] in guard.leaves
            }
            for file, job in zip(planned.files, planned.jobs, strict=True)
            if isinstance(job, FileJob)
        }
        self._lock = threading.Lock()
        self._settled = False
        self._error: StateChanged | None = None
        parts = [part for run in runs for part in self._split(run)]
        self.eager = [run for run, later in parts if not later]
        self.later = [run for run, later in parts if later]

    def _split(self, run: ChunkRun) -> Iterator[tuple[ChunkRun, bool]]:
        """Cut a run where chunks copied later begin or end."""
        now = _chunks_with_others(run.job, self._watched[id(run.job)])
        parts = [(later, list(chunks)) for later, chunks in groupby(range(run.first, run.stop), lambda c: c not in now)]
        run.job.open_runs += len(parts) - 1
        for later, chunks in parts:
            yield ChunkRun(run.job, chunks[0], chunks[-1] + 1), later

    def check(self, run: ChunkRun) -> None:
        """Raise if a tensor of a run just copied was written to since the call."""
        starts = run.job.layout.starts
        first, last = bisect_right(starts, run.begin) - 1, bisect_right(starts, run.end - 1) - 1
        watched = self._watched[id(run.job)]
        self._require_still(watched[place] for place in range(first, last + 1) if place in watched)

    def settle(self) -> None:
        """Compare every tensor once more when all are copied and before anything is allowed to change them.

        The counter of a write that was under way during the last comparison moves only when it is over.
        """
        with self._lock:
            if not self._settled:
                self._settled = True
                try:
                    self._require_still(self._guard.leaves.values())
                except StateChanged as error:
                    self._error = error
            if self._error is not None:
                raise self._error

    def _require_still(self, watched: Iterable[Watched]) -> None:
        for one in watched:
            if one.moved:
                raise StateChanged(
                    f"{self._where}: {one.name} was written to while it was being saved, by something other than its "
                    f"optimizer's step (version {one.version} at the call, now {one.tensor._version}). Nothing was "
                    "committed. Call job.wait_staged() before the write, or save without lazy=True.",
                    self._where,
                )


def _chunks_with_others(job: FileJob, watched: dict[int, Watched]) -> set[int]:
    """The header and every chunk with a byte of a tensor that is not watched."""
    starts, ends = job.layout.starts, job.layout.ends
    chunks = {0}
    for place in range(len(starts) - 1):
        if place not in watched and starts[place] < starts[place + 1]:
            first, last = bisect_right(ends, starts[place]), bisect_right(ends, starts[place + 1] - 1)
            chunks.update(range(first, last + 1))
    return chunks
