"""What ranks say to each other is heard, or who is missing is named; a clock that a test moves tells the time."""

import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest
import zstandard
from tests.engine.ranks.timetable import PATIENCE, beats_until, word

from model_checkpoint.engine.ranks import words
from model_checkpoint.engine.ranks.conversation import program_places
from model_checkpoint.engine.ranks.error_records import told
from model_checkpoint.engine.ranks.words import decode_word, encode_word
from model_checkpoint.errors import LimitExceeded, RankFailed, RankLost, StepExists, StorageFailure
from model_checkpoint.events import Progress


def error(message="no room", ranks=(1,), kind=StorageFailure):
    return told(kind(message), 0) | {"ranks": list(ranks)}


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "packed"), [(3, False), (1 << 16, False), ((1 << 16) + 1, True), (1 << 20, True)])
def test_only_long_words_are_compressed_and_all_come_back(length, packed):
    said = {"a": "x" * (length - len('{"a":""}'))} if length > 8 else {}

    data = encode_word(said)

    assert decode_word(data) == said
    assert (len(data) < length) == packed or length == 3


def test_a_word_that_is_too_long_is_refused_by_who_would_say_it(monkeypatch):
    said = {"a": "xyz"}
    monkeypatch.setattr(words, "LONGEST_WORD", len(encode_word(said)))
    assert decode_word(encode_word(said)) == said

    with pytest.raises(LimitExceeded, match="takes 12 bytes to tell the others, the limit is 11"):
        encode_word({"a": "wxyz"})


def test_a_word_that_would_be_too_long_unpacked_is_refused_by_who_would_say_it(monkeypatch):
    long = {"a": "x" * 99_992}
    monkeypatch.setattr(words, "_UNPACKED", 100_000)
    assert decode_word(encode_word(long)) == long

    with pytest.raises(LimitExceeded, match="bytes to tell the others, the limit is"):
        encode_word({"a": "x" * 99_993})


def test_a_word_that_is_too_long_is_not_read_whatever_it_says_of_itself(monkeypatch):
    monkeypatch.setattr(words, "LONGEST_WORD", 1000)
    monkeypatch.setattr(words, "_UNPACKED", 100_000)
    long = {"a": "x" * 99_000}
    assert decode_word(encode_word(long)) == long

    with pytest.raises(LimitExceeded, match="takes 1008 bytes, 1008 unpacked; at most 1000"):
        decode_word(b'{"a":"%s"}' % (b"x" * 1000))
    with pytest.raises(LimitExceeded, match="100008 unpacked; at most 1000 and 100000"):
        decode_word(zstandard.compress(b'{"a":"%s"}' % (b"x" * 100_000)))
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(b'{"a":1}')
    with pytest.raises(LimitExceeded, match="-1 unpacked"):
        decode_word(stream)


def test_a_word_is_never_an_object():
    with pytest.raises(ValueError, match="Expected `object`, got `array`"):
        decode_word(b"[1]")


def test_the_ranks_of_a_group_have_the_places_they_are_named_in():
    assert program_places(SimpleNamespace(world_size=3)) == {0: 0, 1: 1, 2: 2}
    assert program_places(SimpleNamespace(world_size=2, program_ranks=[5, 3])) == {5: 0, 3: 1}


# --- hearing ---------------------------------------------------------------------------------------------------------


def test_rank_0_hears_all_in_their_order_whenever_they_speak(talk):
    lead, _ = talk((7.5, "hello", 1, word(n=1)), (0.5, "hello", 2, word(n=2)), world_size=3)

    assert lead.hear_all("hello", {"n": 0}) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_another_rank_hears_only_rank_0(talk):
    follow, _ = talk((3.0, "open", 0, word(name="a")), (0.0, "open", 2, word(name="b")), rank=1, world_size=3)

    assert follow.hear_leader("open") == {"name": "a"}
    assert (follow.leads, talk()[0].leads) == (False, True)


def test_who_gives_no_sign_is_named_as_soon_as_patience_is_over_and_no_sooner(talk):
    lead, ranks = talk((0.0, "hello", 1, word()), world_size=4)

    with pytest.raises(RankLost, match=r"^rank 2, 3 of 4 gave no sign for 8 s") as lost:
        lead.hear_all("hello", {})

    assert list(lost.value.ranks) == [2, 3]
    assert PATIENCE < ranks.now <= PATIENCE + 1


def test_of_many_who_are_silent_sixteen_are_named(talk):
    for world, end in ((17, "15, 16 of 17"), (18, "15, 16, ... of 18")):
        with pytest.raises(RankLost, match=f"^rank 1, 2, .*{end} gave no sign"):
            talk(world_size=world)[0].hear_all("hello", {})


