"""Object signed requests: the few S3 requests obstore has no call for, signed here (AWS Signature Version 4).

List uploads that were begun and never finished, abort them, and remove an object only if it is still the version that
was read. Needs credentials that can be known (given, or in the environment); where they cannot (instance roles), and on
Google, a lifecycle rule of the bucket must end stale uploads. Azure forgets them by itself after a week.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from model_checkpoint.errors import PermissionRefused, StorageFailure
from model_checkpoint.storage.objects.requests.bucket import Bucket, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing, redact, secrets_of

if TYPE_CHECKING:  # both take time to import, and few processes need them
    from urllib.request import Request
    from xml.etree.ElementTree import Element

_TIMEOUT = 30.0
_EMPTY = hashlib.sha256(b"").hexdigest()
_ANSWER_LIMIT = 16 << 20
_PAGES = 1000


class NotOffered(StorageFailure):
    """The store does not have this request."""


_KINDS = {403: PermissionRefused, 404: KeyMissing, 405: NotOffered, 412: ConditionFailed, 501: NotOffered}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload in parts that was begun and not finished."""

    key: str
    id: str
    begun: datetime | None  # by the store's clock; None if it does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Where requests go and whose name they are signed in."""

    endpoint: str  # of the bucket
    region: str
    access: str
    secret: str
    token: str = ""
    service: str = "s3"

    @classmethod
    def of(cls, bucket: Bucket) -> Signer | None:
        """The signer for a bucket; None where the credentials are not ours to know."""
        given = _settings(bucket)
        access, secret = given.get("access_key_id", ""), given.get("secret_access_key", "")
        if bucket.address.scheme != "s3" or not access or not secret:
            return None
        region = given.get("region") or given.get("default_region") or "us-east-1"
        endpoint = given.get("endpoint") or given.get("endpoint_url") or ""
        hosted = given.get("virtual_hosted_style_request", "").lower() == "true"
        if not endpoint:
            endpoint = f"https://s3.{region}.amazonaws.com"
            hosted = False
        if not hosted:
            endpoint = f"{endpoint.rstrip('/')}/{bucket.address.bucket}"
        token = given.get("session_token") or given.get("token") or ""
        return cls(endpoint=endpoint.rstrip("/"), region=region, access=access, secret=secret, token=token)

    def request(
        self, method: str, path: str, query: Mapping[str, str], extra: Mapping[str, str], now: datetime
    ) -> Request:
        """A signed request without a body."""
        from urllib.request import Request

        parts = urlsplit(self.endpoint)
        uri = quote(f"{parts.path}/{path}" if path else parts.path or "/", safe="/~")
        line = "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in sorted(query.items()))
        headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
        headers |= {"x-amz-security-token": self.token} if self.token else {}
        headers |= {name.lower(): value for name, value in extra.items()}
        headers["authorization"] = self.authorization(method, uri, line, headers, now)
        url = f"{parts.scheme}://{parts.netloc}{uri}" + (f"?{line}" if line else "")
        return Request(url, method=method, headers=headers)

    def authorization(self, method: str, uri: str, line: str, headers: Mapping[str, str], now: datetime) -> str:
        """The header that signs a request without a body; ``uri`` and ``line`` are quoted, names of headers small."""
        text = self.string_to_sign(canonical_request(method, uri, line, headers), now)
        key = f"AWS4{self.secret}".encode()
        for part in self._scope(now).split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        names = ";".join(sorted(headers))
        return (
            f"AWS4-HMAC-SHA256 Credential={self.access}/{self._scope(now)}, SignedHeaders={names}, "
            f"Signature={signature}"
        )

    def string_to_sign(self, canonical: str, now: datetime) -> str:
        """What the signature is of: when, for what, and the digest of the canonical request."""
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        return f"AWS4-HMAC-SHA256\n{now:%Y%m%dT%H%M%SZ}\n{self._scope(now)}\n{digest}"

    def _scope(self, now: datetime) -> str:
        return f"{now:%Y%m%d}/{self.region}/{self.service}/aws4_request"


def canonical_request(method: str, uri: str, line: str, headers: Mapping[str, str]) -> str:
    """A request without a body as both sides spell it."""
    listed = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in sorted(headers))
    return "\n".join([method, uri, line, listed, ";".join(sorted(headers)), _EMPTY])


def _settings(bucket: Bucket) -> dict[str, str]:
    """What the client was given, else the environment, by the names obstore uses without ``aws_``."""
    cloud = {name.lower(): value for name, value in os.environ.items() if name.upper().startswith("AWS_")}
    given = {str(name).lower(): str(value) for name, value in bucket.settings().items()}
    if "access_key_id" not in {name.removeprefix("aws_") for name in given}:
        given = cloud | given
    return {name.removeprefix("aws_"): value for name, value in given.items()}


