"""What one call may take, and what is said of one that took longer, was cancelled, or was left behind."""

import threading
import time

import pytest

from model_checkpoint.distributed import CallCancelled, CallTimeout, LocalCoordinator, RankLost
from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.calling.limited_coordinator import LateLeader, LimitedCoordinator
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, PartlyLoaded

SOON, PAST = 60.0, 0.0


def limit_of(seconds=SOON, **options):
    return CallLimit("the save", seconds=seconds, where="a/place", aftermath="Nothing is left.", **options)


def over(limit, by=1.0):
    """The same limit, whose time was over some seconds ago."""
    limit.end = time.monotonic() - by
    return limit


def test_a_call_may_go_on_until_its_time_is_over():
    limit = limit_of(5)
    assert 4 < limit.left <= 5
    limit.check()
    limit.hear(None)
    with limit.passing():
        pass
    limit.deciding(lambda: True)

    over(limit)

    assert limit.left == 0.0
    for look in (limit.check, lambda: limit.hear(None), lambda: limit.deciding(lambda: False)):
        with pytest.raises(
            CallTimeout, match=r"^the save took longer than 5 s\. Look for the rank or the disk"
        ) as told:
            look()
        assert told.value.checkpoint_path == "a/place"
    with pytest.raises(CallTimeout, match="took longer than 5 s"), limit.passing():
        pytest.fail("nobody enters any more")
    assert limit.settle(1)() is True  # what was decided in time


def test_a_cancelled_call_says_so_wherever_it_looks():
    cancel = threading.Event()
    limit = limit_of(cancel=cancel)
    limit.check()

    cancel.set()

    for look in (limit.check, limit.check_cancel):
        with pytest.raises(CallCancelled, match=r"^the save was cancelled\. Make the call again") as told:
            look()
        assert told.value.checkpoint_path == "a/place"
    limit.check_interrupt()


def test_what_interrupted_the_waiting_is_raised_in_the_call_too():
    limit, error = limit_of(), KeyboardInterrupt("by hand")
    limit.check_interrupt()

    limit.interrupt(error)

    for look in (limit.check, limit.check_cancel, limit.check_interrupt):
        with pytest.raises(KeyboardInterrupt, match="by hand") as told:
            look()
        assert told.value is not error  # each thread has a trace of its own


@pytest.mark.parametrize(
    ("rank", "gated", "passed", "tells"),
    [
        (0, True, False, False),
        (0, True, True, True),
        (0, False, False, True),
        (0, False, True, True),
        (1, True, False, True),
        (1, False, False, True),
        (2, True, True, True),
    ],
)
def test_only_a_leader_who_never_passed_the_gate_knows_that_it_has_not_published(rank, gated, passed, tells):
    limit = limit_of()
    assert limit.settle(rank) is None
    limit.gated = gated
    limit.deciding(lambda: True)
    if passed:
        with limit.passing():
            pass

    assert (limit.settle(rank) is not None) == tells


def test_who_leaves_waits_for_all_who_are_passing():
    limit, inside, go_on = limit_of(), threading.Barrier(3), threading.Event()

    def work():
        with limit.passing():
            inside.wait(SOON)
            go_on.wait(SOON)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(SOON)
    until = time.monotonic() + 0.05
    limit.leave(0.05)
    assert time.monotonic() >= until

    go_on.set()
    limit.leave(SOON)

    assert limit._inside == 0
    for thread in threads:
        thread.join()
    limit.leave(SOON)  # nobody is there


def test_what_a_verdict_cannot_undo_is_unsure_while_it_passes():
    limit = limit_of()
    assert not limit.is_unsure

    with limit.passing():
        assert not limit.is_unsure
        with limit.passing(settled=False):
            assert limit.is_unsure
        assert not limit.is_unsure
    assert not limit.is_unsure


def test_a_call_hears_what_others_say_became_of_it():
    limit = limit_of()
    assert limit.outcome() is None

    limit.conversing(lambda: {"made": 1})

    assert limit.outcome() == {"made": 1}


@pytest.mark.parametrize(
    ("ranks", "named"),
    [
        ([3], "rank 3 of 9"),
        (range(16), "rank 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 of 9"),
        (range(17), "rank 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... of 9"),
    ],
)
def test_late_ranks_are_named_up_to_sixteen_of_them(ranks, named):
    error = limit_of(2, world_size=9).late(ranks)

    assert f"the save took longer than 2 s: {named} had not come so far by then." in str(error)
    assert (error.ranks, error.checkpoint_path) == (tuple(ranks), "a/place")


