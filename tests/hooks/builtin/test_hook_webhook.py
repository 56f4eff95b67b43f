"""The webhook notifier against a real server: signed, tried again, bounded, never in the way of a save."""

import json
import os
import socket
import threading

import numpy as np
import pytest

from model_checkpoint.hooks import HookEvent, HookInvalid, WebhookNotifierHook, verify_signature

SAVED = HookEvent.AFTER_CHECKPOINT_SAVE


def fired(manager, notifier, times=1, **data):
    if not any(hook.name == "WebhookNotifierHook" for hook in manager.list_hooks()):
        manager.register_hook(notifier)
    return [manager.fire_hook(SAVED, checkpoint_id="c-1", experiment_id="e-1", **data) for _ in range(times)]


def test_a_notification_arrives_signed_with_what_can_be_told(manager, receiver):
    notifier = receiver.notifier(secret="secret")

    fired(manager, notifier, step=3, loss=np.float32("nan"), model=np.zeros(10))
    assert notifier.flush(60)

    ((path, headers, body),) = receiver.got
    verify_signature("secret", headers["X-Checkpoint-Signature"], body)
    told = json.loads(body, parse_constant=pytest.fail)
    assert (path, headers["X-Checkpoint-Event"], headers["Content-Type"]) == (
        "/hook?token=t",
        "AFTER_CHECKPOINT_SAVE",
        "application/json",
    )
    assert told.pop("at") > 1.7e9
    assert told == {
        "event": "AFTER_CHECKPOINT_SAVE",
        "checkpoint_id": "c-1",
        "experiment_id": "e-1",
        "data": {"step": 3, "loss": "NaN"},
        "left_out": ["model"],
    }


def test_without_a_secret_nothing_is_signed(manager, receiver):
    notifier = receiver.notifier()
    fired(manager, notifier)
    notifier.flush(60)

    assert "X-Checkpoint-Signature" not in receiver.got[0][1]


def test_a_save_does_not_wait_for_the_receiver(manager, receiver):
    receiver.gate = threading.Event()
    notifier = receiver.notifier()

    (result,) = fired(manager, notifier)

    assert receiver.arrived.wait(60)
    assert (bool(result), result.errors, notifier.statistics()["sent"]) == (True, (), 0)
    receiver.gate.set()
    assert notifier.flush(60)
    assert notifier.statistics()["sent"] == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_passes_is_tried_again_as_the_same_delivery(manager, receiver, status):
    receiver.answers = [(status, {}), (status, {})]
    notifier = receiver.notifier(secret="s")

    fired(manager, notifier)
    assert notifier.flush(60)

    assert len({headers["X-Checkpoint-Delivery"] for _, headers, _ in receiver.got}) == 1
    assert len(receiver.got) == 3
    assert notifier.statistics() == {"sent": 1, "retried": 2, "failed": 0, "refused": 0, "queued": 0}


@pytest.mark.parametrize("status", [400, 401, 404, 410, 501])
def test_what_does_not_pass_is_not_tried_again(manager, receiver, status):
    receiver.answers = [(status, {})]
    notifier = receiver.notifier()

    fired(manager, notifier)
    assert notifier.flush(60)

    assert len(receiver.got) == 1
    (lost,) = notifier.undelivered()
    assert f"answered {status}" in lost.failure


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(manager, receiver, status):
    receiver.answers = [(status, {"Location": f"http://127.0.0.1:{receiver.port}/elsewhere"})]
    notifier = receiver.notifier()

    fired(manager, notifier)
    assert notifier.flush(60)

    assert [path for path, _, _ in receiver.got] == ["/hook?token=t"]
    assert "a redirect; none is followed" in notifier.undelivered()[0].failure


def test_after_the_last_attempt_it_is_undelivered_and_can_be_sent_again(manager, receiver, caplog):
    receiver.answers = [(500, {})] * 3
    notifier = receiver.notifier(max_attempts=3)

    fired(manager, notifier)
    assert notifier.flush(60)
    assert (len(receiver.got), notifier.statistics()["failed"]) == (3, 1)
    assert "did not arrive" in caplog.text
    assert "token" not in caplog.text

    assert notifier.resend() == 1
    assert notifier.flush(60)
    assert (notifier.undelivered(), notifier.statistics()["sent"]) == ((), 1)
    assert receiver.got[0][1]["X-Checkpoint-Delivery"] == receiver.got[3][1]["X-Checkpoint-Delivery"]


