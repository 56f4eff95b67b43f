"""A deletion by many ranks has one verdict: whatever hangs, all tell the same, and what they tell stays true."""

import threading

import pytest
from tests.distributed.api.test_left_behind import Hang, all_at_once, outcome_of, wait_for_threads
from tests.distributed.faults.deletion_places import PLACES, SHORT, bucket, keys, local, save
from tests.distributed.threads import on_ranks, told

from model_checkpoint.distributed import CallTimeout, DistributedCheckpoint, RankLost
from model_checkpoint.errors import DurabilityUnknown
from model_checkpoint.storage.local.store import LocalStore


def deleted_by(world, hanging, plain, *, victim=0, timeout=60.0, patience=60.0):
    """What a deletion by ``world`` ranks comes to on each, where calls of the victim may hang."""

    def work(ranks):
        store = hanging if ranks.rank == victim else plain
        checkpoint = DistributedCheckpoint(ranks, store, default_timeout=timeout)
        return outcome_of(lambda: checkpoint.delete_checkpoint("x"))

    return on_ranks(world, work, patience=patience)


def hung_at_each_call(place, folder, world, *, victim=0, **limits):
    """Of each call that hangs: what the ranks told, and whether the checkpoint was there then, and is there later."""

    def begin(at):
        hang = Hang(0)
        hanging, plain = place(folder, hang)
        save(plain)
        hang.at, hang.count = at, 0
        return hang, hanging, plain

    def hung(at):
        hang, hanging, plain = begin(at)
        waking = threading.Event()
        seen = []

        def wake():  # as soon as another rank has told what came of it
            waking.wait(60)
            seen.append(plain.has("x"))
            hang.go_on.set()

        thread = threading.Thread(target=wake)
        thread.start()

        def work(ranks):
            store = hanging if ranks.rank == victim else plain
            checkpoint = DistributedCheckpoint(ranks, store, default_timeout=limits.get("timeout", 60.0))
            try:
                return outcome_of(lambda: checkpoint.delete_checkpoint("x"))
            finally:
                if ranks.rank != victim or "timeout" in limits:
                    waking.set()

        before = set(threading.enumerate())
        outcomes = on_ranks(world, work, patience=limits.get("patience", 60.0))
        waking.set()
        thread.join()
        wait_for_threads(before)
        return outcomes, seen[0], plain.has("x")

    hang, hanging, plain = begin(0)
    assert deleted_by(world, hanging, plain, victim=victim) == [None] * world
    return all_at_once(hung, range(1, hang.count + 1))


@pytest.mark.parametrize("place", PLACES)
def test_a_rank_0_that_hangs_anywhere_and_goes_on_later_tells_what_the_others_told(tmp_path, place):
    trials = hung_at_each_call(place, tmp_path, 2, patience=SHORT)

    for at, (outcomes, seen, later) in trials.items():
        if outcomes[1] is None:
            assert (outcomes, seen, later) == ([None, None], False, False), at
        else:
            assert (seen, later) == (True, True), (at, outcomes)
            assert [(type(one), one.ranks) for one in outcomes] == [(RankLost, (0,))] * 2, (at, outcomes)
            assert len({str(one) for one in outcomes}) == 1, (at, outcomes)
            assert "rank 0 of 2 gave no sign for 1 s" in str(outcomes[1])
    assert {outcomes[1] is None for outcomes, _, _ in trials.values()} == {True, False}


@pytest.mark.parametrize("place", PLACES)
def test_a_rank_0_that_hangs_anywhere_till_the_time_is_over_deletes_nothing_that_was_told_as_kept(tmp_path, place):
    for at, (outcomes, _, later) in hung_at_each_call(place, tmp_path, 2, timeout=SHORT).items():
        if outcomes[1] is None:
            assert (outcomes, later) == ([None, None], False), at
        else:
            assert later, (at, outcomes)
            assert [(type(one), one.ranks) for one in outcomes] == [(CallTimeout, (0,))] * 2, (at, outcomes)


@pytest.mark.parametrize("place", [local, keys, bucket])
def test_a_process_alone_whose_deletion_hangs_anywhere_tells_what_becomes_of_it(tmp_path, place):
    trials = hung_at_each_call(place, tmp_path, 1, timeout=SHORT)

    for at, ([outcome], _, later) in trials.items():
        if outcome is None:
            assert not later, at
        elif isinstance(outcome, CallTimeout):
            assert later, (at, outcome)
        else:  # in the very request that deletes, which nobody can take back
            assert isinstance(outcome, DurabilityUnknown), (at, outcome)
            assert "deleted, or may be" in str(outcome)
            assert place is not local
    kinds = [type(outcome) for [outcome], _, _ in trials.values()]
    assert kinds.count(DurabilityUnknown) <= 1


def test_a_rank_that_hangs_before_its_vote_is_named_and_nothing_is_deleted(tmp_path):
    """Other ranks than 0 touch the storage only to settle, so it is their words that do not come."""
    go_on = threading.Event()

    class Mute:
        def __init__(self, inner):
            self._inner, self.scope = inner, inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def put(self, key, value):
            if "/vote/" in key:
                assert go_on.wait(60)
            self._inner.put(key, value)

    save(tmp_path)

    def work(ranks):
        checkpoint = DistributedCheckpoint(Mute(ranks) if ranks.rank == 1 else ranks, tmp_path)
        try:
            return outcome_of(lambda: checkpoint.delete_checkpoint("x"))
        finally:
            go_on.set()

    error = told(on_ranks(3, work, patience=SHORT))

    assert (type(error), error.ranks) == (RankLost, (1,))
    assert "rank 1 of 3 gave no sign" in str(error)
    assert LocalStore(tmp_path).has("x")


@pytest.mark.parametrize("place", [keys, bucket])
def test_what_rank_0_had_decided_before_it_died_is_carried_out_once(tmp_path, place):
    """It hangs, for ever, in each call behind the one that decides; those who live bring it to its end."""
    trials = hung_at_each_call(place, tmp_path, 3, patience=SHORT)

    for at, (outcomes, seen, later) in trials.items():
        assert len({outcome is None for outcome in outcomes}) == 1, (at, outcomes)
        assert seen == later == (outcomes[1] is not None), (at, outcomes)
