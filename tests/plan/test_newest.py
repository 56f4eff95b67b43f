"""The newest come first, whatever their names claim, and no more is read than is asked for."""

from dataclasses import dataclass
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint import plan
from model_checkpoint.plan.choose import is_newer, newest_first, sort_names, step_name, told_step


@dataclass(frozen=True)
class Saved:
    name: str
    step: int | None
    created: str = "2026-01-01"


class Shelf:
    """Checkpoints by name, which remembers what was read; a name without one was deleted meanwhile."""

    def __init__(self, *saved, gone=()):
        self.saved, self.read_names = {one.name: one for one in saved}, []
        self.names = sort_names((*self.saved, *gone))

    def read(self, name):
        self.read_names.append(name)
        return self.saved.get(name)

    def newest(self, **wish):
        read_all = lambda names: [one for one in map(self.read, names) if one is not None]  # noqa: E731
        return newest_first(self.names, read=self.read, read_all=read_all, **wish)


def step(number, created="2026-01-01"):
    return Saved(step_name(number), number, created)


@given(
    st.dictionaries(
        st.integers(0, 9).map(step_name) | st.sampled_from(["best", "last", "old"]),
        st.tuples(st.none() | st.integers(0, 9), st.sampled_from(["2026-01-01", "2026-01-02"])),
    )
)
def test_names_that_claim_no_less_than_is_true_give_the_order_of_ages(found):
    saved = [
        Saved(name, None if number is None else min(number, told if (told := told_step(name)) is not None else 9), made)
        for name, (number, made) in found.items()
    ]

    newest = list(Shelf(*saved).newest())

    assert sorted(newest, key=lambda one: one.name) == sorted(saved, key=lambda one: one.name)
    assert [(one.step, one.created) for one in newest] == [(one.step, one.created) for one in plan.rank_by_age(saved)]


def test_only_what_is_asked_for_is_read_of_the_names_that_tell_a_step():
    shelf = Shelf(*(step(number) for number in range(100)))

    assert [one.step for one in islice(shelf.newest(), 2)] == [99, 98]
    assert len(shelf.read_names) <= 3


def test_names_that_tell_no_step_are_read_and_take_their_place():
    shelf = Shelf(step(1), step(5), Saved("best", 3), Saved("unnumbered", None))

    assert [one.name for one in shelf.newest()] == ["step-00000005", "best", "step-00000001", "unnumbered"]


def test_higher_steps_than_asked_for_are_not_read():
    shelf = Shelf(*(step(number) for number in range(6)))

    assert [one.step for one in shelf.newest(upto=3)] == [3, 2, 1, 0]
    assert {told_step(name) for name in shelf.read_names} == {0, 1, 2, 3}
    assert [one.step for one in Shelf(step(0)).newest(upto=0)] == [0]


def test_what_is_gone_when_it_is_read_is_passed_over():
    shelf = Shelf(step(1), step(2), gone=("step-00000003",))

    assert [one.step for one in shelf.newest()] == [2, 1]


def test_a_name_that_claims_too_much_takes_the_place_of_its_true_step():
    shelf = Shelf(Saved("step-00000009", 1), step(4))

    assert [one.step for one in shelf.newest()] == [4, 1]


def test_among_equal_steps_the_later_commit_is_newer_then_the_lesser_name():
    early, late, twin = Saved("b", 3, "2026-01-01"), Saved("c", 3, "2026-01-02"), Saved("a", 3, "2026-01-01")

    assert [one.name for one in Shelf(early, late, twin).newest()] == ["c", "a", "b"]
    assert is_newer(late, early)
    assert not is_newer(early, late)
    assert is_newer(twin, early)
    assert not is_newer(early, twin)
    assert is_newer(step(0), Saved("none", None, "2027-01-01"))


@pytest.mark.parametrize(
    ("name", "number"),
    [("step-00000000", 0), ("step-123456789", 123456789), ("step-0000001", None), ("step-00000001x", None), ("", None)],
)
def test_a_name_tells_a_step_only_in_the_form_a_save_gives_it(name, number):
    assert told_step(name) == number


def test_names_are_sorted_by_the_step_they_tell_not_by_their_text():
    names = sort_names(("step-100000000", "zz", "step-00000002", "aa", "step-99999999"))

    assert names.newest == "step-100000000"
    assert list(names.falling()) == ["step-100000000", "step-99999999", "step-00000002"]
    assert names.silent == ("aa", "zz")


odd_names = st.sampled_from(["best", "step-", "step-step-123", "1234567890123", "step-0000000x", "step-000000001", "é"])
some_names = st.lists(st.integers(0, 2 * 10**8).map(step_name) | st.integers(0, 30).map(step_name) | odd_names)


@given(some_names.map(lambda names: tuple(dict.fromkeys(names))))
def test_names_looked_at_all_at_once_are_told_apart_like_each_by_itself(names):
    told = sorted((name for name in names if told_step(name) is not None), key=told_step, reverse=True)

    found = sort_names(names)

    assert list(found.falling()) == told
    assert found.newest == (told[0] if told else None)
    assert found.silent == tuple(sorted({*names} - {*told}))
