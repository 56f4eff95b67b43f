"""Training state: GPT-2-small with both Adam moments, saved durably and loaded warm and cold, beside the raw disk."""

from __future__ import annotations

from pathlib import Path

from bench.measuring.contenders import OURS, OURS_FULL, PEERS
from bench.measuring.disk import RawDisk
from bench.measuring.measure import MIB
from bench.measuring.results import Section, Table, Verdict
from bench.measuring.rounds import Say, Trial, rehearse, rotated
from bench.measuring.states import describe, gpt2_small

RAW = "raw disk"


def run(folder: Path, *, rounds: int, scale: float, say: Say) -> Section:
    """Measure all rounds and judge them."""
    state = gpt2_small(scale)
    raw = RawDisk(folder, state.nbytes)
    say("probing the raw disk")
    raw.probe()
    say(f"raw writes: {raw.writes}; raw reads: {' or '.join(map(str, raw.reads))}")
    rehearse([OURS, *PEERS], folder)
    trial = Trial(folder, state, say=say)
    saves, warm, cold = Table(title="durable save"), Table(title="load, warm"), Table(title="load, cold")
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for one in rotated([None, OURS, *PEERS], number):
            if one is None:
                saves.add(RAW, raw.write())
                cold.add(RAW, raw.read())
                continue
            trial.save(one, saves)
            trial.load(one, warm, cold=False)
            trial.load(one, cold, cold=True)
            if one is OURS:
                trial.load(OURS_FULL, warm, cold=False)
                trial.load(OURS_FULL, cold, cold=True)
    return Section(
        title="Training state",
        intro=f"GPT-2-small, model and both Adam moments in fp32: {describe(state)}. Loads go into existing tensors; "
        "ours verify every byte before it reaches one, the others verify nothing.",
        tables=[saves, warm, cold],
        facts={"best raw write": str(raw.writes), "best raw read": " or ".join(map(str, raw.reads))},
        verdicts=_judge(saves, warm, cold),
    )


def _judge(saves: Table, warm: Table, cold: Table) -> list[Verdict]:
    ours, tensors, dcp = OURS.name, "safetensors", "DCP"
    slowest = max(cold.ratio(ours, peer.name) for peer in PEERS)
    memory = max(sample.peak for sample in saves.samples[ours]) / MIB
    return [
        Verdict(claim="durable hashed save / safetensors + fsync", value=saves.ratio(ours, tensors), limit=1.15),
        Verdict(claim="durable hashed save / DCP", value=saves.ratio(ours, dcp), limit=0.8),
        Verdict(
            claim="save speed / best raw durable write", value=1 / saves.ratio(ours, RAW), limit=0.85, at_most=False
        ),
        Verdict(claim="verified warm load / safetensors unverified", value=warm.ratio(ours, tensors), limit=1.2),
        Verdict(claim="verified warm load / DCP", value=warm.ratio(ours, dcp), limit=0.5),
        Verdict(claim="cold load speed / raw read", value=1 / cold.ratio(ours, RAW), limit=0.85, at_most=False),
        Verdict(claim="cold load / fastest peer", value=slowest, limit=1.0),
        Verdict(claim="peak extra memory of a blocking save", value=memory, limit=256, unit=" MiB"),
    ]
