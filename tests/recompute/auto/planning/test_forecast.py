"""Forecasts: a schedule on paper takes what it takes, with workers beside the main thread and without."""

import itertools
import math
import random
import time
from dataclasses import replace

import pytest
from test_planner import every_schedule, random_chain, simulate

from model_checkpoint.recompute.auto.planning.forecast import Forecaster, Lanes, exposed, hidden_again
from model_checkpoint.recompute.auto.planning.merge import merge_chain
from model_checkpoint.recompute.auto.planning.planner import Chain, Mode, Stage, Table
from model_checkpoint.recompute.auto.planning.points import plan_points
from model_checkpoint.recompute.auto.planning.schedule import Keep, Region

FULL = Mode(name="full", forward=1, backward=2, saved=10, alone=6, forward_peak=11, backward_peak=14)
DISK = Mode(
    name="disk", forward=1, backward=2, saved=4, forward_peak=11, backward_peak=14, moved=6, fetched=6, write=3, read=3
)
STAGE = Stage(output=4, gradient=4, bare=1, bare_peak=5, modes=(FULL, DISK))


def chain_of(count, **changes):
    return Chain(stages=(replace(STAGE, **changes),) * count)


def again(*starts):
    return tuple(Region(start=i, stop=i, body=(Keep(stage=i),)) for i in starts)


def test_without_workers_forecast_and_simulation_agree_on_every_schedule():
    rng = random.Random(0)
    for number in range(30):
        chain = random_chain(rng, 1 + number % 4, modes=2)
        book = Forecaster(chain)
        for schedule in every_schedule(0, len(chain.stages) - 1, [[m.name for m in s.modes] for s in chain.stages]):
            takes = book.take(schedule)

            assert (takes.seconds, takes.peak) == pytest.approx(simulate(chain, schedule))


def test_without_workers_the_points_are_the_front_of_the_table():
    chain = random_chain(random.Random(1), 7, modes=2)
    table = Table(chain, budget=120, slots=120)

    points = plan_points(chain, budget=120, slots=120)

    assert [point.seconds for point in points] == pytest.approx([point.seconds for point in table.front()])
    assert all(p.bytes <= q.bytes for p, q in zip(points, table.front(), strict=True))


def test_a_region_run_ahead_hides_behind_the_backward_after_it_and_is_held_meanwhile():
    chain, schedule = chain_of(3), (*again(0, 1), Keep(stage=2))
    alone = Forecaster(chain).take(schedule)
    ahead = Forecaster(chain, Lanes(overlap=1.0, prefetch=True)).take(schedule)
    half = Forecaster(chain, Lanes(overlap=0.25, prefetch=True)).take(schedule)

    # stage 0 runs again (1 s) while stage 1 is in backward (2 s); its 6 bytes and its transient come on top
    assert (alone.seconds, ahead.seconds, half.seconds) == (11, 10, 10.5)
    assert ahead.peak == max(alone.peak, 4 + 14 + 6) + (11 - 6)


def test_only_one_region_is_held_ahead():
    short, long = (
        Forecaster(chain_of(count), Lanes(overlap=1.0, prefetch=True)).take(
            (*again(*range(count - 1)), Keep(stage=count - 1))
        )
        for count in (4, 9)
    )

    assert long.peak - short.peak == 5 * STAGE.output


def test_what_draws_random_numbers_is_not_run_ahead():
    chain, schedule = chain_of(3, ahead=False), (*again(0, 1), Keep(stage=2))

    assert Forecaster(chain, Lanes(overlap=1.0, prefetch=True)).take(schedule) == Forecaster(chain).take(schedule)


def test_a_region_may_be_left_to_backward():
    chain = chain_of(3)
    schedule = (*(replace(node, ahead=False) for node in again(0, 1)), Keep(stage=2))

    assert Forecaster(chain, Lanes(overlap=1.0, prefetch=True)).take(schedule) == Forecaster(chain).take(schedule)


def test_writes_hide_behind_the_next_stage_and_reads_behind_backward():
    chain, schedule = chain_of(3), (Keep(stage=0, mode="disk"), Keep(stage=1, mode="disk"), Keep(stage=2))
    slow = Forecaster(chain).take(schedule)
    quick = Forecaster(chain, Lanes(overlap=1.0)).take(schedule)

    assert slow.seconds == 9 + 2 * (3 + 3)
    assert quick.seconds == slow.seconds - 2 * 1 - 2  # each write by one forward; one read by one backward


