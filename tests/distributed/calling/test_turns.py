"""Calls in the background: whose turn it is, who carries whose words, and what a handle tells."""

import asyncio
import threading

import pytest
from tests.ground.crowds import in_child

from model_checkpoint.distributed import CallTimeout
from model_checkpoint.distributed.calling.pending_call import PendingCall, Turns

SOON = 60.0


@pytest.mark.parametrize("attended", [False, True])
def test_calls_have_their_turn_in_the_order_in_which_they_asked(attended):
    came, order, asked = threading.Event(), [], threading.Event()
    turns = Turns(came.set if attended else None)
    tickets = [turns.ask() for _ in range(3)]

    def take(turn):
        asked.set()
        with turns.have(turn):
            order.append(turn)

    threads = [threading.Thread(target=take, args=(turn,)) for turn in reversed(tickets)]
    with turns.have(tickets[0]):
        for thread in threads[:2]:
            thread.start()
        assert asked.wait(SOON)
        assert not attended or came.wait(SOON)
        assert order == []
    for thread in threads[:2]:
        thread.join(SOON)

    assert order == tickets[1:]
    with turns.have(turns.ask()):
        assert came.is_set() == attended


def test_a_turn_is_given_up_whatever_becomes_of_it():
    turns = Turns()
    first, second = turns.ask(), turns.ask()

    with pytest.raises(ValueError, match="told"), turns.have(first):
        raise ValueError("told")

    with turns.have(second):
        pass


def test_a_forked_child_waits_for_nobody_who_did_not_come_along():
    turns = Turns()
    turns.ask()  # somebody is under way

    def work():
        waiting = threading.Thread(target=lambda: turns.have(turns.ask()).__enter__(), daemon=True)
        waiting.start()
        waiting.join(5)
        assert not waiting.is_alive()

    assert in_child(work) == 0


def failing():
    raise ValueError("told")


def late():
    raise TimeoutError("of its own")


@pytest.mark.parametrize("attend", [None, lambda: None])
def test_a_handle_tells_how_its_call_ended(attend):
    made = [PendingCall("a call", work, threading.Event(), attend) for work in (lambda: 3, failing, late)]

    assert made[0].result(SOON) == made[0].result() == 3
    assert made[0].exception() is None
    assert isinstance(made[1].exception(SOON), ValueError)
    with pytest.raises(ValueError, match="told"):
        made[1].result()
    with pytest.raises(TimeoutError, match="of its own") as told:
        made[2].result(SOON)
    assert not isinstance(told.value, CallTimeout)
    assert str(made[2].exception()) == "of its own"
    for one in made:
        one.wait(SOON)
        assert one.done()
        assert one.cancel() is False


def test_a_handle_of_a_call_under_way_can_cancel_it_and_is_asked_for_a_while():
    cancel, go_on = threading.Event(), threading.Event()
    call = PendingCall("a call", lambda: go_on.wait(SOON), cancel)

    call.wait(0.01)
    assert not call.done()
    with pytest.raises(CallTimeout, match=r"a call: not over after 0\.01 s; it goes on"):
        call.exception(0.01)
    assert not cancel.is_set()
    assert call.cancel() is True
    assert cancel.is_set()

    go_on.set()
    assert call.exception(SOON) is None


def test_who_comes_at_the_end_is_told_what_was_returned_and_nothing_of_a_failure():
    heard, go_on = [], threading.Event()
    call = PendingCall("a call", lambda: go_on.wait(SOON) and 3, threading.Event())

    call.at_end(None)
    call.at_end(heard.append)
    go_on.set()
    call.result(SOON)
    call._thread.join()
    assert heard == [3]

    call.at_end(heard.append)
    failed = PendingCall("a call", failing, threading.Event())
    failed.wait(SOON)
    failed.at_end(heard.append)
    assert heard == [3, 3]


def test_who_waits_carries_the_words_of_the_call_to_the_last():
    carried = []

    def attend():
        carried.append(len(carried))

    call = PendingCall("a call", lambda: 3, threading.Event(), attend)
    call._thread.join()

    assert call.result() == 3
    assert carried == [0]  # the last word may be one that others wait for
    assert call.result(SOON) == 3
    assert carried == [0, 1]


def attending():
    """What carries a call on, the steps it made, and what is set at the third of them."""
    steps, go_on = [], threading.Event()

    def attend():
        steps.append(1)
        if len(steps) == 3:
            go_on.set()

    return attend, steps, go_on


def test_a_call_is_carried_as_often_as_it_takes_and_no_oftener():
    attend, steps, go_on = attending()

    assert PendingCall("a call", lambda: go_on.wait(SOON), threading.Event(), attend).result(SOON) is True
    assert 3 <= len(steps) < 200

    steps.clear()
    go_on.clear()
    assert PendingCall("a call", lambda: go_on.wait(SOON), threading.Event(), attend).result() is True
    assert 3 <= len(steps) < 200


@pytest.mark.parametrize("attended", [False, True])
def test_a_call_may_be_awaited(attended):
    attend, steps, go_on = attending()

    async def awaited(work):
        return await PendingCall("a call", work, threading.Event(), attend if attended else None)

    if not attended:
        go_on.set()
    assert asyncio.run(awaited(lambda: go_on.wait(SOON))) is True
    assert len(steps) >= 3 if attended else steps == []
    with pytest.raises(ValueError, match="told"):
        asyncio.run(awaited(failing))


def test_who_awaits_a_call_that_is_over_still_carries_its_last_word():
    carried = []
    call = PendingCall("a call", lambda: 3, threading.Event(), lambda: carried.append(1))
    call._thread.join()

    async def awaited():
        return await call

    assert asyncio.run(awaited()) == 3
    assert carried
