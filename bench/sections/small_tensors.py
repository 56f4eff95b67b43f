"""Small tensors: 100,000 of them, where work per tensor and not per byte decides."""

from __future__ import annotations

from pathlib import Path

from bench.measuring.contenders import OURS, PEERS, able
from bench.measuring.results import Section, Table, Verdict
from bench.measuring.rounds import Say, Trial, rehearse, rotated
from bench.measuring.states import describe, many_small

_COUNT, _ELEMENTS = 100_000, 256


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Measure saves and warm loads; two rounds are enough for times this long."""
    state = many_small(max(1000, round(_COUNT * scale)), _ELEMENTS)
    contenders, notes = able([OURS, *PEERS], state)
    rehearse(contenders, folder)
    trial = Trial(folder, state, say=say)
    saves, loads = Table(title="durable save"), Table(title="load, warm")
    for number in range(min(rounds, 2)):
        say(f"round {number + 1}")
        for one in rotated(contenders, number):
            trial.save(one, saves)
            trial.load(one, loads, cold=False)
    return Section(
        title="Many small tensors",
        intro=f"{describe(state)}, each with memory of its own.",
        tables=[saves, loads],
        notes=notes,
        verdicts=[
            Verdict(claim=f"{len(state.flat):,} tensors: save / DCP", value=saves.ratio(OURS.name, "DCP"), limit=0.5),
            Verdict(claim=f"{len(state.flat):,} tensors: load / DCP", value=loads.ratio(OURS.name, "DCP"), limit=0.5),
        ],
    )