@pytest.mark.parametrize(
    ("options", "where"), [({}, ""), ({"world_size": 1}, ""), ({"world_size": 2}, " on rank {} of 2")]
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_call_that_hangs_is_told_with_its_aftermath(options, where, rank):
    limit = limit_of(2, **options)

    error = limit.hung(rank)

    assert str(error).startswith(
        f"the save took longer than 2 s and hangs{where.format(rank)}, in its storage or behind"
    )
    assert "It is left behind. Nothing is left. Look for the rank or the disk that does not answer." in str(error)
    assert (type(error), error.ranks, error.checkpoint_path) == (CallTimeout, (rank,), "a/place")


def test_who_waits_for_others_hangs_for_them_unless_it_is_rank_0():
    limit = limit_of(2, world_size=3)

    with limit.waiting_for([2]):
        assert limit.hung(1).ranks == (2,)
        assert "rank 2 of 3 had not come so far" in str(limit.hung(1))
        assert limit.hung(0).ranks == (0,)
    assert limit.hung(1).ranks == (1,)


@pytest.mark.parametrize(("replaced", "partial"), [(["model"], []), ([], ["model"]), (["model"], ["optimizer"])])
def test_a_load_that_has_begun_to_change_names_what_it_has_changed(replaced, partial):
    limit = limit_of(2)
    with limit.changing(lambda: (replaced, partial)):
        pass

    assert "It is left behind. It changes nothing any more." in str(limit.hung(0))
    told = limit.told(CheckpointException("a failure"))
    assert isinstance(told, PartlyLoaded)
    assert (list(told.replaced), list(told.partial)) == (replaced, partial)
    assert told.checkpoint_path == "a/place"
    assert limit.told(CheckpointException("a failure", "elsewhere")).checkpoint_path == "elsewhere"
    assert limit.told(told) is told


def test_a_load_that_changed_nothing_tells_the_error_as_it_is():
    limit, error = limit_of(2), CheckpointException("a failure")
    assert limit.told(error) is error

    with limit.changing(lambda: ([], [])):
        pass

    assert limit.told(error) is error
    assert "Nothing is left." in str(limit.hung(0))
    late = limit.late([0])
    assert limit.told(LateLeader(late)) is late


@pytest.mark.parametrize(
    ("world", "where"), [(1, "hangs, in its storage"), (2, "hangs on rank 0 of 2, in its storage")]
)
def test_a_save_of_which_nobody_can_tell_says_how_to_find_out(world, where):
    cause = OSError("silent")

    error = limit_of(2, world_size=world).unsettled(cause)

    assert isinstance(error, DurabilityUnknown)
    assert where in str(error)
    assert (error.ranks, error.inner_exception, error.checkpoint_path) == ((0,), cause, "a/place")


@pytest.mark.parametrize(
    ("patience", "seconds", "expected", "telling"),
    [(3, 5, 3, 2.0), (1, 5, 1, 1), (5, 5, 65, 2.0), (9, 5, 65, 2.0), (9, 0.5, 60.5, 0.5)],
)
def test_the_limit_of_a_call_bounds_how_long_silence_may_last(patience, seconds, expected, telling):
    limited = LimitedCoordinator(LocalCoordinator.group(2, patience=patience)[1], limit_of(seconds))

    assert (limited.rank, limited.world_size) == (1, 2)
    assert (limited.patience, limited.telling) == (expected, telling)


def test_it_has_whatever_else_its_coordinator_has():
    inner = LocalCoordinator()
    inner.program_ranks = [4]

    limited = LimitedCoordinator(inner, limit_of())

    assert (limited.program_ranks, limited.scope, limited.telling) == ([4], inner, 0.0)
    inner.scope = "a group"
    assert LimitedCoordinator(inner, limit_of()).scope == "a group"
    with pytest.raises(AttributeError, match="exchange"):
        _ = limited.exchange


class Listening(LocalCoordinator):
    """Notes for whom the call would hang while it talks or listens."""

    def __init__(self, **options):
        super().__init__(**options)
        self.limit, self.awaited, self.untils = None, [], []

    def put(self, key, value):
        self.awaited.append(self.limit._awaited)
        super().put(key, value)

    def collect(self, keys, until):
        self.awaited.append(self.limit._awaited)
        self.untils.append(until)
        return super().collect(keys, PAST)


def limited_pair(limit):
    made = Listening.group(2, patience=9.0)
    for one in made:
        one.limit = limit
    return made, [LimitedCoordinator(one, limit) for one in made]


def test_who_talks_waits_for_rank_0_and_who_listens_for_the_speakers():
    limit = limit_of(world_size=2)
    (inner, _), (limited, _) = limited_pair(limit)

    limited.put("save-1/vote/0", b"a word")
    limited.put("save-1/beat/0", b"alive")
    assert limited.collect(["save-1/vote/0", "save-1/vote/12", "save-1/made/3"], PAST) == {"save-1/vote/0": b"a word"}
    assert limited.collect(["save-1/beat/0"], time.monotonic() + SOON) == {"save-1/beat/0": b"alive"}

    assert inner.awaited == [[0], (), [0, 3, 12], [0]]
    assert limit._awaited == ()


@pytest.mark.parametrize("rank", [0, 1])
def test_nobody_waits_beyond_the_end_but_for_the_last_word_of_rank_0(rank):
    limit = limit_of(5, world_size=2)
    inner, limited = (both[rank] for both in limited_pair(limit))
    soon, far = time.monotonic() + 1, time.monotonic() + 500

    limited.collect(["save-1/vote/1"], soon)
    limited.collect(["save-1/vote/1"], far)
    limited.collect(["save-1/vote/1"], PAST)

    assert inner.untils == [soon, limit.end + (2.0 if rank else 0.0), PAST]


def test_rank_0_names_who_is_late_and_the_others_wait_for_its_word():
    limit = over(limit_of(5, world_size=2))
    _, (leader, follower) = limited_pair(limit)
    leader.put("save-1/vote/0", b"")

    assert leader.collect(["save-1/vote/0"], time.monotonic() + SOON) == {"save-1/vote/0": b""}
    assert leader.collect(["save-1/vote/1"], PAST) == {}
    with pytest.raises(CallTimeout, match=r"rank 1 of 2 had not come so far") as told:
        leader.collect(["save-1/vote/0", "save-1/vote/1"], time.monotonic() + SOON)
    assert told.value.ranks == (1,)
    assert follower.collect(["save-1/made/0"], time.monotonic() + SOON) == {}

    over(limit, by=3.0)  # longer than rank 0 may take to tell

    with pytest.raises(LateLeader, match=r"rank 0 of 2 had not come so far") as lost:
        follower.collect(["save-1/made/0"], time.monotonic() + SOON)
    assert isinstance(lost.value, RankLost)
    assert (lost.value.ranks, lost.value.told_as.ranks, lost.value.checkpoint_path) == ((0,), (0,), "a/place")
    with pytest.raises(CallTimeout, match=r"rank 0 of 2 had not come so far"):
        leader.collect(["save-1/vote/1"], time.monotonic() + SOON)  # the others have given it up


def test_a_cancelled_call_is_ended_by_rank_0_and_an_interrupted_one_by_whoever_it_is():
    cancel = threading.Event()
    limit = limit_of(cancel=cancel, world_size=2)
    _, (leader, follower) = limited_pair(limit)
    cancel.set()
    far = time.monotonic() + SOON

    with pytest.raises(CallCancelled, match="the save was cancelled"):
        leader.collect(["save-1/vote/1"], far)
    assert follower.collect(["save-1/made/0"], far) == leader.collect(["save-1/vote/1"], PAST) == {}

    limit.interrupt(KeyboardInterrupt("by hand"))
    for one in (leader, follower):
        with pytest.raises(KeyboardInterrupt, match="by hand"):
            one.collect(["save-1/vote/1"], far)


def test_what_the_engine_says_of_its_call_reaches_the_limit():
    limit = limit_of(world_size=2)
    _, (leader, _) = limited_pair(limit)

    with leader.changing(lambda: (["model"], [])):
        assert limit._inside == 1
    leader.deciding(lambda: True)
    leader.conversing(lambda: {"made": 1})

    assert isinstance(limit.told(CheckpointException("a failure")), PartlyLoaded)
    assert limit.settle(1)() is True
    assert limit.outcome() == {"made": 1}