def list_uploads(bucket: Bucket, folder: str) -> list[Upload]:
    """Every unfinished upload below ``folder``, by key relative to the prefix; none where they cannot be known."""
    if Signer.of(bucket) is None:
        _say_that_they_stay(bucket, "with these credentials")
        return []
    try:
        return _list_pages(bucket, folder)
    except (PermissionRefused, NotOffered, KeyMissing) as error:
        _say_that_they_stay(bucket, f"since the store refuses it: {error}")
        return []


def _say_that_they_stay(bucket: Bucket, why: str) -> None:
    if bucket.address.scheme != "az":
        log.info(
            "%s: unfinished uploads cannot be listed %s; let a lifecycle rule of the bucket end them",
            bucket.address.url,
            why,
        )


def _list_pages(bucket: Bucket, folder: str) -> list[Upload]:
    found: list[Upload] = []
    query = {"uploads": "", "prefix": bucket.path(folder) + "/"}
    for _ in range(_PAGES):
        page = _parse(send_signed(bucket, "GET", "", query=query), bucket)
        found += [_upload(bucket, item) for item in page.iterfind("{*}Upload")]
        if (page.findtext("{*}IsTruncated") or "").strip() != "true":
            break
        query["key-marker"] = page.findtext("{*}NextKeyMarker") or ""
        query["upload-id-marker"] = page.findtext("{*}NextUploadIdMarker") or ""
    return found


def _parse(answer: bytes, bucket: Bucket) -> Element:
    from xml.etree import ElementTree

    where = bucket.address.url
    if b"<!DOCTYPE" in answer[:1024] or b"<!ENTITY" in answer:
        raise StorageFailure(f"{where}: the list of uploads is no plain XML. Check the endpoint.", where)
    try:
        return ElementTree.fromstring(answer)
    except ElementTree.ParseError as error:
        raise StorageFailure(
            f"{where}: the list of uploads cannot be read ({error}). Check the endpoint, then try again.", where
        ) from error


def _upload(bucket: Bucket, item: Element) -> Upload:
    prefix = f"{bucket.address.prefix}/" if bucket.address.prefix else ""
    key = (item.findtext("{*}Key") or "").removeprefix(prefix)
    begun = _moment((item.findtext("{*}Initiated") or "").strip())
    return Upload(key=key, id=item.findtext("{*}UploadId") or "", begun=begun)


def _moment(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def abort_upload(bucket: Bucket, upload: Upload) -> None:
    """End an upload and free its parts; one already gone is no error."""
    try:
        send_signed(bucket, "DELETE", upload.key, query={"uploadId": upload.id})
    except KeyMissing:
        log.debug("%s: the upload is gone already", bucket.where(upload.key))


def remove_mark(bucket: Bucket, key: str, version: Mapping[str, str]) -> None:
    """Remove the mark of a deletion if it is still ``version``; it stays where a store cannot do that on condition."""
    tag = version.get("e_tag")
    if Signer.of(bucket) is None or not tag:
        return
    try:
        send_signed(bucket, "DELETE", key, extra={"if-match": '"00000000000000000000000000000000"'})
    except ConditionFailed:
        pass  # the condition is honoured
    except StorageFailure as error:
        log.info("%s: the mark of a deletion stays (%s)", bucket.where(key), error)
        return
    else:
        log.warning("%s: the store ignores If-Match of a removal", bucket.where(key))
        return
    try:
        send_signed(bucket, "DELETE", key, extra={"if-match": tag})
    except (ConditionFailed, KeyMissing):
        log.debug("%s: came to life again, left alone", bucket.where(key))


def send_signed(
    bucket: Bucket,
    method: str,
    key: str,
    *,
    query: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> bytes:
    """Send one request without a body and return the answer; ``StorageFailure`` where it cannot be signed."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    path = bucket.path(key) if key else ""
    where, signer = bucket.where(key or "uploads"), Signer.of(bucket)
    if signer is None:
        raise StorageFailure(
            f"{where}: {method} needs credentials of S3 that can be read. Set AWS_ACCESS_KEY_ID.", where
        )
    request = signer.request(method, path, query or {}, extra or {}, datetime.now(UTC))
    try:
        with urlopen(request, timeout=_TIMEOUT) as answer:
            return bytes(answer.read(_ANSWER_LIMIT))
    except HTTPError as error:
        with error:
            kind = _KINDS.get(error.code, StorageFailure)
            raise kind(f"{where}: {method} failed with status {error.code}. Try again later.", where) from None
    except OSError as error:
        said = redact(str(error), secrets_of(bucket.settings().items()))
        raise StorageFailure(f"{where}: {method} failed ({said}). Check the network, then try again.", where) from None
