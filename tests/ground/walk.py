"""Walk: the rooms that a save, a load and a training step pass through, in order; ``python -m tests.ground.walk``.

Each line is a visit: a sub-room that the room which wires the work (named at the top) calls into from another, with the
functions it calls there. Neighbouring calls are one visit, so a room that comes again means that the way went back.
What is done for one chunk or stage after the other is shown once. Every thread walks its own way. Looks at a property,
the rooms called ``common`` and the vocabulary that all rooms share are no stops on it.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import model_checkpoint

HOME = str(Path(model_checkpoint.__file__).parent)
VOCABULARY = {"state", "manifest", "options", "backend", "coordination", "events", "forks", "errors", "performance"}
SHOWN = 6
LONGEST_ROUND = 8  # visits that are made again and again in the same order, for each chunk or stage
LOOKS = (property, cached_property)


class Visit(NamedTuple):
    """One stay in a sub-room."""

    room: str
    functions: list[str]


def walk(work: Callable[[], object], *, wiring: str) -> list[list[Visit]]:
    """The visits that ``wiring`` makes while ``work`` runs, for each thread; the first is the one that calls."""
    ways: dict[int, list[Visit]] = {threading.get_ident(): []}
    begun = set()  # generators: each is entered once, however often it goes on

    def note(frame, event, _):
        if event != "call" or not is_step(frame) or frame in begun:
            return
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            begun.add(frame)
        caller = caller_of(frame)
        here, there = room_of(frame), wiring if caller is None else room_of(caller)
        if here != there and there.startswith(wiring) and (caller is not None or here.startswith(wiring)):
            visits = ways.setdefault(threading.get_ident(), [])
            if not visits or visits[-1].room != here:
                visits.append(Visit(here, []))
                shorten(visits)
            visits[-1].functions.append(frame.f_code.co_name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(ways.values())


def is_step(frame) -> bool:
    """Whether a call does work in a room: no look at a property, nothing of what all share, nothing without a name."""
    code = frame.f_code
    if not code.co_filename.startswith(HOME) or code.co_name.startswith("<"):
        return False
    parts = room_of(frame).split("/")
    if parts[0] in VOCABULARY or parts[-1] == "common":
        return False
    return not isinstance(getattr(type(frame.f_locals.get("self")), code.co_name, None), LOOKS)


def shorten(visits: list[Visit]) -> None:
    """Leave a round out that is the one before it over again."""
    rooms = [visit.room for visit in visits[-2 * LONGEST_ROUND :]]
    for length in range(2, LONGEST_ROUND + 1):
        if len(rooms) >= 2 * length and rooms[-length:] == rooms[-2 * length : -length]:
            del visits[-length:]
            return


def returns(ways: Sequence[Sequence[Visit]]) -> Counter[str]:
    """How often each sub-room was gone back to, by the thread that did so most."""
    most: Counter[str] = Counter()
    for visits in ways:
        most |= Counter({room: times - 1 for room, times in Counter(visit.room for visit in visits).items()})
    return most


def caller_of(frame):
    """The frame of the package that called, past decorators of the standard library and torch; None if nobody did."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(HOME):
        caller = caller.f_back
    return caller


def room_of(frame) -> str:
    """The folder of a module below the package, or the module itself where it lies at the top."""
    inside = frame.f_code.co_filename.removeprefix(HOME + "/")
    return inside.rpartition("/")[0] or inside.removesuffix(".py")


def ways(root: Path) -> dict[str, tuple[str, Callable[[], object]]]:
    """What is walked, with checkpoints below ``root``: its name, the room that wires it, and the work."""
    import torch

    import model_checkpoint as mc
    from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions
    from model_checkpoint.recompute import auto_checkpoint

    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(32, 64)
    model(batch).sum().backward()
    optimizer.step()
    state = {"model": model, "optimizer": optimizer}
    mc.save(root, state, step=1)
    planned = auto_checkpoint(
        torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(12)]),
        0.8,
        batch,
    )
    half = torch.nn.Linear(64, 64)
    mixed = MixedPrecisionOptimizer(torch.optim.AdamW(half.parameters()), MixedPrecisionOptions.for_bf16(), model=half)

    def step_planned():
        planned(batch).sum().backward()

    def step_mixed():
        mixed.backward(half(batch.bfloat16()).float().square().mean())
        mixed.step()
        mixed.zero_grad()

    return {
        "a save": ("engine", lambda: mc.save(root, state, step=2)),
        "a load into live objects": ("engine", lambda: mc.load(root, into=state)),
        "a training step under auto_checkpoint": ("recompute/auto", step_planned),
        "a mixed precision step": ("precision", step_mixed),
    }


def main() -> None:
    """Print every way."""
    with tempfile.TemporaryDirectory() as root:
        for name, (wiring, work) in ways(Path(root)).items():
            print(f"{name}, as {wiring} wires it")
            for number, visits in enumerate(walk(work, wiring=wiring)):
                for room, functions in visits:
                    told = list(dict.fromkeys(functions))
                    more = f" ... {len(told) - SHOWN} more" if len(told) > SHOWN else ""
                    print(f"  {number} {room:28} {', '.join(told[:SHOWN])}{more}")
            print()


if __name__ == "__main__":
    main()
