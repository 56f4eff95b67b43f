"""Webhook signatures: prove to the receiver who sent a notification, and when."""

from __future__ import annotations

import hashlib
import hmac
import time

from model_checkpoint.hooks.errors import SignatureInvalid

HEADER = "X-Checkpoint-Signature"


def sign(secret: str | bytes, body: bytes, *, at: int) -> str:
    """The header for a body sent at a time, in whole seconds since 1970.

    Example:
        >>> sign("secret", b"{}", at=1)
        't=1,v1=1122767b193110cfec322b6f199b599edbf608ed087f2d27afb0b97d99523908'
    """
    return f"t={at},v1={_digest(secret, body, at)}"


def verify_signature(
    secret: str | bytes, header: str, body: bytes, *, tolerance: float = 300.0, now: float | None = None
) -> None:
    """Raise unless ``header`` was made for ``body`` with ``secret``, at most ``tolerance`` seconds from now.

    For receivers: check before anything of the body is believed. Within the tolerance the same delivery may come twice
    (retries, replays); ``X-Checkpoint-Delivery`` tells one from another.

    Raises:
        SignatureInvalid: malformed, made with another secret or for another body, or too old.

    Example:
        >>> header = sign("secret", b"{}", at=1000)
        >>> verify_signature("secret", header, b"{}", now=1001)
        >>> verify_signature("secret", header, b"{}", now=2000)
        Traceback (most recent call last):
        ...
        model_checkpoint.hooks.errors.SignatureInvalid: the notification was signed 1000 s ago, more than 300 s...
    """
    fields = dict(part.partition("=")[::2] for part in header.split(","))
    if not fields.get("t", "").isdecimal() or "v1" not in fields:
        raise SignatureInvalid(f"{HEADER} is t=<seconds>,v1=<digest>, got {header!r:.100}.")
    at = int(fields["t"])
    if not hmac.compare_digest(_digest(secret, body, at).encode(), fields["v1"].encode()):
        raise SignatureInvalid("the notification was signed with another secret, or changed on its way.")
    age = (time.time() if now is None else now) - at
    if abs(age) > tolerance:
        raise SignatureInvalid(
            f"the notification was signed {age:g} s ago, more than {tolerance:g} s: replayed, or a clock is wrong."
        )


def _digest(secret: str | bytes, body: bytes, at: int) -> str:
    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.new(key, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
