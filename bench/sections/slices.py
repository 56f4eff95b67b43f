"""Slices: 4 MiB out of the middle of a 256 MiB tensor, the page cache cold, bytes read counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bench.measuring import disk
from bench.measuring.contenders import OURS, PEERS, CannotDo, Contender
from bench.measuring.measure import MIB, bytes_read, measure
from bench.measuring.results import Section, Verdict
from bench.measuring.rounds import Say, WrongBytes, rehearse, rotated
from bench.measuring.states import State, one_large

_WHOLE, _WANTED = 256 * MIB, 4 * MIB
_PART, _NAME = "model", "embedding"


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Measure one slice per round and contender; the sizes do not scale."""
    state = one_large(_WHOLE)
    tensor = state.nested[_PART][_NAME]
    row = tensor.nbytes // len(tensor)
    start = len(tensor) // 2 + 777  # on no chunk's border
    rows = slice(start, start + _WANTED // row)
    rehearse([OURS, *PEERS], folder)
    walls: dict[str, list[float]] = {}
    counts: dict[str, tuple[int, int, int]] = {}
    notes: list[str] = []
    for number in range(rounds):
        for one in rotated([OURS, *PEERS], number):
            try:
                wall, counts[one.name] = _read_rows(one, folder, state, rows)
                walls.setdefault(one.name, []).append(wall)
                say(f"  {one.name:30} {'4 MiB slice':24} {wall:8.3f} s")
            except CannotDo as reason:
                note = f"{one.name} left out: {reason}"
                notes += [note] if note not in notes else []
    heading = ("contender", "best s", "read calls MiB", "from the medium MiB", "our reader's count MiB")
    grid = [heading] + [_line(name, walls[name], counts[name], OURS.name) for name in walls]
    return Section(
        title="A slice",
        intro="4 MiB of rows out of the middle of a 256 MiB tensor, page cache cold. Read calls are what the process "
        "asked for (memory maps ask for nothing there); from the medium includes the kernel's read-ahead.",
        grid=grid,
        notes=notes,
        verdicts=[
            Verdict(claim="bytes read for a 4 MiB slice", value=max(counts[OURS.name]) / MIB, limit=12, unit=" MiB")
        ],
    )


def _line(name: str, walls: list[float], counts: tuple[int, int, int], ours: str) -> list[str]:
    asked, medium, counted = (f"{count / MIB:.1f}" for count in counts)
    return [name, f"{min(walls):.4f}", asked, medium, counted if name == ours else "-"]


def _read_rows(one: Contender, folder: Path, state: State, rows: slice) -> tuple[float, tuple[int, int, int]]:
    disk.empty(folder)
    one.save(folder, state)
    disk.chill(folder)
    found: list[torch.Tensor] = []
    with _counted_preads() as counted:
        before = bytes_read()
        sample = measure(lambda: found.append(one.rows(folder, _PART, _NAME, rows)), _WANTED)
        after = bytes_read()
    if not torch.equal(found[0], state.nested[_PART][_NAME][rows]):
        raise WrongBytes(f"{one.name}: the slice is not what was saved")
    return sample.wall, (after[0] - before[0], after[1] - before[1], sum(counted))


@contextmanager
def _counted_preads() -> Iterator[list[int]]:
    """Count what our storage room reads, in the one place through which it reads."""
    from model_checkpoint.storage.local.syscalls import Syscalls

    plain, counted = Syscalls.preadv, []

    def preadv(self: Syscalls, fd: int, buffer: memoryview, offset: int) -> int:
        count = plain(self, fd, buffer, offset)
        counted.append(count)
        return count

    Syscalls.preadv = preadv
    try:
        yield counted
    finally:
        Syscalls.preadv = plain
