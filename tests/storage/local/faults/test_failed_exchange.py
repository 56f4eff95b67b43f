"""An exchange of folders that reports a failure: what is in place decides whether the new version is saved."""

import errno
import os

import pytest

from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import load_blobs, save_blobs

OLD, NEW = {"x": b"old"}, {"x": b"new"}  # names that both versions have, so that folders change places


class FailingExchange(Syscalls):
    """Says that folders could not change places, once they have or before."""

    def __init__(self, *, made):
        super().__init__()
        self._made = made

    def exchange(self, one, other):
        if self._made or "/swap-" in one:  # only two that are made to find out whether it can be done
            super().exchange(one, other)
        if "/swap-" not in one:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.fault
def test_a_checkpoint_that_could_not_change_places_stays_and_the_save_fails(tmp_path):
    save_blobs(LocalStore(tmp_path), "step-1", OLD, attempt="a1")

    with pytest.raises(StorageFailure, match="could not change places with the new version"):
        save_blobs(LocalStore(tmp_path, calls=FailingExchange(made=False)), "step-1", NEW, attempt="a2", replace=True)

    assert load_blobs(LocalStore(tmp_path), "step-1") == OLD


@pytest.mark.fault
def test_an_exchange_that_was_made_although_it_failed_is_a_save(tmp_path):
    save_blobs(LocalStore(tmp_path), "step-1", OLD, attempt="a1")

    save_blobs(LocalStore(tmp_path, calls=FailingExchange(made=True)), "step-1", NEW, attempt="a2", replace=True)

    assert load_blobs(LocalStore(tmp_path), "step-1") == NEW
