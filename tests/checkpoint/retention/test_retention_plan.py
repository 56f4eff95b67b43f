"""A plan decides on every checkpoint, says why, counts what is really freed, and never costs the last healthy one."""

import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.retention.retention_ground import START, keeps, kept, lineups, names, saved

import model_checkpoint as mc
from model_checkpoint.checkpoint.retention.candidate_order import Lineup
from model_checkpoint.checkpoint.retention.candidates import unique_bytes
from model_checkpoint.checkpoint.retention.keepers import KeepWithin
from model_checkpoint.checkpoint.retention.retention_plan import plan_retention
from model_checkpoint.errors import OptionInvalid

NOW = START + timedelta(days=3)


def plan(candidates, *keep, **options):
    return plan_retention(candidates, list(keep), now=NOW, **options)


@given(lineups, keeps, st.sampled_from(["keep", "drop"]), st.randoms())
def test_what_holds_of_every_plan(candidates, keep, damaged, random):
    found = plan(candidates, *keep, damaged=damaged)
    kept_ones = [one.candidate for one in found.kept]

    # each once, newest first, with a reason
    assert sorted(names(found.decisions)) == sorted(one.name for one in candidates)
    assert all(one.reasons and all(one.reasons) for one in found.decisions)
    # the same whatever order they came in
    shuffled = plan(random.sample(candidates, len(candidates)), *keep, damaged=damaged)
    assert (shuffled.id, shuffled.decisions) == (found.id, found.decisions)
    # the bytes are those of the medium
    assert found.kept_bytes == unique_bytes(kept_ones)
    assert found.freed_bytes == unique_bytes(candidates) - unique_bytes(kept_ones)
    assert found.freed_bytes == sum(one.frees for one in found.dropped)
    assert all(one.frees == 0 for one in found.kept)
    # never the last healthy one, never what may not go
    usable = [one for one in candidates if one.usable]
    assert not usable or any(one.usable for one in kept_ones)
    assert all(not one.pinned and not one.held for one in (d.candidate for d in found.dropped))
    assert all(not (one.unread and not one.healthy) for one in (d.candidate for d in found.dropped))
    assert damaged == "drop" or all(one.candidate.healthy for one in found.dropped)
    # dropping what it says leaves nothing more to drop, unless something was kept for fitting a budget
    if not any(isinstance(one, KeepWithin) for one in keep) and not found.unranked:
        again = plan(kept_ones, *keep, damaged=damaged)
        assert set(names(again.dropped)) <= {one.name for one in kept_ones if not one.usable}
        assert names(again.dropped) == [] or damaged == "drop"


@given(lineups, keeps)
def test_a_plan_keeps_all_that_any_keeper_claims_unless_a_hard_budget_cuts(candidates, keep):
    found = plan(candidates, *keep)
    lineup = Lineup.of(candidates, NOW)
    claimed = {name for keeper in keep for name, claim in keeper.judge(lineup).items() if claim.keep}

    if not any(isinstance(one, KeepWithin) and one.hard for one in keep):
        assert claimed <= set(names(found.kept))


@given(lineups, keeps)
def test_more_keepers_never_keep_less(candidates, keep):
    found, more = plan(candidates, *keep), plan(candidates, *keep, mc.last(2))

    if not any(isinstance(one, KeepWithin) for one in keep):
        assert set(names(found.kept)) <= set(names(more.kept))


@given(lineups, keeps)
def test_a_hard_budget_is_kept_but_for_what_may_not_go(candidates, keep):
    for budget in [one for one in keep if isinstance(one, KeepWithin) and one.hard]:
        found = plan(candidates, *keep)
        firm = plan(candidates, mc.budget(0, hard=True))
        assert found.kept_bytes <= max(budget.nbytes, firm.kept_bytes)


def test_the_newest_and_the_one_committed_last_stay_whoever_claims_them():
    found = plan([saved(1), saved(1000, minutes=0), saved(5, minutes=9)], mc.tagged("none"))

    assert kept(found) == [1000, 5]
    assert [one.reasons[0] for one in found.kept] == ["the newest: a resume starts here", "committed last"]


