"""A deletion that fails says why: the storage could not, or other ranks have given it up."""

import errno
import os

import pytest
from tests.distributed.api.own_parts import OwnStorage
from tests.distributed.threads import on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import DistributedCheckpoint, LocalCoordinator, RankLost
from model_checkpoint.distributed.storing.keyed_attempt import GIVEN_UP
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls, WrappedCalls


class Broken(WrappedCalls):
    """A disk that moves nothing."""

    def rename(self, *arguments, **options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Late(OwnStorage):
    """A storage in which other ranks are always quicker to give a deletion up."""

    def create(self, path, data):
        if path.startswith(".verdicts/"):
            super().create(path, GIVEN_UP)
        return super().create(path, data)


def test_a_failure_of_the_storage_is_told_as_what_it_is(tmp_path):
    mc.save(tmp_path, {"model": 1}, name="x")
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=Broken(Syscalls())))

    with pytest.raises(StorageFailure, match=r"x: could not be moved to the trash \(Input/output error\)") as failed:
        checkpoint.delete_checkpoint("x")

    assert type(failed.value) is StorageFailure
    assert [info.prefix for info in mc.list_checkpoints(tmp_path)] == ["x"]


def test_a_deletion_that_others_have_given_up_is_told_as_they_tell_it():
    store = KeyedStore(Late())
    mc.save(store, {"model": 1}, name="x")

    error = told(on_ranks(2, lambda ranks: DistributedCheckpoint(ranks, store).delete_checkpoint("x")))

    assert isinstance(error, RankLost)
    assert error.ranks == (0,)
    assert "the other ranks have given this deletion up" in str(error)
    assert [info.prefix for info in mc.list_checkpoints(store)] == ["x"]
