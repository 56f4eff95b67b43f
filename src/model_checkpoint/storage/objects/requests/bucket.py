"""Object bucket: the one way to the objects of a bucket. Every request of the store goes through here.

The package obstore does the talking, retries what may be retried and checks what the store can check; here its answers
become values and errors of ours. Keys are relative to the prefix.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from model_checkpoint import forks
from model_checkpoint.errors import CheckpointException, ExceptionType, StorageFailure
from model_checkpoint.options import MIB
from model_checkpoint.storage.objects.requests.failures import KeyMissing, package_missing, secrets_of, typed_answer

log = logging.getLogger("model_checkpoint.storage")

PART_BYTES = 8 * MIB
PARTS_AT_ONCE = 8
TERM_SECONDS = 120.0
_MOST_PARTS = 9_000  # stores grant 10,000
_URL = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,253})((?:/[A-Za-z0-9._=+-]+)*)/?")

Condition = Mapping[str, str] | None  # the version a put may replace; None: there must be none

T = TypeVar("T")


class BadURL(CheckpointException, ValueError):
    """A URL that names no bucket and prefix."""

    default_type = ExceptionType.STORAGE_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """One object, as a listing or a look at it tells."""

    key: str
    size: int
    modified: datetime
    version: str = ""  # the store's own mark for this content, where it has one


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedObject:
    """One object with its bytes, the version to replace it by, and the remarks kept with it."""

    data: bytes
    version: Mapping[str, str]
    remarks: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Address:
    """A bucket and the prefix below which everything lies.

    Example:
        >>> Address.parse("s3://bucket/runs/a/")
        Address(scheme='s3', bucket='bucket', prefix='runs/a')
    """

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Take a URL apart; the message of a refusal does not repeat it, since it may hold a password."""
        match = _URL.fullmatch(url)
        if match is None or any(part in (".", "..") for part in match[3].split("/")):
            scheme = url.partition("://")[0][:16]
            raise BadURL(
                f"{scheme}://...: not a URL of an object store, expected {scheme}://bucket/prefix of A-Z a-z 0-9 . _ - "
                "without user, query or empty parts. Give credentials through the environment, never in the URL."
            )
        return cls(match[1], match[2], match[3].strip("/"))

    @property
    def url(self) -> str:
        """The URL, without a slash at its end."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


class BucketRequest(NamedTuple):
    """What is asked of a bucket."""

    key: str
    decides: bool = False  # a put that is made only over what was expected; never made twice
    streams: bool = False  # its bytes can be given only once
    nbytes: int = 0  # that it puts


class Through(Protocol):
    """What stands between a bucket and its requests: it makes ``call``, perhaps later, perhaps again."""

    def __call__(self, request: BucketRequest, call: Callable[[], T]) -> T:
        """Make the request."""
        ...


def straight(request: BucketRequest, call: Callable[[], T]) -> T:
    """Make a request as it is."""
    return call()


@dataclass(slots=True, eq=False)
class Proof:
    """Whether preconditions were seen to be honoured."""

    proven: bool = False
    proving: threading.Lock = field(default_factory=forks.lock)


@dataclass(slots=True, eq=False)
class Bucket:
    """A bucket seen from a prefix."""

    address: Address
    client: Any  # a store of obstore, rooted at the bucket
    term: float = TERM_SECONDS  # whoever was silent for so long on another machine may be dead, never before
    proof: Proof = field(default_factory=Proof)
    through: Through = straight

    def with_requests(self, wrap: Callable[[Through], Through]) -> Bucket:
        """The same bucket, whose requests pass through what ``wrap`` makes."""
        return replace(self, through=wrap(self.through))

    @property
    def proven(self) -> bool:
        """Whether preconditions were seen to be honoured."""
        return self.proof.proven

    def where(self, key: str) -> str:
        """The full URL of a key, for messages."""
        return f"{self.address.url}/{key}"

    def path(self, key: str) -> str:
        """The key in the bucket."""
        return f"{self.address.prefix}/{key}" if self.address.prefix else key

    def settings(self) -> Mapping[str, Any]:
        """How the client was configured."""
        return dict(getattr(self.client, "config", None) or {})

    def _call(self, key: str, doing: str, call: Callable[[], T], request: BucketRequest | None = None) -> T:
        def typed() -> T:
            try:
                return call()
            except CheckpointException:
                raise
            except Exception as error:  # noqa: BLE001  # obstore raises a dozen kinds; each becomes one of ours
                # the raw error is dropped on purpose: it may quote what must not be shown
                raise typed_answer(error, self.where(key), doing, secrets=secrets_of(self.settings().items())) from None

        return self.through(BucketRequest(key) if request is None else request, typed)

    def put(self, key: str, data: bytes | memoryview, *, remarks: Mapping[str, str] | None = None) -> None:
        """Write an object, whatever was there."""
        self._put(key, data, "overwrite", remarks)

    def put_if(self, key: str, data: bytes, condition: Condition, *, remarks: Mapping[str, str] | None = None) -> None:
        """Write an object only over the version ``condition``, or only as a new one; else ``ConditionFailed``."""
        self._put(key, data, "create" if condition is None else dict(condition), remarks)

    def _put(self, key: str, data: bytes | memoryview, mode: Any, remarks: Mapping[str, str] | None) -> None:
        def put() -> None:
            _obstore().put(
                self.client,
                self.path(key),
                data,
                mode=mode,
                attributes=dict(remarks) if remarks else None,
                use_multipart=False,
            )

        request = BucketRequest(key, decides=mode != "overwrite", nbytes=len(data))
        self._call(key, "could not be written", put, request)

    def put_stream(
        self,
        key: str,
        blocks: Iterator[bytes],
        size: int,
        *,
        part_bytes: int = PART_BYTES,
        at_once: int = PARTS_AT_ONCE,
    ) -> None:
        """Write an object of ``size`` bytes in parts, several at a time; an iterator that raises cancels it."""
        part = max(part_bytes, -(-size // _MOST_PARTS))

        def put() -> None:
            _obstore().put(
                self.client, self.path(key), blocks, use_multipart=True, chunk_size=part, max_concurrency=at_once
            )

        self._call(key, "could not be written", put, BucketRequest(key, streams=True, nbytes=size))

    def get(self, key: str) -> FetchedObject:
        """Read a whole object; ``KeyMissing`` if there is none."""

        def get() -> FetchedObject:
            answer = _obstore().get(self.client, self.path(key))
            version = {name: answer.meta[name] for name in ("e_tag", "version") if answer.meta.get(name)}
            remarks = {str(name).lower(): str(value) for name, value in answer.attributes.items()}
            return FetchedObject(data=bytes(answer.bytes()), version=version, remarks=remarks)

        return self._call(key, "could not be read", get)

    def read(self, key: str, offset: int, length: int) -> memoryview:
        """The bytes ``[offset, offset + length)`` of an object; fewer where it ends before."""

        def read() -> memoryview:
            return memoryview(_obstore().get_range(self.client, self.path(key), start=offset, length=length)).cast("B")

        return self._call(key, "could not be read", read)

    def read_head(self, key: str, limit: int | None) -> bytes:
        """The first ``limit`` bytes of an object, or all; ``KeyMissing`` if there is none."""

        def read() -> bytes:
            return bytes(_obstore().get(self.client, self.path(key), options={"range": (0, limit)}).bytes())

        try:
            return self.get(key).data if limit is None else self._call(key, "could not be read", read)
        except StorageFailure as error:
            if "416" not in str(error):
                raise
            return self.get(key).data[:limit]  # of an object of no bytes no range can be asked for

    def head(self, key: str) -> ObjectMeta:
        """Look at an object; ``KeyMissing`` if there is none."""
        meta = self._call(key, "could not be looked at", lambda: _obstore().head(self.client, self.path(key)))
        return self._listed(meta)

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store; no byte travels."""
        doing = f"could not be copied to {target}"
        self._call(source, doing, lambda: _obstore().copy(self.client, self.path(source), self.path(target)))

    def delete(self, key: str) -> None:
        """Remove an object; one already gone is no error."""
        try:
            self._call(key, "could not be removed", lambda: _obstore().delete(self.client, self.path(key)))
        except KeyMissing:
            log.debug("%s: gone already", self.where(key))

    def folders(self, folder: str) -> list[str]:
        """The names one level below ``folder``; none if the bucket does not exist."""
        prefix = self.path(folder).rstrip("/")

        def walk() -> list[str]:
            answer = _obstore().list_with_delimiter(self.client, prefix)
            return [str(path).rstrip("/").rpartition("/")[2] for path in answer["common_prefixes"]]

        try:
            return self._call(folder, "could not be listed", walk)
        except KeyMissing:
            return []

    def list(self, folder: str = "") -> list[ObjectMeta]:
        """Every object below ``folder``; none if the bucket does not exist."""
        prefix = self.path(folder).rstrip("/") or None

        def walk() -> list[ObjectMeta]:
            chunks = _obstore().list(self.client, prefix, chunk_size=1000)
            return [self._listed(meta) for chunk in chunks for meta in chunk]

        try:
            return self._call(folder, "could not be listed", walk)
        except KeyMissing:
            return []

    def is_empty(self) -> bool:
        """Whether there is nothing at all below the prefix."""

        def peek() -> bool:
            return not next(iter(_obstore().list(self.client, self.address.prefix or None, chunk_size=1)), ())

        try:
            return self._call("", "could not be listed", peek)
        except KeyMissing:
            return True

    def _listed(self, meta: Mapping[str, Any]) -> ObjectMeta:
        key = str(meta["path"])
        if self.address.prefix:
            key = key.removeprefix(self.address.prefix + "/")
        version = (meta.get("e_tag") or "").strip('"')  # Azure quotes it in one answer and not in another
        return ObjectMeta(key=key, size=int(meta["size"]), modified=meta["last_modified"], version=version)


