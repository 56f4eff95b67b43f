"""Bit flip: one bit of one stored file is turned over, the checkpoint is loaded, the bit is turned back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measuring.states import State

from proof.child import result_of
from proof.power_cut import save_here
from proof.reading import Reading, read, sample_state

_ELEMENTS = 4_096  # 384 KiB in all


@dataclass(frozen=True, slots=True)
class Spot:
    """A bit of a stored file, and whether it lies in the values of a tensor."""

    path: Path
    byte: int
    bit: int
    payload: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One trial."""

    contender: str
    payload: bool
    reading: Reading


def flip_bits(name: str, folder: Path, *, count: int, seed: int = 0) -> Iterator[Flip]:
    """Save into ``folder``, then flip ``count`` bits of the tensors' values and ``count`` of all other stored bytes."""
    folder.mkdir(parents=True)
    with result_of(save_here, name, folder, False, _ELEMENTS):
        pass
    for spot in draw_spots(folder, sample_state(_ELEMENTS), count=count, draw=random.Random(seed)):
        _turn(spot)
        yield Flip(contender=name, payload=spot.payload, reading=read(name, folder, _ELEMENTS))
        _turn(spot)


def draw_spots(folder: Path, state: State, *, count: int, draw: random.Random) -> list[Spot]:
    """Draw ``count`` bits evenly from the values of the tensors and ``count`` from everything else."""
    spans = {True: [], False: []}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        for start, stop, payload in _split(path.read_bytes(), state):
            spans[payload].append((path, start, stop))
    return [
        Spot(path, draw.randrange(start, stop), draw.randrange(8), payload)
        for payload, found in spans.items()
        for path, start, stop in draw.choices(found, [stop - start for _, start, stop in found], k=count)
    ]


def _split(data: bytes, state: State) -> Iterator[tuple[int, int, bool]]:
    """Cut a file where the values of tensors begin and end.

    A file that has room for one but holds none in the clear holds them compressed, and counts as values altogether.
    """
    values = [tensor.numpy().tobytes() for tensor in state.flat.values()]
    found = sorted((at, at + len(one)) for one in values if (at := data.find(one)) >= 0)
    if not found and len(data) > len(values[0]) // 2:
        found = [(0, len(data))]
    end = 0
    for start, stop in [*found, (len(data), len(data))]:
        if start > end:
            yield end, start, False
        if stop > start:
            yield start, stop, True
        end = stop


def _turn(spot: Spot) -> None:
    with spot.path.open("r+b") as file:
        file.seek(spot.byte)
        (byte,) = file.read(1)
        file.seek(spot.byte)
        file.write(bytes([byte ^ (1 << spot.bit)]))


__all__ = ["Flip", "Spot", "draw_spots", "flip_bits"]
