"""Merging: a short chain costs what the stages of the long one cost in a row."""

import itertools
import random

import pytest
from tests.recompute.auto.planning.planned_chains import broken_chain, may_run, random_chain, simulate

from model_checkpoint.recompute.auto.planning.merge import merge_chain
from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage, lone_bytes
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region


@pytest.mark.parametrize("modes", [1, 2])
def test_merged_costs_equal_the_costs_of_the_stages_in_a_row(modes):
    rng = random.Random(8)
    for _ in range(12):
        chain = broken_chain(rng, rng.randint(4, 12), modes=modes)
        short, groups = merge_chain(chain, limit=3)

        assert list(itertools.chain(*groups)) == list(range(len(chain.stages)))
        assert short.region_cost == chain.region_cost
        for group, merged in zip(groups, short.stages, strict=True):
            assert_joined(merged, chain.stages[group.start : group.stop])


def assert_joined(merged, stages):
    part = Chain(stages=stages)
    last = stages[-1]
    assert len(stages) == 1 or may_run(part, (Region(start=0, stop=len(stages) - 1, body=()),))
    assert (merged.output, merged.gradient, merged.linked) == (last.output, last.gradient, last.linked)
    assert (merged.recomputable, merged.bare) == (all(s.recomputable for s in stages), sum(s.bare for s in stages))
    assert merged.bare_peak == max(s.bare_peak + (stages[i - 1].output if i else 0) for i, s in enumerate(stages))
    for mode in merged.modes:
        seconds, peak = simulate(part, tuple(Keep(stage=i, mode=mode.name) for i in range(len(stages))))
        kept = [next(m for m in stage.modes if m.name == mode.name) for stage in stages]

        assert mode.forward + mode.backward == seconds
        assert max(mode.forward_peak, mode.backward_peak) == peak
        assert (mode.saved, lone_bytes(mode)) == (sum(m.saved for m in kept), sum(m.saved for m in kept))
        assert (mode.frees_output, mode.rebuild) == (kept[-1].frees_output, kept[-1].rebuild)


def test_bytes_on_their_way_weigh_on_the_next_stage_of_a_merged_one():
    mode = Mode(
        name="disk", forward=1, backward=2, saved=10, forward_peak=12, backward_peak=14, alone=7, moved=5, fetched=3,
        write=0.5, read=0.25,
    )  # fmt: skip
    stage = Stage(output=4, gradient=4, bare=1, bare_peak=4, modes=(mode,), ahead=False)
    short, groups = merge_chain(Chain(stages=(stage,) * 3), limit=1)
    joined = short.stages[0].modes[0]

    assert groups == [range(3)]
    assert (joined.forward_peak, joined.backward_peak) == (20 + 5 + 12, 20 + 3 + 14)
    assert (joined.saved, lone_bytes(joined)) == (30, 27)
    assert (joined.moved, joined.fetched, joined.write, joined.read) == (5, 3, 1.5, 0.75)
    assert not short.stages[0].ahead


def test_a_chain_within_the_limit_stays_as_it_is():
    chain = random_chain(random.Random(0), 4)

    assert merge_chain(chain, limit=4) == (chain, [range(i, i + 1) for i in range(4)])
    assert len(merge_chain(chain, limit=3)[1]) < 4


@pytest.mark.parametrize(
    ("saved", "groups"),
    [
        ([0] * 11 + [12], [range(8), range(8, 12)]),  # the first would never have its share of bytes
        ([12] + [0] * 11, [range(4), range(4, 12)]),
        ([1] * 12, [range(4), range(4, 8), range(8, 12)]),
    ],
    ids=["bytes at the end", "bytes at the start", "even"],
)
def test_a_group_ends_with_its_share_of_bytes_and_stages_or_at_twice_those_stages(saved, groups):
    stages = [
        Stage(
            output=4, gradient=4, bare=1, bare_peak=4,
            modes=(Mode(name="full", forward=1, backward=2, saved=size, forward_peak=size, backward_peak=size),),
        )
        for size in saved
    ]  # fmt: skip

    assert merge_chain(Chain(stages=tuple(stages)), limit=3)[1] == groups