_buckets: dict[tuple[object, ...], Bucket] = {}
_connecting = forks.lock()


def connect(address: Address) -> Bucket:
    """The bucket of ``address`` by the settings of the environment; one connection for each process and setting."""
    cloud = tuple(sorted(item for item in os.environ.items() if item[0].upper().startswith(("AWS", "GOOGLE", "AZURE"))))
    key = (os.getpid(), address, cloud)
    with _connecting:
        if key not in _buckets:
            _buckets[key] = Bucket(address, _client(address))
        return _buckets[key]


def _client(address: Address) -> Any:
    _obstore(address.url)
    from obstore.store import from_url

    options: dict[str, Any] = {}
    if address.scheme == "s3" and not _is_set("AWS_CHECKSUM_ALGORITHM"):
        options["checksum_algorithm"] = (
            "sha256"  # the signature needs the digest anyway; so the store checks and keeps it
        )
    try:
        return from_url(f"{address.scheme}://{address.bucket}", **options)
    except Exception as error:  # noqa: BLE001  # whatever obstore dislikes about the settings becomes one of ours
        raise typed_answer(error, address.url, "the settings of the environment do not make a client") from None


def _is_set(name: str) -> bool:
    return any(key.upper() == name for key in os.environ)


_first_user: int | None = None  # the process whose threads obstore runs on


def _obstore(url: str = "object stores") -> Any:
    global _first_user
    try:
        import obstore
    except ImportError as error:
        raise package_missing(url) from error
    _first_user = _first_user or os.getpid()
    if _first_user != os.getpid():  # its threads did not come along: it would wait for ever
        raise StorageFailure(
            f"{url}: obstore was used before this process was forked, and cannot be used after. "
            "Start processes by spawn or forkserver, or fork before the first save or load.",
            url,
        )
    return obstore