def test_new_signs_of_life_are_waited_on_and_old_ones_are_not(talk):
    beats = [(float(second), "beat", 1, b"%d" % second) for second in range(0, 40, 7)]
    lead, ranks = talk(*beats, (40.5, "hello", 1, word(n=1)))
    assert lead.hear_all("hello", {})[1] == {"n": 1}
    assert ranks.now == 40.5

    lead, ranks = talk(*[(float(second), "beat", 1, b"same") for second in range(40)], (40.5, "hello", 1, word()))
    with pytest.raises(RankLost, match="rank 1 of 2"):
        lead.hear_all("hello", {})
    assert ranks.now < 3 * PATIENCE


def test_the_first_error_is_raised_without_waiting_for_who_is_silent(talk):
    lead, ranks = talk((2.0, "vote", 2, word(error=error(ranks=[2]))), world_size=3)

    with pytest.raises(StorageFailure, match=r"^rank 2 of 3: no room") as raised:
        lead.hear_all("vote", {})

    assert raised.value.ranks == (2,)
    assert ranks.now == 2.0


def test_errors_of_several_ranks_are_the_first_and_name_all(talk):
    words = [(0.0, "vote", rank, word(error=error(f"no room {rank}", [rank]))) for rank in (2, 1)]
    lead, _ = talk(*words, world_size=3)

    with pytest.raises(StorageFailure, match="no room 1") as raised:
        lead.hear_all("vote", {})

    assert raised.value.ranks == (1, 2)


def test_rank_0_may_end_a_call_before_it_says_what_another_waits_for(talk):
    ended = (3.2, "verdict", 0, word(error=error(ranks=[2]), common=False))
    follow, ranks = talk(ended, (9.0, "pooled", 0, word()), rank=1)

    with pytest.raises(StorageFailure, match=r"^rank 2 of 2: no room"):
        follow.hear_leader("pooled", end="verdict")
    assert ranks.now < 9.0

    follow, _ = talk((3.2, "pooled", 0, word(n=3)), rank=1)  # and if it has not, it is listened to
    assert follow.hear_leader("pooled", end="verdict") == {"n": 3}


def test_what_concerns_the_call_is_told_without_naming_a_rank(talk):
    for common, start in ((True, "^taken"), (False, "^rank 0 of 2: taken")):
        plain = error("taken", [0], StepExists)
        follow, _ = talk((0.0, "open", 0, word(error=plain, common=common)), rank=1)
        with pytest.raises(StepExists, match=start):
            follow.hear_leader("open")


def test_when_rank_0_is_lost_nobody_is_talked_to_any_more(talk):
    follow, ranks = talk((50.0, "open", 0, word()), rank=1)
    with pytest.raises(RankLost, match="rank 0 of 2") as lost:
        follow.hear_leader("open")
    ranks.now = 60.0

    with pytest.raises(RankLost, match="rank 0 of 2") as again:
        follow.hear_leader("open")
    follow.say("vote", {})

    assert again.value is lost.value
    assert ranks.said == []


def test_who_gives_rank_0_up_says_so_for_it_to_the_others_and_to_itself(talk):
    """Rank 0 that was stopped, or whose disk hung, and goes on must not blame those who have left."""
    follow, ranks = talk(rank=1)
    with pytest.raises(RankLost, match="rank 0 of 2 gave no sign"), follow:
        follow.hear_leader("open")

    (said,) = ranks.said
    assert said[:2] == ("over", "0")
    others, _ = talk((3.0, *said), rank=1)
    with pytest.raises(RankLost, match=r"^rank 0 of 2 gave no sign"):
        others.hear_leader("open")
    lead, _ = talk((3.0, *said))
    with pytest.raises(RankLost, match=r"^rank 0 of 2 gave no sign") as told:
        lead.hear_all("hello", {})
    assert (others.gone, told.value.ranks) == (None, (0,))


def test_when_another_rank_is_lost_rank_0_can_still_say_so(talk):
    lead, ranks = talk()
    with pytest.raises(RankLost, match="rank 1 of 2") as lost:
        lead.hear_all("hello", {})

    assert lead.fail("open", lost.value) is lost.value

    assert [said[:2] for said in ranks.said] == [("open", "0"), ("over", "0")]
    for *_, said in ranks.said:
        assert (decode_word(said)["common"], decode_word(said)["error"]["ranks"]) == (True, [1])


def test_a_process_that_was_stopped_itself_blames_nobody_else(talk):
    lead, ranks = talk()
    ranks.lag = PATIENCE + 0.5  # one look of a second takes longer than the patience of the others

    with pytest.raises(RankLost, match=r"^rank 0 of 2, this one, was stopped") as lost:
        lead.hear_all("hello", {})
    assert list(lost.value.ranks) == [0]

    lead, ranks = talk((0.5, "hello", 1, word(n=1)))  # but who has spoken meanwhile is heard
    ranks.lag = PATIENCE + 2.0
    assert lead.hear_all("hello", {})[1] == {"n": 1}


# --- saying ----------------------------------------------------------------------------------------------------------


