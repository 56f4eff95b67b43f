"""One rank of a load by itself: what it tells the others, and whom it listens to."""

import pytest
from tests.engine.ranks.timetable import beats_until, word

from model_checkpoint.engine.ranks.error_records import told
from model_checkpoint.engine.reading.load_ranks import LoadBarrier
from model_checkpoint.errors import RankLost
from model_checkpoint.events import Progress

LOST = RankLost("rank 2 is gone", ranks=[2])


def topics(ranks):
    return [topic for topic, *_ in ranks.said]


def test_who_has_given_rank_0_up_does_not_wait_for_its_last_word(talk):
    follow, ranks = talk(rank=1)

    LoadBarrier(follow, 0, "runs").end(RankLost("rank 0 is gone", ranks=[0]))

    assert (ranks.now, topics(ranks)) == (0.0, ["ready0", "done0"])


def test_who_heard_of_another_that_is_lost_raises_what_rank_0_says_in_the_end(talk):
    follow, _ = talk((3.0, "end0", 0, word(error=told(LOST, 0), common=True)), rank=1, world_size=3)
    first = RankLost("first heard", ranks=[2])

    with pytest.raises(RankLost, match=r"^rank 2 is gone$") as raised:
        LoadBarrier(follow, 0, "runs").end(first)

    assert raised.value.__cause__ is first


@pytest.mark.parametrize(
    ("exchange", "asked", "left"), [(False, 0, []), (True, 0, ["want0.0", "want0.1"]), (True, 1, ["want0.1"])]
)
def test_who_leaves_says_so_wherever_rank_0_may_wait_for_it(talk, exchange, asked, left):
    words = [(0.0, "go0", 0, word(partners={"exchange": exchange, "machines": []}, nested=[]))]
    words += [(0.0, "all-want0.0", 0, word(want={"all": {}}))]
    follow, ranks = talk(*words, rank=1)
    barrier = LoadBarrier(follow, 0, "runs")
    barrier.ready("attempt", {}, 0)
    for _ in range(asked):
        barrier._partners._agree({})
    ranks.said.clear()

    barrier.leave(KeyboardInterrupt())

    assert topics(ranks) == ["ready0", *left, "done0"]


def test_bytes_that_arrive_are_a_sign_of_life(talk):
    follow, ranks = talk(rank=1, patience=0.008)
    event, heard = Progress(operation="loading", done=5, total=9, seconds=0.0), []

    with follow:
        LoadBarrier(follow, 0, "runs").both(heard.append)(event)
        beats_until(ranks, lambda beats: beats[-1:] == ["5.0"])

    assert heard == [event]
