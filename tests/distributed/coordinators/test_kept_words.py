"""What ranks have said stays as long as somebody may need it, and no longer; so do threads and connections."""

import gc
import threading

import pytest
from tests.distributed.threads import all_well, on_ranks

from model_checkpoint.distributed.coordinators.bounded import BoundedCalls, NoAnswer
from model_checkpoint.distributed.coordinators.kept_words import KeptWords
from model_checkpoint.engine.ranks.rank_agreement import agree

SCENES = "tests.distributed.coordinators.coordinator_scenes"


def test_calls_of_other_topics_forget_no_word():
    kept = KeptWords()
    kept.note("save-1/vote/1")

    for number in range(2, 100):
        assert "save-1" not in kept.note(f"notice-{number}/mine/1")
    assert not kept.note("save-100/vote/1")


def test_of_each_topic_the_oldest_calls_are_forgotten_whatever_their_numbers():
    """Three calls make one save of a model, so that no topic has numbers in a row."""
    kept, left = KeptWords(), set()
    for number in range(1, 100):
        key = f"{('prefix', 'bring', 'save')[number % 3]}-{number}/mine/0"
        left |= {key}
        left -= {one for keys in kept.note(key).values() for one in keys}

    assert len(left) == 3 * 8
    assert {int(key.split("-")[1].split("/")[0]) for key in left} == set(range(76, 100))


def test_a_call_that_gives_signs_of_life_is_not_forgotten():
    kept = KeptWords()
    kept.note("save-1/vote/1")
    for number in range(2, 50):
        assert "save-1" not in kept.note(f"save-{number}/vote/1")
        assert "save-1" not in kept.note("save-1/beat/1")


def test_a_thread_ends_with_who_uses_it_and_one_left_behind_with_its_call():
    go_on, before = threading.Event(), set(threading.enumerate())
    calls = BoundedCalls("example")
    with pytest.raises(NoAnswer, match="example: no answer within"):
        calls.run(lambda: go_on.wait(60), seconds=0.01)
    assert calls.run(lambda: 1, seconds=60) == 1
    left, used = sorted(set(threading.enumerate()) - before, key=lambda thread: thread.ident)[-2:]
    assert left.is_alive()
    assert used.is_alive()

    go_on.set()
    del calls
    gc.collect()

    for thread in (left, used):
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("world", [1, 3])
def test_threads_that_talk_for_ever_need_no_more_memory_for_it(world):
    def talk(ranks):
        def often(count):
            for _ in range(count):
                agree(ranks, "notice", dict, lambda words: {"of": len(words)})
            return len(ranks._board.values)

        return often(30), often(30)

    for first, second in all_well(on_ranks(world, talk)):
        assert second <= first + world  # what another rank is just about to say


@pytest.mark.distributed
def test_a_coordinator_for_each_save_leaves_nothing_behind(zygote, tmp_path):
    arguments = {"root": str(tmp_path / "root"), "saves": 12}

    for counts in zygote.run(f"{SCENES}:one_coordinator_a_save", 2, tmp_path / "scene", **arguments):
        threads, files, words = zip(*counts, strict=True)
        assert threads[-1] <= threads[0] + 1  # a call of the first save may be the last that its thread made
        assert files[-1] <= files[0]
        assert words[-1] == words[-2] == words[-3]


@pytest.mark.distributed
def test_a_background_save_outlasts_any_number_of_other_calls(zygote, tmp_path):
    arguments = {"root": str(tmp_path / "root"), "calls": 50}

    assert zygote.run(f"{SCENES}:beside_many_calls", 2, tmp_path / "scene", seconds=120, **arguments) == [1, 1]
