"""A call under way is waited for as long as asked, and carried along where only the caller's thread may talk."""

import threading

import pytest

from model_checkpoint.distributed.calling.pending_call import PendingCall
from model_checkpoint.distributed.errors import CallTimeout


@pytest.mark.parametrize("attend", [None, lambda: None])
def test_who_waits_is_told_when_the_time_is_over_and_the_call_goes_on(attend):
    over = threading.Event()
    call = PendingCall("a call", lambda: over.wait(30), threading.Event(), attend)

    with pytest.raises(CallTimeout, match=r"^a call: not over after .* it goes on"):
        call.result(0.01)

    assert not call.done()
    over.set()
    assert call.result(30) is True


def test_waiting_for_the_end_carries_the_words_that_bring_it_and_raises_nothing():
    heard = threading.Event()

    def work():
        assert heard.wait(30)
        raise ValueError("heard")

    call = PendingCall("a call", work, threading.Event(), heard.set)
    call.wait(30)

    assert call.done()
    assert str(call.exception()) == "heard"
