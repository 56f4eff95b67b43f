"""What tests of retention stand on: candidates by the dozen, and roots with a few small checkpoints."""

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import strategies as st

import model_checkpoint as mc
from model_checkpoint.checkpoint.retention.candidates import Candidate
from model_checkpoint.options import Graces

START = datetime(2026, 1, 1, tzinfo=UTC)


def saved(step, *, minutes=None, **fields):
    """A healthy candidate of a step, committed so many minutes after the start, with ten bytes of its own."""
    name = fields.pop("name", f"s{step}")
    when = START + timedelta(minutes=step if minutes is None else minutes)
    return Candidate(
        **{"id": f"id-{name}", "name": name, "step": step, "committed_at": when, "files": ((name, 10),)} | fields
    )


def names(decisions):
    return [one.name for one in decisions]


def kept(plan):
    return [one.candidate.step for one in plan.kept]


candidates = st.builds(
    lambda step, minutes, loss, files, **fields: dict(
        step=step,
        minutes=minutes,
        metrics={} if loss is None else {"loss": loss},
        files=tuple((key, 10 * len(key)) for key in sorted(files)),
        **fields,
    ),
    step=st.none() | st.integers(0, 40),
    minutes=st.integers(0, 5000),
    loss=st.none() | st.sampled_from([0.1, 0.5, float("nan"), 2]),
    files=st.sets(st.sampled_from(["a", "bb", "ccc", "dddd", "eeeee"]), min_size=1),
    healthy=st.booleans() | st.just(True),
    complete=st.booleans() | st.just(True),
    pinned=st.booleans(),
    tags=st.sampled_from([(), ("x",), ("x", "y")]),
    unread=st.booleans(),
    held=st.sampled_from(["", "a reader"]),
)


def _whole(drawn):
    return [
        saved(fields.pop("step"), name=f"c{number:02d}", **fields)
        for number, fields in enumerate(dict(one) for one in drawn)
    ]


lineups = st.lists(candidates, max_size=12).map(_whole)
keepers = st.one_of(
    st.integers(1, 4).map(mc.last),
    st.integers(1, 3).map(lambda k: mc.best("loss", k)),
    st.just(mc.pareto("min:loss", "max:loss")),
    st.integers(1, 20).map(mc.every),
    st.integers(1, 3).map(lambda k: mc.ladder({5: k}, days=k)),
    st.integers(0, 5000).map(lambda m: mc.younger_than(60 * m)),
    st.sampled_from([mc.tagged("y"), mc.tagged(), mc.pinned()]),
)
budgets = st.builds(mc.budget, st.integers(0, 150), hard=st.booleans())
keeps = st.lists(keepers, min_size=1, max_size=3) | st.tuples(
    st.lists(keepers, max_size=2), budgets, st.lists(keepers, max_size=1)
).map(lambda parts: [*parts[0], parts[1], *parts[2]])


def fill(root, steps, *, metric=lambda step: 1 / (1 + step), **options):
    """Save a small state at each step."""
    for step in steps:
        state = {"w": np.full(100, step), "step": step}
        mc.save(root, state, step=step, metrics={"val_loss": metric(step)}, **options)


def fill_linked(root, steps):
    """Save states of which all but the first share a file of 800,000 bytes."""
    for step in [0, *steps]:
        state = {"frozen": np.arange(200_000, dtype=np.float32), "moving": np.full(10, step)}
        mc.save(root, state, step=step, incremental=True, metrics={"val_loss": step})
    mc.delete(root, step=0)
    mc.collect_garbage(root, graces=Graces(trash=0.0))