def test_rank_0_raises_an_error_as_the_others_will(talk):
    lead, ranks = talk()
    taken, full, stop = StepExists("taken"), StorageFailure("no room"), KeyboardInterrupt()

    made = [lead.fail("open", one) for one in (taken, full, stop)]

    assert (made[0], made[2]) == (taken, stop)
    assert (str(made[1]), made[1].__cause__, type(made[1])) == ("rank 0 of 2: no room", full, StorageFailure)
    words = [decode_word(value) for topic, _, value in ranks.said if topic == "open"]
    assert words == [decode_word(value) for topic, _, value in ranks.said if topic == "over"]
    assert [one["common"] for one in words] == [True, False, False]
    assert [one["error"]["class"] for one in words] == ["StepExists", "StorageFailure", "KeyboardInterrupt"]


def test_what_a_rank_was_told_failed_elsewhere_is_told_on_as_it_is(talk):
    lead, ranks = talk()
    elsewhere = RankFailed("rank 1 of 2: KeyboardInterrupt: ")

    assert lead.fail("verdict", elsewhere) is elsewhere
    assert decode_word(ranks.said[0][2])["common"]


def test_an_interrupt_is_told_wherever_rank_0_waits_and_an_error_is_not(talk):
    follow, ranks = talk(rank=1)

    with pytest.raises(KeyboardInterrupt, match=r"^$"), follow.interrupts_told("hello", "vote"):
        raise KeyboardInterrupt
    assert [one[:2] for one in ranks.said] == [("hello", "1"), ("vote", "1")]
    assert all(decode_word(one[2])["error"]["ranks"] == [1] for one in ranks.said)

    ranks.said.clear()
    with pytest.raises(ValueError, match="wrong"), follow.interrupts_told("hello"):
        raise ValueError("wrong")
    assert ranks.said == []


# --- signs of life ---------------------------------------------------------------------------------------------------


def test_moving_bytes_waiting_and_listening_are_signs_of_life(talk):
    follow, ranks = talk((40.0, "open", 0, word()), (0.0, "beat", 0, b""), rank=1, patience=0.008)
    ranks.patience, follow.patience = 100.0, 100.0  # judged by the clock of the test, given by a real one

    with follow:
        beats_until(ranks, lambda beats: len(beats) > 0)
        follow.moved(Progress(operation="saving", done=5, total=9, seconds=0.0))
        beats_until(ranks, lambda beats: beats[-1].startswith("5."))
        before = len(beats_until(ranks, lambda beats: True))
        with follow.waiting():
            beats_until(ranks, lambda beats: len(beats) > before + 1)
        before = beats_until(ranks, lambda beats: True)[-1]
        follow.hear_leader("open")
        beats = beats_until(ranks, lambda beats: beats[-1] != before)

    assert all(one != other for one, other in pairwise(beats))  # only what is new is told
    follow._herald.join(30)
    assert not follow._herald.is_alive()


def test_a_sign_that_does_not_come_through_is_not_the_last_one(talk, caplog):
    follow, ranks = talk(rank=1, patience=0.008)
    put, broken = ranks.put, [ConnectionError("reset by peer")]

    def break_once(key, value):
        if broken:
            raise broken.pop()
        put(key, value)

    ranks.put = break_once
    with follow:
        beats_until(ranks, lambda beats: beats == ["0.0"])

    assert "rank 1 could not give a sign of life (ConnectionError: reset by peer)" in caplog.text


def test_one_rank_alone_gives_no_signs(talk):
    alone, _ = talk(world_size=1)

    with alone as same:
        assert same is alone
        assert alone._herald is None


# --- where one thread may talk ---------------------------------------------------------------------------------------


def test_work_is_done_here_where_any_thread_may_talk(talk):
    assert talk()[0].attended(threading.get_ident) == threading.get_ident()


def test_work_is_attended_where_one_thread_may_talk(talk):
    lead, ranks = talk()
    callers, asked = [], threading.Event()

    def attend():
        callers.append(threading.get_ident())
        if len(callers) > 2:
            asked.set()

    ranks.attend = attend

    assert lead.attended(lambda: (asked.wait(30), threading.get_ident())[1]) != threading.get_ident()
    assert set(callers) == {threading.get_ident()}
    with pytest.raises(ValueError, match="at work"):
        lead.attended(lambda: (_ for _ in ()).throw(ValueError("at work")))


def test_an_interrupt_of_who_attends_waits_for_the_work(talk):
    lead, ranks = talk()
    first, done = [KeyboardInterrupt("first"), KeyboardInterrupt("second")], []
    over = threading.Event()

    def attend():
        if first:
            raise first.pop(0)
        over.set()

    ranks.attend = attend

    with pytest.raises(KeyboardInterrupt, match="first"):
        lead.attended(lambda: done.append(over.wait(30)))
    assert done == [True]
