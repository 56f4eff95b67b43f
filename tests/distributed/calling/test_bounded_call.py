"""A call is waited for as long as it may take; what became of one that hangs is asked of others, and of its storage."""

import contextvars
import sys
import threading

import pytest
import torch

from model_checkpoint.distributed import CallTimeout
from model_checkpoint.distributed.calling import bounded_call
from model_checkpoint.distributed.calling.bounded_call import within
from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.engine.ranks.error_records import told as record_of
from model_checkpoint.errors import CheckpointException, DurabilityUnknown, PartlyLoaded, StorageFailure

SOON = 60.0


@pytest.fixture(autouse=True)
def last_words(monkeypatch):
    """Sets how many seconds a call whose time is over may still say so."""

    def last(seconds):
        monkeypatch.setattr(bounded_call, "LAST_WORDS", seconds)

    last(0.1)
    return last


class Once:
    """Attends to a call until it has come so far, and is interrupted there."""

    def __init__(self, so_far):
        self.so_far, self.interrupted = so_far, False

    def __call__(self):
        if not self.interrupted:
            assert self.so_far.wait(SOON)
            self.interrupted = True
            raise KeyboardInterrupt("by hand")


@pytest.fixture
def go_on():
    """What a call hangs on, until the test is over."""
    made = threading.Event()
    yield made
    made.set()


def limit_of(seconds=0.02, **options):
    return CallLimit("the save", seconds=seconds, where="a/place", aftermath="Nothing is left.", **options)


def hanging(limit, go_on, **options):
    """What ``within`` returns or raises of a call that hangs."""
    try:
        return within(limit, lambda: go_on.wait(SOON), **options)
    except CheckpointException as error:
        return error


def test_what_a_call_returns_or_raises_comes_back():
    late = []

    def fail():
        raise ValueError("told")

    assert within(limit_of(SOON), lambda: 3, late=late.append) == 3
    with pytest.raises(ValueError, match="told"):
        within(limit_of(SOON), fail, late=late.append)
    assert late == []


def test_a_call_that_hangs_is_told_and_raised_and_what_it_returns_is_for_who_comes_later(go_on):
    told, late, came = [], [], threading.Event()

    def note(value):
        late.append(value)
        came.set()

    error = hanging(limit_of(), go_on, tell=told.append, late=note)

    assert str(error).startswith("the save took longer than 0.02 s and hangs, in its storage")
    assert (type(error), told, late) == (CallTimeout, [error], [])
    go_on.set()
    assert came.wait(SOON)
    assert late == [True]


def test_a_call_that_is_over_a_moment_late_says_itself_how_it_ended():
    begun = threading.Event()

    def work():
        assert begun.wait(SOON)
        return 3

    class Stopped(CallLimit):
        @property
        def left(self):
            threading.Timer(0.02, begun.set).start()
            return 0.0

    assert within(Stopped("the save", seconds=SOON), work) == 3


def test_who_waits_for_the_word_of_another_waits_a_little_longer(go_on):
    threading.Timer(0.15, go_on.set).start()

    assert hanging(limit_of(0.01), go_on, telling=SOON) is True


def test_whoever_is_passing_is_waited_for(go_on, last_words):
    limit, out = limit_of(0.1), []
    last_words(0.5)

    def work():
        with limit.passing():
            threading.Event().wait(0.7)
            out.append(True)
        go_on.wait(SOON)

    with pytest.raises(CallTimeout, match="and hangs"):
        within(limit, work)
    assert out == [True]


@pytest.mark.parametrize(("published", "landed"), [(True, "landed"), (False, None)])
def test_what_became_of_a_save_that_hangs_is_asked_of_its_storage(go_on, published, landed):
    limit, told = limit_of(), []
    limit.deciding(lambda: published)

    outcome = hanging(limit, go_on, tell=told.append, landed=lambda: "landed")

    if landed:
        assert (outcome, told) == ("landed", [])
    else:
        assert (type(outcome), told) == (CallTimeout, [outcome])
        assert "Nothing is left." in str(outcome)


def test_a_storage_that_fails_leaves_it_unknown(go_on):
    limit, cause, looks = limit_of(), StorageFailure("it does not answer"), []

    def fail():
        raise cause

    limit.deciding(fail)
    limit.conversing(lambda: looks.append(1))

    outcome = hanging(limit, go_on, landed=lambda: "landed")

    assert isinstance(outcome, DurabilityUnknown)
    assert outcome.inner_exception is cause
    assert looks == [1]  # it has answered, so that nothing is waited for


