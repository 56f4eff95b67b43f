"""Object leases: how whoever works on an object store shows that it is alive.

Each attempt first puts a small object that says who and what; it is put again every half minute, so that its
Last-Modified, by the store's clock, tells how long ago its owner lived. It goes last.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from datetime import datetime

import msgspec

from model_checkpoint.errors import CheckpointException, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract import host
from model_checkpoint.storage.objects.requests.bucket import Bucket, ObjectMeta, log
from model_checkpoint.storage.objects.requests.failures import ConditionFailed, KeyMissing, preconditions_ignored
from model_checkpoint.storage.objects.requests.keys import CLOCK, LEASE, STAGING, lease_key

BEAT_SECONDS = 30.0


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease says: who is at work, on what, and what recovery must know to finish or undo it."""

    attempt: str
    name: str
    host: str = ""
    boot: str = ""
    space: str = ""  # process ids mean something only within one
    pid: int = 0
    born: str = ""  # process ids come again
    nonce: str = ""  # tells two claims to one attempt id apart


_alive: weakref.WeakValueDictionary[tuple[int, str], Lease] = weakref.WeakValueDictionary()


class Lease:
    """The claim of one piece of work of this process, kept fresh until it is released or left."""

    def __init__(self, bucket: Bucket, *, attempt: str, name: str) -> None:
        self._bucket, self.key = bucket, lease_key(attempt)
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._claim = _claim_of_this_process(attempt=attempt, name=name)
        _prove_with(bucket, self.key, self._take())
        _alive[os.getpid(), self._claim.nonce] = self
        threading.Thread(target=_beat, args=(weakref.ref(self), self._over), name="mckpt-lease", daemon=True).start()

    def _take(self) -> bytes:
        line = msgspec.json.encode(self._claim)
        try:
            self._bucket.put_if(self.key, line, None)
        except ConditionFailed:
            if self._bucket.get(self.key).data != line:  # else the answer to our own put was lost
                where = self._bucket.where(self.key)
                raise StorageFailure(
                    f"{where}: the attempt id is in use. Use a fresh one for each attempt.", where
                ) from None
        return line

    def beat(self) -> None:
        """Put the claim again, unless it is over."""
        with self._writing:
            if not self._over.is_set():
                self._bucket.put(self.key, msgspec.json.encode(self._claim))

    def release(self) -> None:
        """The work is done and nothing is left: remove the claim; what fails here is left to recovery."""
        self.leave()
        try:
            self._bucket.delete(self.key)
        except CheckpointException as error:
            log.warning("%s: could not be removed, recovery will (%s)", self._bucket.where(self.key), error)

    def leave(self) -> None:
        """Stop, but keep the claim, so that recovery knows that something is left to do."""
        with self._writing:
            self._over.set()
        _alive.pop((os.getpid(), self._claim.nonce), None)


def _beat(lease: weakref.ref[Lease], over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        held = lease()
        if held is None:
            return
        try:
            held.beat()
        except CheckpointException as error:
            log.warning("%s: could not be refreshed, will be tried again (%s)", held.key, error)
        del held


def prove(bucket: Bucket) -> None:
    """Make sure, once for each connection, that the store honours preconditions."""
    if bucket.proven:
        return
    key = _probe_key()
    bucket.put(key, b"probe")
    try:
        _prove_with(bucket, key, b"probe")
    finally:
        bucket.delete(key)


def _prove_with(bucket: Bucket, key: str, line: bytes) -> None:
    """Make sure of it with an object just put, which goes if it is not so."""
    with bucket.proof.proving:
        if bucket.proven:
            return
        try:
            for condition in (None, {"e_tag": '"00000000000000000000000000000000"'}):
                _expect_refusal(bucket, key, line, condition)
        except BaseException:
            try:
                bucket.delete(key)
            except CheckpointException as error:
                log.warning("%s: could not be removed, recovery will (%s)", bucket.where(key), error)
            raise
        bucket.proof.proven = True


def _expect_refusal(bucket: Bucket, key: str, line: bytes, condition: dict[str, str] | None) -> None:
    wanted = "if there is none" if condition is None else "only over a version that is not there"
    if condition is not None and bucket.address.scheme == "gs":
        condition = {"version": "1"}  # a generation no object has
    try:
        bucket.put_if(key, line, condition)
    except (ConditionFailed, KeyMissing):
        return
    except StorageFailure as error:
        if "501" in str(error) or "NotImplemented" in str(error):
            raise preconditions_ignored(bucket.address.url, f"does not know how to write an object {wanted}") from error
        raise
    raise preconditions_ignored(bucket.address.url, f"wrote over an object that was to be written {wanted}")


# --- who is alive ----------------------------------------------------------------------------------------------------


def _claim_of_this_process(*, attempt: str, name: str) -> LeaseRecord:
    return LeaseRecord(
        attempt=attempt,
        name=name,
        host=os.uname().nodename,
        boot=host.boot_id(),
        space=host.process_space(),
        pid=os.getpid(),
        born=_born(os.getpid()),
        nonce=secrets.token_hex(8),
    )


def _born(pid: int) -> str:
    """When a process began, in the system's ticks; empty if it is gone or the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def seconds_left(claim: LeaseRecord, age: float, graces: Graces, *, term: float) -> float | None:
    """How long until the owner of a claim last refreshed ``age`` seconds ago counts as dead; None while it lives.

    On another machine that is certain only after ``term`` seconds of silence, however short the graces.
    """
    here = (os.uname().nodename, host.boot_id(), host.process_space())
    if (claim.host, claim.boot, claim.space) != here or not claim.born:
        return max(graces.foreign, term) - age
    if claim.pid == os.getpid() and claim.born == _born(claim.pid):
        return None if (claim.pid, claim.nonce) in _alive else graces.local - age
    return None if _born(claim.pid) == claim.born else graces.local - age


_CLAIMS = msgspec.json.Decoder(LeaseRecord)  # made once: msgspec crashes where two threads meet a class first


def read_claim(bucket: Bucket, key: str) -> LeaseRecord | None:
    """What a lease says; None if it is gone or says nothing we understand."""
    try:
        return _CLAIMS.decode(bucket.get(key).data)
    except KeyMissing:
        return None
    except msgspec.MsgspecError:
        log.warning("%s: not a lease of ours, left alone", bucket.where(key))
        return None


def leases(bucket: Bucket) -> dict[str, ObjectMeta]:
    """Every lease by its attempt id."""
    listed = {item.key.removeprefix(f"{STAGING}/"): item for item in bucket.list(STAGING)}
    return {file.removesuffix(LEASE): item for file, item in listed.items() if file.endswith(LEASE)}


def store_time(bucket: Bucket) -> datetime:
    """What time it is by the store's own clock."""
    key = _probe_key()
    bucket.put(key, b"now")
    try:
        return bucket.head(key).modified
    finally:
        bucket.delete(key)


def _probe_key() -> str:
    return f"{STAGING}/{secrets.token_hex(16)}{CLOCK}"