def test_bytes_on_their_way_out_or_back_are_held():
    chain = chain_of(3)
    moved = Forecaster(chain).take((Keep(stage=0, mode="disk"), Keep(stage=1, mode="disk"), Keep(stage=2)))
    first = Forecaster(chain).take((Keep(stage=0, mode="disk"), Keep(stage=1), Keep(stage=2)))

    # forward of stage 2 with group 1 waiting: 4 + 4 + 6 + 11; backward of stage 1 with group 0 back: 4 + 14 + 6
    assert moved.peak == 25
    assert first.peak == 4 + 10 + 14


@pytest.mark.parametrize("seed", range(5))
def test_more_overlap_never_takes_longer_and_prefetch_never_less_memory(seed):
    rng = random.Random(seed)
    chain = random_chain(rng, 6)
    for schedule in itertools.islice(every_schedule(0, 5, [["full"]] * 6), 0, None, 7):
        rows = [Forecaster(chain, Lanes(overlap=share, prefetch=True)).take(schedule) for share in (0.0, 0.3, 0.7, 1.0)]

        assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)
        assert rows[0].peak >= Forecaster(chain).take(schedule).peak
        assert rows[0].seconds == Forecaster(chain).take(schedule).seconds


def with_flags(schedule):
    """A schedule with every choice of which regions run ahead."""
    regions = [n for n, node in enumerate(schedule) if isinstance(node, Region)]
    for flags in itertools.product((True, False), repeat=len(regions)):
        chosen = dict(zip(regions, flags, strict=True))
        yield tuple(replace(node, ahead=chosen[n]) if n in chosen else node for n, node in enumerate(schedule))


