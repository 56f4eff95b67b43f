"""Ranks bring their words, one answer is made of them, and what goes wrong on one is raised on all."""

import gc
import logging
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest
from tests.distributed.threads import all_well, on_ranks

from model_checkpoint.engine.ranks.call_numbers import call_number
from model_checkpoint.engine.ranks.error_records import retold, told
from model_checkpoint.engine.ranks.rank_agreement import Deed, agree, require_same
from model_checkpoint.engine.ranks.single_process import hint_at_ranks, needs_coordinator
from model_checkpoint.errors import (
    CheckpointException,
    DurabilityUnknown,
    ExceptionType,
    OptionInvalid,
    RankFailed,
    RankLost,
    StepExists,
    StorageFailure,
)


def own_word(rank, odd, error):
    if rank == odd:
        raise error
    return {"n": rank}


def agreed(odd=-1, error=None, decide=lambda words: {"sum": sum(one["n"] for one in words)}):
    return on_ranks(3, lambda ranks: agree(ranks, "sum", lambda: own_word(ranks.rank, odd, error), decide))


def test_all_ranks_have_what_rank_0_makes_of_their_words():
    assert all_well(agreed()) == [{"sum": 3}] * 3
    assert all_well(on_ranks(2, lambda ranks: agree(ranks, "meet", lambda: {"n": 1}))) == [{}] * 2


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("error", [ValueError("odd"), StorageFailure("no room", "here")])
def test_what_one_rank_cannot_say_is_raised_on_all_and_names_it(odd, error):
    outcomes = agreed(odd, error)

    kind = StorageFailure if isinstance(error, StorageFailure) else RankFailed
    assert [type(one) for one in outcomes] == [kind] * 3
    assert len({str(one) for one in outcomes}) == 1
    assert str(outcomes[0]).startswith(f"rank {odd} of 3: ")
    assert all(one.ranks == (odd,) for one in outcomes)
    assert outcomes[odd].__cause__ is error


def test_what_the_words_do_not_allow_is_raised_on_all_as_it_is():
    wrong = OptionInvalid("not alike")

    def decide(words):
        raise wrong

    outcomes = agreed(decide=decide)

    assert outcomes[0] is wrong
    assert [(type(one), str(one)) for one in outcomes] == [(OptionInvalid, "not alike")] * 3


@pytest.mark.parametrize("odd", [0, 1])
def test_an_interrupt_stays_one_where_it_came_and_fails_the_others(odd):
    stop = KeyboardInterrupt("by hand")

    outcomes = agreed(odd, stop)

    assert outcomes[odd] is stop
    others = [one for rank, one in enumerate(outcomes) if rank != odd]
    assert [(type(one), str(one)) for one in others] == [
        (RankFailed, f"rank {odd} of 3: KeyboardInterrupt: by hand")
    ] * 2


def test_all_ranks_that_say_otherwise_are_named_with_what_they_say():
    words = [{"prefix": "a"}, {"prefix": "b"}, {"prefix": "a"}, {"prefix": "b"}, {}]

    assert require_same([words[0], words[2]], "prefix", "runs") == "a"
    named = r"^rank 1, 3 calls with prefix='b', rank 4 calls with prefix=None, rank 0, 2 with 'a'\. Every rank must"
    with pytest.raises(OptionInvalid, match=named):
        require_same(words, "prefix", "runs")


def test_long_values_that_differ_at_their_end_are_told_apart_and_told_in_short():
    words = [{"parts": ["x" * 300]}, {"parts": ["x" * 300 + "y"]}]

    with pytest.raises(OptionInvalid, match=r"^rank 1 calls with parts=\['x{198}\.\.\., rank 0 with \['x{198}\.\.\.\."):
        require_same(words, "parts", "runs")


# --- errors as words -------------------------------------------------------------------------------------------------


class Mine(CheckpointException):
    """A user's own, which may take no message."""

    def __init__(self, one, two, three):
        super().__init__(f"{one}{two}{three}")


def test_an_error_of_ours_stays_what_it_is_and_names_its_rank():
    full = StorageFailure("no room", "here")
    full.type = ExceptionType.TIMEOUT

    made = retold(told(full, 2), 4)

    assert (type(made), str(made), made.checkpoint_path) == (StorageFailure, "rank 2 of 4: no room", "here")
    assert (made.type, made.ranks) == (ExceptionType.TIMEOUT, (2,))
    assert str(retold(told(full, 2), 4, named=False)) == "no room"


def test_an_error_of_anybody_else_is_a_failed_rank():
    for error, text in ((ValueError("odd"), "ValueError: odd"), (Mine(1, 2, 3), "123")):
        made = retold(told(error, 1), 2)
        assert (type(made), str(made), made.ranks) == (RankFailed, f"rank 1 of 2: {text}", (1,))
    assert retold(told(ValueError("odd"), 1), 2).type is ExceptionType.UNKNOWN


def test_an_error_that_names_ranks_keeps_them_and_its_words():
    lost = RankLost("rank 1, 3 of 4 gave no sign", ranks=[1, 3])

    made = retold(told(lost, 0), 4)

    assert (type(made), str(made), made.ranks) == (RankLost, "rank 1, 3 of 4 gave no sign", (1, 3))
    taken = StepExists("taken")
    taken.ranks = (2, 3)
    assert str(retold(told(taken, 0), 4)) == "rank 2, 3 of 4: taken"


def test_a_report_is_told_whole_and_a_book_is_not():
    assert len(told(StorageFailure("x" * 16_000), 0)["message"]) == 16_000
    assert len(told(StorageFailure("x" * 16_001), 0)["message"]) == 16_000


# --- calls and the lonely --------------------------------------------------------------------------------------------


