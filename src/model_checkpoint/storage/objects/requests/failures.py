"""Object failures: what an object store answered becomes an error that says where, what, and what to do next.

Raw answers are never passed on: they may quote signed addresses, tokens or keys. What is kept of them is one line with
every query string, credential and known secret cut out.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable

from model_checkpoint.errors import (
    CheckpointException,
    DurabilityUnknown,
    ExceptionType,
    PermissionRefused,
    StorageFailure,
)

SECRET_WORDS = ("secret", "token", "password", "key", "sas", "credential", "signature")

_LINE = 300
_QUERY = re.compile(r"\?[^\s\"'<>)]+")
_USERINFO = re.compile(r"//[^/\s\"'<>]*@")
_BEARER = re.compile(r"(?i)\b(bearer|aws4-hmac-sha256|sharedkey|signature)\b[^\n]*")
_LONG = re.compile(r"[A-Za-z0-9+/=_%-]{65,}")  # longer than a digest: a token


class PackageMissing(CheckpointException, ImportError):
    """The optional package a URL needs is not installed."""

    default_type = ExceptionType.STORAGE_ERROR


class PreconditionsIgnored(StorageFailure):
    """The store writes over an object although it was told not to, so two savers could both believe they won."""


class KeyMissing(StorageFailure):
    """There is no such object, or no such bucket."""


class ConditionFailed(StorageFailure):
    """The store refused a put because the object is there, or is not the version that was read."""


def secrets_of(settings: Iterable[tuple[str, object]]) -> frozenset[str]:
    """The values of ``settings`` that must never be shown.

    Example:
        >>> sorted(secrets_of([("secret_access_key", "hunter2-hunter2"), ("region", "eu-north-1")]))
        ['hunter2-hunter2']
    """
    return frozenset(
        value
        for name, value in settings
        if isinstance(value, str) and len(value) >= 4 and any(word in name.lower() for word in SECRET_WORDS)
    )


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The first line of ``text`` without query strings, credentials and ``secrets``.

    Example:
        >>> redact("GET http://user:pw@host/x?X-Amz-Signature=abc failed", ["host"])
        'GET http://.../x?... failed'
    """
    line = text.split("Debug source", 1)[0].strip().partition("\n")[0]
    for pattern, instead in ((_USERINFO, "//"), (_QUERY, "?..."), (_BEARER, "..."), (_LONG, "...")):
        line = pattern.sub(instead, line)
    for secret in sorted({*secrets, *secrets_of(_cloud_settings())}, key=len, reverse=True):
        line = line.replace(secret, "...")
    return line[:_LINE]


def _cloud_settings() -> Iterable[tuple[str, object]]:
    return [item for item in os.environ.items() if item[0].upper().startswith(("AWS_", "GOOGLE_", "AZURE_"))]


def typed_answer(error: Exception, where: str, doing: str, *, secrets: Iterable[str] = ()) -> StorageFailure:
    """The error of ours for what obstore raised; its class name tells what it is, so obstore is not needed here.

    Example:
        >>> print(typed_answer(FileNotFoundError("x"), "s3://b/x", "could not be read"))
        s3://b/x: could not be read, there is no such object or bucket (x). Check the bucket and the prefix.
    """
    said, kind = redact(str(error), secrets), type(error).__name__
    if isinstance(error, FileNotFoundError) or "<Code>NoSuchBucket</Code>" in str(error):
        text = f"{where}: {doing}, there is no such object or bucket ({said}). Check the bucket and the prefix."
        return KeyMissing(text, where)
    if kind in ("AlreadyExistsError", "PreconditionError"):
        text = f"{where}: {doing}, it was changed by somebody else meanwhile ({said}). Try again."
        return ConditionFailed(text, where)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or "status code: 403" in str(error):
        text = f"{where}: {doing}, the store refuses it ({said}). Check the credentials and the bucket's policy."
        return PermissionRefused(text, where)
    if "builder error" in said:
        text = (
            f"{where}: {doing}, the endpoint is not https. Use https, or set AWS_ALLOW_HTTP=true "
            "(GOOGLE_ALLOW_HTTP, AZURE_ALLOW_HTTP) if you trust the network."
        )
        return StorageFailure(text, where)
    text = f"{where}: {doing} ({said}). Check the network and the endpoint, then try again."
    return StorageFailure(text, where, code=errno.EREMOTEIO)  # which may pass


def package_missing(url: str) -> PackageMissing:
    """The error for an object store URL without obstore."""
    return PackageMissing(
        f"{url}: object stores need the package obstore, which is not installed. "
        "Install it with `pip install model-checkpoint[objects]`.",
        url,
    )


def preconditions_ignored(url: str, what: str) -> PreconditionsIgnored:
    """The error for a store on which two savers could overwrite each other."""
    return PreconditionsIgnored(
        f"{url}: this store {what}, so it cannot decide which of two saves wins, and one could be lost. "
        "Nothing was saved. Use a store that honours If-None-Match and If-Match (Amazon S3, Google, Azure, "
        "SeaweedFS 4.48 or newer, ...), or save to a disk.",
        url,
    )


def undecided(where: str, error: StorageFailure) -> DurabilityUnknown:
    """The error for a commit whose answer was lost and could not be found out."""
    return DurabilityUnknown(
        f"{where}: the manifest was sent, but whether it arrived could not be found out: {error} "
        "Nothing was removed: list the checkpoints when the store answers again, and save again if it is not there.",
        where,
    )