def test_a_damaged_one_takes_nobodys_place_and_goes_only_if_so_asked():
    found = [saved(1), saved(2), saved(3, healthy=False, problem="a file is gone")]

    assert kept(plan(found, mc.last(2))) == [3, 2, 1]
    dropping = plan(found, mc.last(2), damaged="drop")
    assert kept(dropping) == [2, 1]
    assert dropping.dropped[0].reasons == ("damaged: a file is gone",)


def test_a_damaged_one_stays_if_nothing_better_is_left_or_if_it_only_could_not_be_read():
    alone = [saved(3, healthy=False, problem="bad")]
    unread = [saved(1), saved(3, healthy=False, unread=True, problem="no route to host")]

    assert kept(plan(alone, mc.last(1), damaged="drop")) == [3]
    assert kept(plan(unread, mc.last(1), damaged="drop")) == [3, 1]


def test_an_emergency_save_stays_until_something_whole_is_newer():
    rushed = saved(5, complete=False)

    assert kept(plan([saved(1), rushed], mc.last(1))) == [5, 1]
    later = plan([saved(1), rushed, saved(6)], mc.last(1))
    assert kept(later) == [6]
    assert later.dropped[0].reasons == ("an incomplete emergency save, and a newer whole one is there",)


def test_freed_bytes_are_those_no_kept_one_holds():
    found = plan(
        [saved(1, files=(("a", 7), ("b", 5))), saved(2, files=(("b", 5), ("c", 3))), saved(3, files=(("c", 3),))],
        mc.last(1),
    )

    assert [(one.name, one.frees) for one in found.dropped] == [("s2", 5), ("s1", 7)]
    assert found.freed_bytes == 12


def test_the_id_tells_what_the_plan_says():
    one, two = [saved(1), saved(2)], [saved(1), saved(2, files=(("other", 3),))]

    assert plan(one, mc.last(1)).id == plan(one[::-1], mc.last(1)).id
    assert len({plan(one, mc.last(1)).id, plan(one, mc.last(2)).id, plan([*one, saved(3)], mc.last(1)).id}) == 3
    assert plan(one, mc.last(1)).id == plan(two, mc.last(1)).id  # what is kept may grow
    assert plan(one, mc.last(1), root="a").id != plan(one, mc.last(1), root="b").id


def test_a_summary_names_every_checkpoint_and_its_reasons():
    text = plan([saved(1), saved(2, pinned=True), saved(3)], mc.last(1), root="runs/a").summary()

    assert text.splitlines()[1:] == [
        "  keep s3: the newest: a resume starts here; last 1: number 1",
        "  keep s2: pinned",
        "  drop s1: last 1: number 3",
    ]
    assert text.startswith("plan ")
    assert "of runs/a: keeps 2 (20 bytes), drops 1 (frees 10 bytes)" in text


def test_a_plan_survives_pickling():
    found = plan([saved(1), saved(2)], mc.last(1))

    assert pickle.loads(pickle.dumps(found)) == found


def test_an_empty_root_has_an_empty_plan():
    assert plan([], mc.last(1), mc.best("loss")).decisions == ()


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ([], "got none"),
        (["last"], r"'last': cannot be read; write last:3"),
        ([3], "got 3"),
        ([mc.budget(1), mc.budget(2)], "one budget is enough"),
    ],
)
def test_a_plan_without_a_keeper_is_refused(keep, said):
    with pytest.raises(OptionInvalid, match=said):
        plan([saved(1)], *keep)


def test_two_candidates_of_one_name_are_refused():
    with pytest.raises(OptionInvalid, match=r"two candidates are called 's1'"):
        plan([saved(1), saved(1)], mc.last(1))
    with pytest.raises(OptionInvalid, match=r"damaged must be 'keep' or 'drop', got 'burn'"):
        plan([saved(1)], mc.last(1), damaged="burn")


def test_a_single_keeper_needs_no_list():
    assert kept(plan_retention([saved(1), saved(2)], mc.last(1), now=NOW)) == [2]
