"""Whom a webhook speaks to, and how its receiver knows who spoke."""

import ssl
import subprocess

import pytest

from model_checkpoint.hooks import WebhookNotifierHook, verify_signature
from model_checkpoint.hooks.builtin.webhook.webhook_addresses import resolve, target_of
from model_checkpoint.hooks.builtin.webhook.webhook_signatures import sign
from model_checkpoint.hooks.errors import DeliveryFailed, SignatureInvalid, UrlForbidden

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

    manager.register_hook(notifier)
    manager.fire_hook("after_checkpoint_save")
    assert notifier.flush(60)

    assert "UrlForbidden" in notifier.undelivered()[0].failure
    assert receiver.got == []


@pytest.fixture
def speaking_tls(tmp_path, receiver_with):
    """A receiver whose certificate is good for localhost, and that certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    asked = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*asked.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return receiver_with(context), certificate


@pytest.mark.parametrize(
    ("host", "trusted", "failure"),
    [
        ("localhost", True, None),
        ("localhost", False, "certificate verify failed"),
        ("127.0.0.1", True, "IP address mismatch"),
    ],
)
def test_a_certificate_must_be_trusted_and_of_the_name_that_was_asked_for(
    manager, speaking_tls, monkeypatch, host, trusted, failure
):
    receiver, certificate = speaking_tls
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    notifier = WebhookNotifierHook(f"https://{host}:{receiver.port}/", private_network=True, first_pause=1000)

    manager.register_hook(notifier)
    manager.fire_hook("after_checkpoint_save")
    assert notifier.flush(60)

    assert len(receiver.got) == (0 if failure else 1)
    assert [failure in lost.failure for lost in notifier.undelivered()] == ([True] if failure else [])


def test_a_name_nobody_knows_may_be_known_later():
    with pytest.raises(DeliveryFailed, match="the name could not be resolved") as caught:
        resolve(target_of("https://no-such-host.invalid/", private_network=False))
    assert caught.value.passing


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
