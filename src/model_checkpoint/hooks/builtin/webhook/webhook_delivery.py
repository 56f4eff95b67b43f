"""Webhook delivery: one request to one checked address; no redirect is followed."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress

from model_checkpoint.hooks.builtin.webhook.webhook_addresses import WebhookTarget, resolve
from model_checkpoint.hooks.errors import DeliveryFailed

_PASSING = {408, 425, 429, 500, 502, 503, 504}
_MOST_ANSWER = 64 << 10
_LONGEST_WAIT = 300.0


def deliver(target: WebhookTarget, body: bytes, headers: Mapping[str, str], *, timeout: float) -> int:
    """Post ``body`` and return the status, which is 2xx; no pause is longer than ``timeout``, all of it twice that.

    Raises:
        DeliveryFailed: no connection, no answer in time, or another status; ``passing`` says whether to try again.
        UrlForbidden: the name leads to an address it must not.
    """
    connection = _connect(target, timeout)
    watchdog = threading.Timer(2 * timeout, _hang_up, (connection.sock,))
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.request("POST", target.path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        answer.read(_MOST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise DeliveryFailed(f"{target}: no answer: {type(error).__name__}: {error}", passing=True) from error
    finally:
        watchdog.cancel()
        connection.close()
    if 200 <= answer.status < 300:
        return answer.status
    if 300 <= answer.status < 400:
        raise DeliveryFailed(f"{target}: answered {answer.status}, a redirect; none is followed. Give the final URL.")
    raise DeliveryFailed(
        f"{target}: answered {answer.status} {answer.reason}",
        passing=answer.status in _PASSING,
        retry_after=_seconds(answer.getheader("Retry-After")),
    )


def _hang_up(line: socket.socket) -> None:
    """End a request whose answer comes byte by byte: each in time, and all of them never."""
    with suppress(OSError):  # it may just have been closed
        line.shutdown(socket.SHUT_RDWR)


def _connect(target: WebhookTarget, timeout: float) -> http.client.HTTPConnection:
    """A connection to an address that was looked at, under the name that was asked for."""
    failure: OSError | None = None
    for address in resolve(target):
        try:
            raw = socket.create_connection((address, target.port), timeout)
        except OSError as error:
            failure = error
            continue
        return _over(raw, target, timeout)
    raise DeliveryFailed(f"{target}: no connection: {failure}", passing=True) from failure


def _over(raw: socket.socket, target: WebhookTarget, timeout: float) -> http.client.HTTPConnection:
    if not target.secure:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=timeout)
        connection.sock = raw
        return connection
    try:
        wrapped = ssl.create_default_context().wrap_socket(raw, server_hostname=target.host)
    except OSError as error:  # a certificate that is not theirs will not be theirs in a second
        raw.close()
        passing = not isinstance(error, ssl.SSLCertVerificationError)
        raise DeliveryFailed(f"{target}: no secure connection: {error}", passing=passing) from error
    secure = http.client.HTTPSConnection(target.host, target.port, timeout=timeout)
    secure.sock = wrapped
    return secure


def _seconds(header: str | None) -> float | None:
    """How long the receiver asks us to wait, when it says so in seconds, within reason."""
    if header is None or not header.strip().isdecimal():
        return None
    return min(float(header), _LONGEST_WAIT)
