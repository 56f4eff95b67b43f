"""Places to delete from, each as one that may hang in any call and as a plain one, and a checkpoint to delete."""

import uuid

import numpy as np
from obstore.store import MemoryStore
from tests.distributed.api.own_parts import OwnStorage
from tests.distributed.api.test_left_behind import HangingDisk

from model_checkpoint.distributed import DistributedCheckpoint, LocalCoordinator, SaveOptions
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.memory import InMemoryStore

SHORT = 1.0  # seconds of patience, or of a call; what hangs would do so until it is told otherwise
STATES = {"w": np.ones(30)}, {"m": 1}


class HangingMemory(InMemoryStore):
    """A root in memory, of which the calls of a deletion may hang, before and behind."""

    def __init__(self, url, hang):
        super().__init__(url)
        self.hang = hang


def _hanging(name):
    def call(self, *args):
        self.hang.call()
        made = getattr(InMemoryStore, name)(self, *args)
        self.hang.call()
        return made

    return call


for _name in ("has", "plan_discard", "discard_planned", "settle_discard"):
    setattr(HangingMemory, _name, _hanging(_name))


class HangingKeys:
    """A storage of one's own, of which every call may hang, before it begins."""

    url = "hanging"

    def __init__(self, inner, hang):
        self._inner, self._hang = inner, hang

    def __getattr__(self, name):
        def call(*args):
            self._hang.call()
            return getattr(self._inner, name)(*args)

        return call


def through(hang):
    def make(request, call):
        hang.call()
        return call()

    return make


def local(folder, hang):
    root = folder / uuid.uuid4().hex
    return LocalStore(root, calls=HangingDisk(hang)), LocalStore(root)


def memory(folder, hang):
    url = f"memory://{uuid.uuid4().hex}"
    return HangingMemory(url, hang), InMemoryStore(url)


def keys(folder, hang):
    plain = OwnStorage()
    return KeyedStore(HangingKeys(plain, hang)), KeyedStore(plain)


def bucket(folder, hang):
    plain = ObjectStore(f"s3://bucket/{uuid.uuid4().hex}", store=MemoryStore())
    return plain.with_requests(lambda inner: through(hang)), plain


PLACES = [local, memory, keys, bucket]


def save(store, prefix="x"):
    DistributedCheckpoint(LocalCoordinator(), store).save(*STATES, SaveOptions(checkpoint_prefix=prefix))
