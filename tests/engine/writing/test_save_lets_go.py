"""A save that failed, however late, holds nothing: neither its lock nor a descriptor."""

import errno
import os

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import DurabilityUnknown, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing import Fault, FaultyCalls, Kind

STATE = {"frozen": np.arange(3000, dtype=np.float32), "epoch": 1}


def open_files():
    return len(os.listdir("/proc/self/fd"))


def last_call(root, name, **options):
    """The number of the last call of that name in a save which goes well."""
    calls = FaultyCalls()
    mc.save(LocalStore(root, calls=calls), STATE, **options)
    return max(call.index for call in calls.trace if call.name == name)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_save_whose_last_flush_failed_lets_go_of_its_lock(tmp_path, overwrite):
    options = {"step": 1, "overwrite": overwrite}
    for root in ("rehearsal", "root"):
        mc.save(tmp_path / root, STATE, step=1 if overwrite else 0)
    flush = "fsync" if overwrite else "fsync_dir"
    at = last_call(tmp_path / "rehearsal", flush, **options)
    store, before = LocalStore(tmp_path / "root"), open_files()
    faulty = LocalStore(tmp_path / "root", calls=FaultyCalls(Fault(kind=Kind.FAIL, at=at, code=errno.EIO)))

    with pytest.raises(DurabilityUnknown, match=r"may not survive a power loss"):
        mc.save(faulty, STATE, **options)

    assert open_files() == before
    assert store.sweep(Graces(local=0.0)).alive == []
    assert mc.load(tmp_path / "root", step=1)["epoch"] == 1


class FailsOnceLinked(Syscalls):
    """A medium that can no longer list the attempts once a file was linked."""

    linked = False

    def link(self, source, target, *, into):
        super().link(source, target, into=into)
        self.linked = True

    def listdir(self, path):
        if self.linked and path.endswith(".staging"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().listdir(path)


def test_an_incremental_save_that_cannot_look_for_others_lets_go_of_its_lock(tmp_path):
    root = tmp_path / "root"
    for step in (1, 2):
        mc.save(root, STATE, step=step, incremental=True)
    before = open_files()

    with pytest.raises(StorageFailure, match=r"could not note what will be replaced"):
        mc.save(LocalStore(root, calls=FailsOnceLinked()), STATE, step=2, overwrite=True, incremental=True)

    assert open_files() == before
    assert list((root / ".staging").iterdir()) == []