def test_calls_of_one_scope_are_counted_together_and_forgotten_with_it():
    class Scope:
        pass

    scope, name = Scope(), f"a name of {id(object())}"
    pair = [SimpleNamespace(scope=scope), SimpleNamespace(scope=scope)]
    named = [SimpleNamespace(scope=name), SimpleNamespace(scope=name)]

    assert [call_number(one) for one in (*pair, *pair)] == [1, 2, 3, 4]
    assert [call_number(one) for one in (*named, *named)] == [1, 2, 3, 4]
    gone = weakref.ref(scope)
    del scope, pair
    gc.collect()
    assert gone() is None


def test_three_parts_of_arrays_are_named_and_more_are_counted():
    three, four = (str(needs_coordinator(list("abcd")[:count], "runs", "save")) for count in (3, 4))

    assert three.startswith("runs: a, b, c lie on many ranks")
    assert four.startswith("runs: a, b, c and 1 more lie on many ranks")


def test_ranks_that_all_save_alone_are_told_of_each_other(monkeypatch):
    def group(size, available=True, initialized=True):
        found = SimpleNamespace(
            is_available=lambda: available, is_initialized=lambda: initialized, get_world_size=lambda: size
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", found)
        return hint_at_ranks()

    assert group(2).startswith(" This program has 2 ranks")
    assert group(1) == group(2, available=False) == group(2, initialized=False) == ""
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert hint_at_ranks() == ""


def test_ranks_of_jax_and_mpi_that_save_alone_are_told_which_coordinator_they_need(monkeypatch):
    def programs(jax, mpi):
        state = SimpleNamespace(client=object() if jax else None, num_processes=jax or None)
        world = SimpleNamespace(
            Is_initialized=lambda: True, Is_finalized=lambda: not mpi, COMM_WORLD=SimpleNamespace(size=mpi)
        )
        monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
        monkeypatch.setitem(sys.modules, "mpi4py.MPI", world)
        return hint_at_ranks()

    assert "This program has 2 ranks" in programs(2, 0)
    assert "coordinator=JaxCoordinator()" in programs(2, 1)
    assert "coordinator=MpiCoordinator()" in programs(0, 3)
    assert programs(0, 0) == programs(1, 1) == ""


class Forgetful:
    """A coordinator that loses the first word of a topic, as a transport may: a put promises nothing."""

    def __init__(self, inner, topic):
        self._inner, self.topic = inner, topic
        self.scope = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def put(self, key, value):
        if key.split("/")[-2] == self.topic:
            self.topic = ""
            return
        self._inner.put(key, value)


def test_a_word_that_got_lost_is_said_again():
    """The ranks give signs of life, so that they would wait for each other for ever."""

    def work(ranks):
        return agree(Forgetful(ranks, "mine"), "sum", lambda: {"n": 2}, lambda words: {"sum": words[1]["n"]})

    assert all_well(on_ranks(2, work, patience=2.0)) == [{"sum": 2}] * 2


def seen_when(led):
    """What agreeing on something visible comes to, whose rank 0 makes it as ``led`` says: two ranks, told by rank."""
    made = []

    def work(ranks):
        deed = Deed(vote=lambda plan: {}, act=lambda: led(made), find_out=lambda: bool(made))
        return agree(ranks, "visible", lambda: {}, lambda words: {"made": True}, deed=deed)

    return on_ranks(2, work, patience=0.5), made


def test_what_rank_0_made_before_it_was_lost_is_found_out_by_the_others():
    others = threading.Event()

    def led(made):
        made.append(1)
        assert others.wait(60)
        raise StorageFailure("gone already", "here")

    def release(record):
        others.set()
        return True

    log = logging.getLogger("model_checkpoint.ranks")
    log.addFilter(release)
    try:
        outcomes, _ = seen_when(led)
    finally:
        log.removeFilter(release)

    assert outcomes == [{"made": True}] * 2


def test_rank_0_makes_nothing_once_the_others_have_given_it_up():
    waiting, made = threading.Event(), []

    def work(ranks):
        def mine():
            if ranks.rank:
                return {}
            assert waiting.wait(60)  # until the other rank has given up this one
            return {}

        try:
            deed = Deed(vote=lambda plan: {}, act=lambda: made.append(1), find_out=lambda: False)
            return agree(ranks, "late", mine, deed=deed)
        finally:
            waiting.set()

    outcomes = on_ranks(2, work, patience=0.5)

    assert [type(one) for one in outcomes] == [RankLost] * 2
    assert [one.ranks for one in outcomes] == [(0,)] * 2
    assert not made


def test_what_nobody_can_find_out_is_raised_alike_on_all_ranks():
    others = threading.Event()

    def find_out():
        others.set()
        raise DurabilityUnknown("it was made, or may be", "here")

    def work(ranks):
        deed = Deed(vote=lambda plan: {}, act=lambda: others.wait(60), find_out=find_out)
        return agree(ranks, "doubtful", lambda: {}, deed=deed)

    outcomes = on_ranks(2, work, patience=0.5)

    assert [(type(one), str(one)) for one in outcomes] == [(DurabilityUnknown, str(outcomes[1]))] * 2


def test_a_rank_that_votes_against_it_is_named_and_nothing_is_done():
    done = []

    def work(ranks):
        def vote(plan):
            if ranks.rank == 1:
                raise StorageFailure("no", "here")
            return {}

        deed = Deed(vote=vote, act=lambda: done.append(1), find_out=lambda: False)
        return agree(ranks, "voted", lambda: {}, deed=deed)

    outcomes = on_ranks(3, work)

    assert [(type(one), str(one)) for one in outcomes] == [(StorageFailure, "rank 1 of 3: no")] * 3
    assert not done