def test_a_receiver_that_asks_for_time_gets_it(manager, receiver):
    receiver.answers = [(503, {"Retry-After": "0"})]
    notifier = receiver.notifier(first_pause=1000)

    fired(manager, notifier)

    assert notifier.flush(60)
    assert notifier.statistics()["sent"] == 1


def test_nobody_listening_is_tried_again_and_then_undelivered(manager):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        notifier = WebhookNotifierHook(url, private_network=True, max_attempts=3, first_pause=0.001)
        (result,) = fired(manager, notifier)
        assert notifier.flush(60)

    assert result
    assert notifier.statistics() == {"sent": 0, "retried": 2, "failed": 1, "refused": 0, "queued": 0}
    assert "no connection" in notifier.undelivered()[0].failure


def test_a_receiver_that_never_answers_costs_its_time_limit(manager, receiver):
    receiver.gate = threading.Event()
    notifier = receiver.notifier(request_timeout=0.05, max_attempts=1)

    fired(manager, notifier)
    assert notifier.flush(60)

    assert "no answer: TimeoutError" in notifier.undelivered()[0].failure


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_a_receiver_that_answers_byte_by_byte_for_ever_is_hung_up_on(manager, drip):
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        line, _ = listener.accept()
        with line:
            line.sendall(drip)
            while not over.wait(0.01):
                try:
                    line.sendall(b"x")
                except OSError:
                    return

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    notifier = WebhookNotifierHook(url, private_network=True, request_timeout=0.1, max_attempts=1)
    try:
        fired(manager, notifier)
        assert notifier.flush(60)
    finally:
        over.set()
        listener.close()

    assert notifier.statistics()["queued"] == 0
    assert notifier.statistics()["sent"] + notifier.statistics()["failed"] == 1


def test_the_queue_is_bounded_and_what_finds_no_room_is_a_dead_letter_that_can_be_replayed(manager, receiver):
    receiver.gate = threading.Event()
    notifier = receiver.notifier(max_queued=2)
    fired(manager, notifier)
    assert receiver.arrived.wait(60)

    results = fired(manager, notifier, times=4)

    assert all(results)
    assert (notifier.statistics()["refused"], len(manager.dead_letters())) == (2, 2)
    receiver.gate.set()
    assert notifier.flush(60)
    assert len(manager.replay_dead_letters().done) == 2
    assert notifier.flush(60)
    assert notifier.statistics()["sent"] == 5


def test_closing_the_manager_delivers_what_waits(manager, receiver):
    notifier = receiver.notifier()
    fired(manager, notifier, times=5)

    manager.close()

    assert notifier.statistics()["sent"] == 5


def test_closing_gives_up_on_a_receiver_that_is_down(manager, receiver):
    receiver.answers = [(500, {})] * 100
    notifier = receiver.notifier(first_pause=1000)
    fired(manager, notifier, times=3)
    assert receiver.arrived.wait(60)

    assert notifier.close(timeout=0.05) is False
    while notifier.statistics()["queued"]:
        receiver.arrived.wait(0.01)
    assert len(notifier.undelivered()) == 3


def test_a_forked_child_sends_its_own_and_not_those_of_its_parent(manager, receiver):
    receiver.gate = threading.Event()
    notifier = receiver.notifier()
    fired(manager, notifier, times=3)
    assert receiver.arrived.wait(60)

    child = os.fork()
    if child == 0:
        os._exit(notifier.statistics()["queued"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    receiver.gate.set()
    assert notifier.flush(60)
    assert notifier.statistics()["sent"] == 3


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"max_queued": 0}, {"request_timeout": 0}, {"first_pause": -1}]
)
def test_numbers_that_make_no_sense_are_refused(options):
    with pytest.raises(HookInvalid, match="max_attempts and max_queued are at least 1"):
        WebhookNotifierHook("https://example.com/", **options)