@pytest.mark.slow
def test_points_with_prefetch_are_near_brute_force_and_never_worse_than_without():
    """Brute force over trees and over which regions run ahead; exact in nine of ten budgets, 15 % off at most."""
    rng, gaps = random.Random(11), []
    for number in range(60):
        chain, lanes = random_chain(rng, 2 + number % 4), Lanes(overlap=rng.choice([0.5, 1.0]), prefetch=True)
        book = Forecaster(chain, lanes)
        trees = every_schedule(0, len(chain.stages) - 1, [["full"]] * len(chain.stages))
        every = [book.take(one) for tree in trees for one in with_flags(tree)]
        floor, top = min(takes.peak for takes in every), max(takes.peak for takes in every)
        points, alone = (
            plan_points(chain, budget=top, lanes=lanes, slots=top),
            plan_points(chain, budget=top, slots=top),
        )
        for budget in range(floor, top, max(1, (top - floor) // 8)):
            best = min(takes.seconds for takes in every if takes.peak <= budget)
            got, sync = (min((p.seconds for p in ps if p.bytes <= budget), default=math.inf) for ps in (points, alone))
            assert best - 1e-9 <= got <= sync
            gaps.append(got / best)

    assert max(gaps) <= 1.15
    assert sum(gap < 1.0001 for gap in gaps) >= 0.9 * len(gaps)


def test_on_a_long_even_chain_prefetch_is_planned_for():
    chain = chain_of(16)
    lanes = Lanes(overlap=1.0, prefetch=True)

    points, alone = plan_points(chain, budget=200, lanes=lanes, slots=200), plan_points(chain, budget=200, slots=200)

    for budget in (100, 120, 140):
        mine, other = (min(p.seconds for p in ps if p.bytes <= budget) for ps in (points, alone))
        assert mine < other
    assert points[0].bytes == alone[0].bytes


def schedules_of(chain, lanes, budget):
    """What the planner proposes, as if nothing were hidden and, with half the slots, as if all were."""
    hidden = hidden_again(exposed(chain, 1.0 - lanes.overlap), lanes.overlap)
    for view, slots in ((exposed(chain, 1.0), budget), (hidden, -(-budget // 2))):
        table = Table(view, budget=budget, slots=slots)
        yield from (table.schedule(point.bytes) for point in table.front())


@pytest.mark.parametrize("seed", range(6))
def test_prefetch_thinned_in_place_is_the_schedule_with_those_regions_left_to_backward(seed):
    chain, lanes = random_chain(random.Random(seed), 9, modes=2), Lanes(overlap=0.8, prefetch=True)
    book, thinned = Forecaster(chain, lanes), 0
    for schedule in schedules_of(chain, lanes, chain.keep_all_peak):
        rows = list(book.thin(schedule))
        thinned += len(rows) > 1
        for takes in rows:
            left = tuple(replace(n, ahead=False) if at in takes.late else n for at, n in enumerate(schedule))
            again = book.take(left)

            assert (takes.seconds, takes.peak) == pytest.approx((again.seconds, again.peak))
            assert takes.peak >= takes.least == Forecaster(chain, Lanes(overlap=0.8)).take(schedule).peak
        assert [row.seconds for row in rows] == sorted(row.seconds for row in rows)
    assert thinned


@pytest.mark.parametrize("bare_peak", [5, 40])
def test_regions_ahead_are_left_to_backward_until_none_takes_memory_on_top(bare_peak):
    """Also where forward needs the most, and a region that runs ahead takes something besides."""
    chain, schedule = chain_of(2, bare_peak=bare_peak), again(0, 1)

    rows = list(Forecaster(chain, Lanes(overlap=1.0, prefetch=True)).thin(schedule))

    assert [sorted(takes.late) for takes in rows] == [[], [0]]
    assert rows[0].peak > rows[1].peak == Forecaster(chain).take(schedule).peak
    assert rows[0].seconds < rows[1].seconds


@pytest.mark.parametrize("seed", range(6))
def test_no_proposed_schedule_however_thinned_beats_the_points(seed):
    chain, lanes = random_chain(random.Random(seed), 9, modes=2), Lanes(overlap=0.8, prefetch=True)
    budget = chain.keep_all_peak
    book = Forecaster(chain, lanes)

    points = plan_points(chain, budget=budget, lanes=lanes, slots=budget)

    assert all(p.bytes < q.bytes and p.seconds > q.seconds for p, q in itertools.pairwise(points))
    for point in points:
        takes = book.take(point.schedule)
        assert (takes.peak, takes.seconds) == (point.bytes, pytest.approx(point.seconds))
    every = (takes for schedule in schedules_of(chain, lanes, budget) for takes in book.thin(schedule))
    for takes in every:
        best = min(p.seconds for p in points if p.bytes <= takes.peak) if takes.peak >= points[0].bytes else math.inf
        assert best <= takes.seconds + 1e-9


def with_disk(chain, rng):
    """The chain with a mode per stage that moves what is saved, but for the output, to disk."""
    stages = []
    for stage in chain.stages:
        full = stage.modes[0]
        gone = full.saved - stage.output
        disk = replace(
            full,
            name="disk",
            saved=stage.output,
            moved=gone,
            fetched=gone,
            write=rng.random() * 8,
            read=rng.random() * 8,
        )
        stages.append(replace(stage, modes=(*stage.modes, disk)))
    return replace(chain, stages=tuple(stages))


def planning_seconds(chain, lanes, *, rounds):
    """The least CPU time of several: a neighbour on the same core doubles it."""
    spent = []
    for _ in range(rounds):
        start = time.process_time()
        short, _ = merge_chain(chain)
        plan_points(short, budget=chain.keep_all_peak, lanes=lanes)
        spent.append(time.process_time() - start)
    return min(spent)


WORKERS = {
    "none": Lanes(),
    "prefetch": Lanes(overlap=0.9, prefetch=True),
    "disk": Lanes(overlap=0.9),
    "prefetch and disk": Lanes(overlap=0.9, prefetch=True),
}


@pytest.mark.parametrize("workers", WORKERS)
def test_24_stages_with_every_forecast_are_planned_in_a_tenth_of_a_second(workers):
    chain = random_chain(random.Random(4), 24, modes=2)
    chain = with_disk(chain, random.Random(5)) if "disk" in workers else chain

    assert planning_seconds(chain, WORKERS[workers], rounds=10) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_200_stages_with_every_forecast_are_planned_in_two_seconds(workers):
    chain = random_chain(random.Random(5), 200, modes=2)
    chain = with_disk(chain, random.Random(6)) if "disk" in workers else chain

    assert planning_seconds(chain, WORKERS[workers], rounds=3) < 2.0
