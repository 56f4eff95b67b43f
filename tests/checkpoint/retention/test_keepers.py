"""Each keeper claims what its words say, and says why of every checkpoint."""

from datetime import datetime, timedelta

import pytest
from tests.checkpoint.retention.retention_ground import START, kept, saved

import model_checkpoint as mc
from model_checkpoint.checkpoint.retention.retention_plan import plan_retention
from model_checkpoint.errors import ExpressionInvalid, OptionInvalid

DAY = 24 * 60


def plan(candidates, *keep, now=START + timedelta(days=400), **options):
    return plan_retention(candidates, list(keep), now=now, **options)


def reasons(plan, name):
    return next(one.reasons for one in plan.decisions if one.name == name)


def test_the_last_are_those_of_the_highest_steps():
    found = plan([saved(step) for step in (5, 1, 30, 12)], mc.last(2))

    assert kept(found) == [30, 12]
    assert reasons(found, "s12") == ("last 2: number 2",)
    assert reasons(found, "s1") == ("last 2: number 4",)


def test_the_best_by_a_metric_an_expression_and_several_metrics_at_once():
    found = [
        saved(step, metrics={"f1": f1, "ms": ms})
        for step, f1, ms in [(1, 0.9, 9), (2, 0.8, 1), (3, 0.1, 0.5), (4, 0, 9)]
    ]

    assert kept(plan(found, mc.best("f1"))) == [4, 1]
    assert kept(plan(found, mc.best("f1 - 0.1*ms"))) == [4, 2]
    assert kept(plan(found, mc.best("f1"), mc.best("min:ms", 2))) == [4, 3, 2, 1]
    assert kept(plan(found, mc.pareto("f1", "min:ms"))) == [4, 3, 2, 1]
    assert "best 1 by f1: 0.8 is number 2" in reasons(plan(found, mc.best("f1")), "s2")


def test_what_lacks_the_metric_is_not_best_and_says_so():
    found = plan(
        [saved(1), saved(2, metrics={"loss": float("nan")}), saved(3, metrics={"loss": 1}), saved(4)],
        mc.best("loss", 3),
    )

    assert kept(found) == [4, 3]
    assert reasons(found, "s1") == ("best 3 by loss: has no loss",)
    assert reasons(found, "s2") == ("best 3 by loss: loss is no number there",)


def test_as_long_as_nothing_can_be_ranked_all_are_kept_and_that_is_told():
    found = plan([saved(1, metrics={"loss": 1}), saved(2)], mc.best("los"))

    assert kept(found) == [2, 1]
    assert found.unranked == ("best 1 by los: no checkpoint has a metric 'los'; known: loss. Did you mean 'loss'?",)


def test_every_so_many_steps_keeps_the_first_at_or_after_each_multiple():
    found = plan([saved(step) for step in (0, 7, 10, 19, 23, 29, 41)], mc.every(10))

    assert kept(found) == [41, 23, 10, 0]
    assert reasons(found, "s23") == ("every 10 steps: first of its 10 steps",)
    assert reasons(found, "s29") == ("every 10 steps: not the first of its 10 steps",)


def test_what_has_no_step_is_not_kept_for_its_step():
    found = plan([saved(None, name="x", minutes=1), saved(10)], mc.every(10))

    assert kept(found) == [10]
    assert reasons(found, "x") == ("every 10 steps: has no step",)


def test_of_two_at_one_step_the_one_committed_last_stands_for_it():
    found = plan([saved(10, name="a", minutes=1), saved(10, name="b", minutes=2), saved(99)], mc.every(10))

    assert [one.name for one in found.kept] == ["s99", "b"]


def test_a_ladder_of_steps_keeps_many_of_the_new_and_few_of_the_old():
    found = plan([saved(step) for step in range(0, 301, 5)], mc.ladder({10: 3, 100: 2}))

    assert kept(found) == [300, 290, 280, 200]


def test_a_ladder_of_time_keeps_the_first_of_each_hour_day_week_and_month():
    found = [saved(step, minutes=360 * step) for step in range(200)]

    assert kept(plan(found, mc.ladder(days=2))) == [199, 196, 192]
    assert kept(plan(found, mc.ladder(hours=2))) == [199, 198]
    weeks = kept(plan(found, mc.ladder(weeks=3)))[1:]
    assert [(START + timedelta(minutes=360 * step)).weekday() for step in weeks] == [0, 0, 0]
    assert kept(plan(found, mc.ladder(months=2))) == [199, 124, 0]


