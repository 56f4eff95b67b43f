"""Walk: the rooms that a save, a load and a training step pass through, in order; ``python -m tests.ground.walk``.

Each line is a room that the room which wires the work (named at the top) calls into, with the functions it calls there
for the first time. Neighbouring ones are one line, so a room that comes again means that the way went back.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import model_checkpoint

HOME = str(Path(model_checkpoint.__file__).parent)
SHOWN = 6


def walk(work: Callable[[], object], *, wiring: str) -> list[tuple[str, list[str]]]:
    """The rooms that ``wiring`` calls into while ``work`` runs, and the functions it calls there."""
    seen: list[tuple[str, list[str]]] = []
    known: set[object] = set()

    def note(frame, event, _):
        code = frame.f_code
        if event != "call" or code in known or not code.co_filename.startswith(HOME) or code.co_name.startswith("<"):
            return
        here, caller = room_of(frame), caller_of(frame)
        if caller is not None and room_of(caller).startswith(wiring) and not here.startswith(wiring):
            known.add(code)
            if not seen or seen[-1][0] != here:
                seen.append((here, []))
            seen[-1][1].append(code.co_name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def caller_of(frame):
    """The frame of the package that called, past decorators of the standard library and torch."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(HOME):
        caller = caller.f_back
    return caller


def room_of(frame) -> str:
    """The folder of a module below the package, or the module itself where it lies at the top."""
    inside = frame.f_code.co_filename.removeprefix(HOME + "/")
    return inside.rpartition("/")[0] or inside.removesuffix(".py")


def ways() -> dict[str, tuple[str, Callable[[], object]]]:
    """What is walked: its name, the room that wires it, and the work."""
    import torch

    import model_checkpoint as mc
    from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions
    from model_checkpoint.recompute import auto_checkpoint

    root = tempfile.mkdtemp()
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
        "a training step under auto_checkpoint": ("recompute/auto/running", step_planned),
        "a mixed precision step": ("precision/stepping", step_mixed),
    }


def main() -> None:
    """Print every way."""
    for name, (wiring, work) in ways().items():
        print(f"{name}, as {wiring} wires it")
        for room, functions in walk(work, wiring=wiring):
            more = f" ... {len(functions) - SHOWN} more" if len(functions) > SHOWN else ""
            print(f"  {room:28} {', '.join(functions[:SHOWN])}{more}")
        print()


if __name__ == "__main__":
    main()
