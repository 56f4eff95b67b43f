"""Sidecar objects: small values of a root, one object each below ``.sidecars``."""

from __future__ import annotations

from collections.abc import Iterator

from model_checkpoint.errors import CheckpointException, LimitExceeded
from model_checkpoint.storage.contract.names import check_name, is_name
from model_checkpoint.storage.contract.sidecars import SIDECAR_BYTES, SidecarRead
from model_checkpoint.storage.objects.requests.bucket import Bucket, ObjectMeta
from model_checkpoint.storage.objects.requests.failures import KeyMissing
from model_checkpoint.storage.objects.requests.keys import SIDECARS
from model_checkpoint.storage.objects.requests.parallel import map_in_order


def read_all(bucket: Bucket, word: str) -> Iterator[SidecarRead]:
    """Every key that has ``word`` in it, with its bytes, or its error: many requests at a time."""

    def key_of(item: ObjectMeta) -> str:
        return item.key.removeprefix(f"{SIDECARS}/")

    def read(item: ObjectMeta) -> SidecarRead | None:
        key = key_of(item)
        try:
            if item.size > SIDECAR_BYTES:
                where = bucket.where(item.key)
                raise LimitExceeded(f"{where}: has {item.size} bytes, the limit is {SIDECAR_BYTES}. Remove it.", where)
            return key, bucket.get(item.key).data
        except KeyMissing:
            return None  # removed since it was listed
        except CheckpointException as error:
            return key, error

    found = [item for item in bucket.list(SIDECARS) if is_name(key_of(item)) and word in key_of(item)]
    yield from (one for one in map_in_order(read, sorted(found, key=lambda item: item.key)) if one is not None)


def write(bucket: Bucket, key: str, data: bytes) -> None:
    """Keep ``data`` under ``key``."""
    bucket.put(f"{SIDECARS}/{check_name(key, bucket.address.url)}", data)


def remove(bucket: Bucket, key: str) -> None:
    """Forget ``key``."""
    bucket.delete(f"{SIDECARS}/{check_name(key, bucket.address.url)}")