@pytest.mark.parametrize(
    "keep", [[mc.every(7)], [mc.ladder({10: 3, 100: 2})], [mc.ladder(hours=3, days=2)], [mc.last(3)]]
)
def test_pruning_after_every_save_keeps_what_pruning_once_keeps(keep):
    every = [saved(step, minutes=37 * step) for step in range(0, 250, 3)]
    there = []
    for one in every:
        there = [decision.candidate for decision in plan([*there, one], *keep).kept]

    assert [one.step for one in there] == kept(plan(every, *keep))


def test_the_young_are_kept_and_those_from_the_future_and_of_unknown_age():
    now = START + timedelta(days=2)
    found = [saved(step, minutes=DAY * step) for step in (0, 1, 3, 9)]
    found.append(saved(4, name="unknown", committed_at=None))

    assert kept(plan(found, mc.younger_than("25h"), now=now)) == [9, 4, 3, 1]


def test_tags_keep():
    found = [saved(1, tags=("paper",)), saved(2, tags=("x", "y")), saved(3), saved(4)]

    assert kept(plan(found, mc.tagged("paper", "z"))) == [4, 1]
    assert kept(plan(found, mc.tagged())) == [4, 2, 1]
    assert reasons(plan(found, mc.tagged("y", "x")), "s2") == ("tagged x, y",)


def test_pins_keep_whatever_else_is_asked_for():
    found = [saved(1, pinned=True), saved(2), saved(3)]

    assert kept(plan(found, mc.last(1))) == [3, 1]
    assert kept(plan(found, mc.pinned())) == [3, 1]


def linked(step, *, own=10, **fields):
    """One that shares a hundred bytes with all others."""
    return saved(step, files=(("base", 100), (f"own-{step}", own)), **fields)


def test_a_budget_counts_a_shared_copy_once_and_keeps_the_newest_that_fit():
    found = plan([linked(step) for step in range(6)], mc.budget(130))

    assert kept(found) == [5, 4, 3]
    assert found.kept_bytes == 130
    assert reasons(found, "s2") == ("budget of 130 bytes: does not fit",)


def test_a_budget_is_filled_beside_what_others_claim_and_tells_if_they_need_more():
    found = [linked(step, metrics={"loss": step}) for step in range(6)]

    assert kept(plan(found, mc.best("loss"), mc.budget(130))) == [5, 4, 0]
    tight = plan(found, mc.last(4), mc.budget(120))
    assert kept(tight) == [5, 4, 3, 2]
    assert tight.warnings == ("budget of 120 bytes: what must be kept is 20 bytes more",)


def test_a_hard_budget_cuts_the_claims_of_the_last_keeper_first_and_never_a_pin():
    found = [linked(step, metrics={"loss": step}, pinned=step == 1) for step in range(8)]

    assert kept(plan(found, mc.best("loss", 2), mc.last(4), mc.budget(140, hard=True))) == [7, 6, 1, 0]
    assert kept(plan(found, mc.last(4), mc.best("loss", 2), mc.budget(140, hard=True))) == [7, 6, 5, 1]
    none = plan(found, mc.last(4), mc.budget(0, hard=True))
    assert kept(none) == [7, 1]
    assert none.warnings == ("hard budget of 0 bytes: what must be kept is 120 bytes more",)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mc.last(0),
        lambda: mc.last(True),
        lambda: mc.every(2.5),
        lambda: mc.best(3),
        lambda: mc.best("loss", 0),
        lambda: mc.ladder(),
        lambda: mc.ladder({10: 0}),
        lambda: mc.ladder(hours=-1),
        lambda: mc.younger_than("soon"),
        lambda: mc.younger_than(-1),
        lambda: mc.younger_than(float("nan")),
        lambda: mc.tagged(3),
        lambda: mc.budget("much"),
        lambda: mc.budget(True),
    ],
)
def test_a_keeper_of_nothing_is_refused(wrong):
    with pytest.raises(OptionInvalid, match=r"got|no amount|has rungs"):
        wrong()


def test_a_broken_expression_is_told_when_the_plan_is_made():
    with pytest.raises(ExpressionInvalid, match=r"expected a metric"):
        plan([saved(1, metrics={"loss": 1})], mc.best("loss -"))


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(OptionInvalid, match=r"s1 was committed at 2026-01-01 00:00:00, which has no time zone"):
        plan([saved(1, committed_at=datetime(2026, 1, 1))], mc.last(1))
