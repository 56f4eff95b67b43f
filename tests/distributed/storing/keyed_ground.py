"""Checkpoints made by hand in a storage of seven calls."""

from datetime import timedelta

from model_checkpoint.distributed.storing import keyed_attempt
from model_checkpoint.testing.blobs import seal_blob


def put(attempt, **files):
    """Files of an attempt, sealed."""
    for file, data in files.items():
        seal_blob(attempt, file, data)
    return attempt


def saved(store, name, attempt=None, manifest=b"manifest", **files):
    put(store.stage(name, attempt or f"attempt-{name}"), **files).publish(manifest)


def read(reader, start=0, stop=None):
    buffer = bytearray((reader.size if stop is None else stop) - start)
    reader.read_into(start, memoryview(buffer))
    return bytes(buffer)


def age(storage, path, seconds):
    data, written = storage.kept[path]
    storage.kept[path] = (data, written - timedelta(seconds=seconds))


def dead(store, attempt):
    """As in the next process."""
    keyed_attempt._living.discard((store.url, attempt))
