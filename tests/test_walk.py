"""A save, a load and a training step go through the rooms with little going back and forth."""

import pytest

from tests.ground.walk import Visit, returns, shorten, walk, ways

# what is on the way, and how often it goes back to a room it has left
WAYS = {
    "a save": ({"tree/flattening", "plan", "format", "engine/root", "storage/local/data_files"}, 9),
    "a load into live objects": ({"engine/root", "plan", "tree/restoring", "engine/reading/chunks", "format"}, 18),
    "a training step under auto_checkpoint": ({"recompute/auto/running", "recompute/auto/saving"}, 4),
    "a mixed precision step": ({"precision/scaling", "precision/parameters", "precision/gradients"}, 10),
}


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    return {name: walk(work, wiring=wiring) for name, (wiring, work) in ways(tmp_path_factory.mktemp("runs")).items()}


@pytest.mark.parametrize("name", WAYS)
def test_the_way_seldom_goes_back_to_a_room_it_has_left(walked, name):
    on_the_way, most = WAYS[name]

    assert on_the_way <= {visit.room for visits in walked[name] for visit in visits}
    assert returns(walked[name]).total() <= most


def test_every_way_is_judged(walked):
    assert walked.keys() == WAYS.keys()


def test_a_room_that_comes_again_is_a_return_and_a_round_that_does_is_none():
    way = [Visit(room, []) for room in "abcb"]
    rounds = []
    for room in "abcbcbcd":
        rounds.append(Visit(room, []))
        shorten(rounds)

    assert returns([way]) == {"b": 1}
    assert "".join(visit.room for visit in rounds) == "abcd"