def test_a_storage_that_hangs_leaves_it_unknown(go_on):
    limit = limit_of()
    limit.deciding(lambda: go_on.wait(SOON))

    outcome = hanging(limit, go_on, landed=lambda: "landed")

    assert isinstance(outcome, DurabilityUnknown)
    assert isinstance(outcome.inner_exception, CallTimeout)


def test_a_put_that_no_verdict_can_undo_leaves_it_unknown(go_on):
    asked, limit = [], limit_of(doubt="It is there, or may be.")

    def work():
        limit.deciding(lambda: asked.append(1))
        with limit.passing(settled=False):
            go_on.wait(SOON)

    with pytest.raises(DurabilityUnknown, match=r"It is there, or may be\.$") as told:
        within(limit, work, landed=lambda: "landed")
    assert "the request that publishes it is not answered" in str(told.value.inner_exception)
    assert asked == []


def test_a_call_that_cannot_land_is_not_asked_for(go_on):
    asked, limit = [], limit_of()
    limit.deciding(lambda: asked.append(1) or True)

    assert type(hanging(limit, go_on)) is CallTimeout
    assert asked == []


@pytest.mark.parametrize("common", [False, True])
def test_what_others_say_went_wrong_is_raised_here_too(go_on, common):
    limit, told = limit_of(world_size=2), []
    limit.deciding(lambda: go_on.wait(SOON))
    limit.conversing(lambda: {"error": record_of(StorageFailure("the disk is full"), 1), "common": common})

    outcome = hanging(limit, go_on, rank=1, world_size=2, tell=told.append, landed=lambda: "landed")

    assert type(outcome) is StorageFailure
    assert str(outcome) == ("the disk is full" if common else "rank 1 of 2: the disk is full")
    assert told == [outcome]


def test_what_others_say_is_done_is_done(go_on):
    limit = limit_of(world_size=2)
    limit.deciding(lambda: go_on.wait(SOON))
    limit.conversing(lambda: {"made": 1})

    assert hanging(limit, go_on, rank=1, world_size=2, landed=lambda: "landed") == "landed"
    assert type(hanging(limit, go_on, rank=1, world_size=2)) is CallTimeout  # no save: it names itself


def test_words_that_hang_tell_nothing(go_on):
    limit = limit_of(world_size=2)
    limit.conversing(lambda: go_on.wait(SOON))

    outcome = hanging(limit, go_on, rank=1, world_size=2)

    assert (type(outcome), outcome.ranks) == (CallTimeout, (1,))


def test_a_load_that_hangs_midway_names_what_it_changed(go_on):
    limit = limit_of()
    with limit.changing(lambda: (["model"], [])):
        pass

    outcome = hanging(limit, go_on)

    assert isinstance(outcome, PartlyLoaded)
    assert list(outcome.replaced) == ["model"]


def test_an_interrupt_of_who_waits_ends_the_call_too(last_words):
    limit, ended, begun, late = limit_of(SOON), [], threading.Event(), []
    last_words(20.0)

    def work():
        begun.set()
        try:
            while True:
                limit.check_interrupt()
        except KeyboardInterrupt as error:
            threading.Event().wait(0.05)
            ended.append(str(error))
            return "over"

    with pytest.raises(KeyboardInterrupt, match="by hand"):
        within(limit, work, attend=Once(begun), late=late.append)

    assert (ended, late) == (["by hand"], ["over"])


def test_an_interrupt_waits_for_whoever_is_passing(go_on, last_words):
    limit, inside, out = limit_of(SOON), threading.Event(), []
    last_words(0.5)

    def work():
        with limit.passing():
            inside.set()
            threading.Event().wait(0.6)
            out.append(True)
        go_on.wait(SOON)

    with pytest.raises(KeyboardInterrupt, match="by hand"):
        within(limit, work, attend=Once(inside))
    assert out == [True]


def test_a_call_has_the_context_of_its_caller():
    name = contextvars.ContextVar("name", default="nobody")
    name.set("caller")

    assert within(limit_of(SOON), name.get) == "caller"


@pytest.mark.parametrize("initialized", [True, False])
def test_a_call_has_the_device_of_its_caller(monkeypatch, initialized):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)

    assert within(limit_of(SOON), lambda: list(chosen)) == ([3] if initialized else [])


def test_a_call_needs_no_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")

    assert within(limit_of(SOON), lambda: 3) == 3
