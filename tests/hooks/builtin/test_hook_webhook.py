"""The webhook notifier against a real server: signed, tried again, bounded, never in the way of a save."""

import json
import os
import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from model_checkpoint.hooks import HookEvent, HookInvalid, WebhookNotifierHook, verify_signature
from model_checkpoint.hooks.builtin.webhook.webhook_addresses import resolve, target_of
from model_checkpoint.hooks.builtin.webhook.webhook_signatures import sign
from model_checkpoint.hooks.errors import SignatureInvalid, UrlForbidden

SAVED = HookEvent.AFTER_CHECKPOINT_SAVE


class Receiver:
    """A server on this machine that keeps what it gets and answers as it is told."""

    def __init__(self, context=None):
        self.got, self.answers, self.arrived, self.gate = [], [], threading.Event(), None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                receiver.arrived.set()
                if receiver.gate is not None:
                    receiver.gate.wait(60)
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_): ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def notifier(self, **options):
        options = {"private_network": True, "first_pause": 0.001, **options}
        return WebhookNotifierHook(f"http://127.0.0.1:{self.port}/hook?token=t", **options)

    def close(self):
        if self.gate is not None:
            self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


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


# --- where it may go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.com/", "a webhook is https, got http"),
        ("file:///etc/passwd", "a webhook is an https URL with a host"),
        ("ftp://example.com/", "a webhook is an https URL with a host"),
        ("https:///path", "a webhook is an https URL with a host"),
        ("https://user:word@example.com/", "no user or password in the URL"),
        ("https://example.com:99999/", "the port is no number"),
        ("https://example.com/a b", "spaces and control characters"),
        ("https://127.0.0.1/", "is no public address"),
        ("https://[::1]/", "is no public address"),
        ("https://[::ffff:10.0.0.1]/", "is no public address"),
        ("https://169.254.169.254/latest/meta-data", "is no public address"),
        ("https://10.1.2.3/", "is no public address"),
        ("https://192.168.0.1/", "is no public address"),
        ("https://0.0.0.0/", "is no public address"),
        ("https://224.0.0.1/", "is no public address"),
        ("https://[fe80::1]/", "is no public address"),
    ],
)
def test_only_public_https_addresses_are_spoken_to(url, words):
    with pytest.raises(UrlForbidden, match=words):
        WebhookNotifierHook(url)


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f000001", "127.1"])
def test_names_and_numbers_that_lead_to_this_machine_are_refused_when_they_are_resolved(host):
    with pytest.raises(UrlForbidden, match=r"127\.0\.0\.1 is no public address|::1 is no public address"):
        resolve(target_of(f"https://{host}/", private_network=False))


def test_a_name_that_turns_out_private_is_given_up_at_once(manager, receiver):
    notifier = WebhookNotifierHook(f"https://localhost:{receiver.port}/", first_pause=1000)

    fired(manager, notifier)
    assert notifier.flush(60)

    assert "UrlForbidden" in notifier.undelivered()[0].failure
    assert receiver.got == []


def test_a_certificate_that_is_not_trusted_is_refused_and_not_tried_again(manager, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    asked = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*asked.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver = Receiver(context)
    try:
        notifier = WebhookNotifierHook(f"https://localhost:{receiver.port}/", private_network=True, first_pause=1000)
        fired(manager, notifier)
        assert notifier.flush(60)
    finally:
        receiver.close()

    assert "certificate verify failed" in notifier.undelivered()[0].failure
    assert receiver.got == []


# --- signatures ------------------------------------------------------------------------------------------------------


def test_a_signature_is_what_openssl_makes_of_time_and_body():
    body = b'{"event": "ON_ERROR"}'
    out = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", "secret"], input=b"1700000000." + body, capture_output=True, check=True
    )

    assert sign("secret", body, at=1700000000) == f"t=1700000000,v1={out.stdout.split()[-1].decode()}"


@pytest.mark.parametrize(
    ("secret", "header", "body", "now", "words"),
    [
        ("other", sign("secret", b"{}", at=1000), b"{}", 1000, "signed with another secret"),
        ("secret", sign("secret", b"{}", at=1000), b"{ }", 1000, "changed on its way"),
        ("secret", sign("secret", b"{}", at=1000).replace("t=1000", "t=1001"), b"{}", 1000, "changed on its way"),
        ("secret", sign("secret", b"{}", at=1000), b"{}", 1301, "signed 301 s ago"),
        ("secret", sign("secret", b"{}", at=1000), b"{}", 600, "a clock is wrong"),
        ("secret", "v1=abc", b"{}", 1000, "is t=<seconds>,v1=<digest>"),
        ("secret", "", b"{}", 1000, "is t=<seconds>,v1=<digest>"),
        ("secret", "t=1000,v1=\u00e9", b"{}", 1000, "another secret"),
    ],
)
def test_a_receiver_finds_out_what_is_forged_changed_or_replayed(secret, header, body, now, words):
    with pytest.raises(SignatureInvalid, match=words):
        verify_signature(secret, header, body, now=now)


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"max_queued": 0}, {"request_timeout": 0}, {"first_pause": -1}]
)
def test_numbers_that_make_no_sense_are_refused(options):
    with pytest.raises(HookInvalid, match="max_attempts and max_queued are at least 1"):
        WebhookNotifierHook("https://example.com/", **options)
