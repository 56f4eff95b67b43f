"""Whatever call fails or kills, a record that was promised arrives."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from model_checkpoint.errors import DiskFull, StorageFailure
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.crash import Ended, each_call
from model_checkpoint.testing.faults import KILLS, Fault, FaultyCalls, Kind
from model_checkpoint.tracking.spool import Spool


def numbers(spool):
    """What a replay hands on, in order."""
    seen = []
    spool.replay(lambda kind, payload: seen.append(payload["n"]))
    return seen


def scripted(folder, ledger):
    """Put three records, replay them into a ledger on disk that keeps each once."""

    def work(calls):
        spool = Spool(folder, calls=calls)
        for n in range(3):
            spool.put("k", {"n": n})
            with open(ledger + ".promised", "a") as file:
                file.write(f"{n}\n")
        spool.replay(lambda kind, payload: os.close(os.open(f"{ledger}-{payload['n']}", os.O_CREAT)))

    return work


FAULTS = [Fault(kind=kind, at=1) for kind in KILLS] + [
    Fault(kind=Kind.FAIL, at=1, code=errno.EIO),
    Fault(kind=Kind.FAIL, at=1, code=errno.ENOSPC),
    Fault(kind=Kind.LOSE_REPLY, at=1, code=errno.EIO),
    Fault(kind=Kind.SHORT_WRITE, at=1),
]


@pytest.mark.fault
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind.value}-{fault.code}")
def test_whatever_call_fails_or_kills_a_promised_record_arrives(tmp_path, fault):
    home, ledger = tmp_path / "spool", str(tmp_path / "kept")

    def prepare():
        for path in [*home.glob("*"), *tmp_path.glob("kept*")]:
            path.unlink()

    for at, outcome in each_call(scripted(home, ledger), fault, prepare=prepare):
        notes = Path(ledger + ".promised")
        promised = [int(n) for n in notes.read_text().split()] if notes.exists() else []
        rest = numbers(Spool(home))

        kept = [n for n in range(3) if os.path.exists(f"{ledger}-{n}")]
        assert set(promised) <= set(kept) | set(rest), (at, outcome)
        assert sorted(rest) == sorted(set(rest)), (at, outcome)
        assert not list(home.glob("*.damaged")), (at, outcome)
        if outcome.ended is Ended.RAISED:
            assert isinstance(outcome.error, StorageFailure), (at, outcome)


def test_a_record_refused_by_a_full_disk_is_told_as_that(tmp_path):
    calls = FaultyCalls()
    spool = Spool(tmp_path, calls=calls)
    spool.put("k", {"n": 1})

    calls.fault = Fault(kind=Kind.FAIL, at=len(calls.trace) + 1, code=errno.ENOSPC)
    with pytest.raises(DiskFull, match="could not keep a record in the spool, the disk is full"):
        spool.put("k", {"n": 2})
    spool.put("k", {"n": 3})

    assert numbers(spool) == [1, 3]


def test_a_replay_works_on_a_disk_without_a_free_block(tmp_path):
    class Full(Syscalls):
        def pwrite(self, fd, data, offset):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = Spool(tmp_path)
    for n in range(3):
        before.put("k", {"n": n})
    before.close()

    assert numbers(Spool(tmp_path, calls=Full())) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_file_taken_away_between_making_and_locking_it_is_made_again(tmp_path):
    class Swept(Syscalls):
        swept = 0

        def flock(self, fd, operation):
            if not self.swept and operation == fcntl.LOCK_EX:
                self.swept += 1
                assert numbers(Spool(tmp_path)) == []  # another process finds the empty file and removes it
            super().flock(fd, operation)

    calls = Swept()
    spool = Spool(tmp_path, calls=calls)
    spool.put("k", {"n": 1})

    assert calls.swept == 1
    assert numbers(spool) == [1]
