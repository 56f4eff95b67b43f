"""A million tensors: saved and loaded by this library alone; time, memory and manifest are printed."""

from __future__ import annotations

from pathlib import Path

from bench.measuring.contenders import OURS
from bench.measuring.measure import MIB, summarize
from bench.measuring.results import Section, Table, Verdict
from bench.measuring.rounds import Say, Trial, rehearse
from bench.measuring.states import describe, many_small

_COUNT, _ELEMENTS = 1_000_000, 64


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Once is enough: there is nobody to compare with."""
    state = many_small(max(1000, round(_COUNT * scale)), _ELEMENTS)
    rehearse([OURS], folder)
    trial = Trial(folder, state, say=say)
    saves, loads = Table(title="durable save"), Table(title="load, warm")
    trial.save(OURS, saves)
    trial.load(OURS, loads, cold=False)
    manifest = next(folder.rglob("manifest.json")).stat().st_size
    files = len(list(folder.rglob("*.safetensors")))
    saved, loaded = summarize(saves.samples[OURS.name]), summarize(loads.samples[OURS.name])
    return Section(
        title="A million tensors",
        intro=f"{describe(state)}.",
        tables=[saves, loads],
        facts={
            "manifest": f"{manifest / MIB:.1f} MiB",
            "data files": str(files),
            "save": f"{saved.best:.1f} s, {saved.peak / MIB:.0f} MiB more memory at the peak",
            "load": f"{loaded.best:.1f} s, {loaded.peak / MIB:.0f} MiB more memory at the peak",
        },
        verdicts=[Verdict(claim=f"{len(state.flat):,} tensors: manifest", value=manifest / 1e6, limit=100, unit=" MB")],
    )
