"""Nobody's record is lost or torn: by threads, by processes, by forks, by kills at any call, by a full disk."""

import errno
import os
import random
import signal
import threading
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.ground.crowds import in_children, in_threads

from model_checkpoint.errors import StorageFailure
from model_checkpoint.integrity import journal as journals
from model_checkpoint.integrity.journal import Journal
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.crash import Ended, each_call, run_here
from model_checkpoint.testing.faults import KILLS, Fault, Kind


class JournalsAgainstModel(RuleBasedStateMachine):
    """Two who use one file see what one dictionary would hold, torn ends and all."""

    keys = st.sampled_from("abcd")

    @initialize(spare=st.sampled_from([0, 3, 1000]))
    def start(self, spare):
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "records")
        self.spare, journals._SPARE_LINES = journals._SPARE_LINES, spare
        self.journals, self.model = [Journal(self.path), Journal(self.path)], {}

    @rule(who=st.integers(0, 1), changes=st.dictionaries(keys, st.none() | st.integers(), max_size=3))
    def write(self, who, changes):
        told = {key: None if value is None else {"n": value} for key, value in changes.items()}
        self.journals[who].write(told)
        for key, record in told.items():
            self.model.pop(key, None)
            if record is not None:
                self.model[key] = record

    @rule(torn=st.binary(max_size=30))
    def tear(self, torn):
        """Somebody was killed in the middle of a line."""
        if os.path.exists(self.path):
            with open(self.path, "ab") as file:
                file.write(torn.replace(b"\n", b"").replace(b"\r", b""))

    @rule()
    def start_anew(self):
        self.journals[0] = Journal(self.path)

    @invariant()
    def all_see_the_same(self):
        for journal in self.journals:
            assert list(journal.read().items()) == list(self.model.items())
            assert journal.damaged_lines == 0

    def teardown(self):
        journals._SPARE_LINES = self.spare
        self.folder.cleanup()


JournalsAgainstModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestJournalsAgainstModel = JournalsAgainstModel.TestCase


def test_eight_threads_and_eight_processes_lose_nothing(tmp_path, monkeypatch):
    """Half of them use an object made before the fork. Old lines are cleared out again and again meanwhile."""
    monkeypatch.setattr(journals, "_SPARE_LINES", 20)
    shared = Journal(tmp_path / "records")

    def process(number):
        mine = shared if number % 2 else Journal(tmp_path / "records")

        def thread(part):
            for n in range(8):
                mine.write({f"{number}-{part}-{n}": {"n": n}, "last": {"by": number}})

        in_threads(thread, range(8))

    assert in_children(8, process) == [0] * 8
    assert len(shared.read()) == 8 * 8 * 8 + 1
    assert shared.damaged_lines == 0


def test_a_fork_while_a_thread_holds_the_file_leaves_it_to_that_thread(tmp_path):
    """Or else the child would keep the lock of a file for as long as it lives."""
    journal, forked, inside = Journal(tmp_path / "records"), threading.Event(), threading.Event()

    def slowly(_):
        inside.set()
        forked.wait(10)
        return {"a": {}}

    holder = threading.Thread(target=journal.change, args=(slowly,))
    holder.start()
    inside.wait(10)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # lives on until the parent is through
        os._exit(0)
    os.close(reader)
    forked.set()
    holder.join()

    journal.write({"b": {}})  # would wait for the child for ever

    os.close(writer)
    os.waitpid(child, 0)
    assert list(journal.read()) == ["a", "b"]


@pytest.mark.fault
@pytest.mark.slow
def test_writers_killed_at_any_moment_lose_nothing_they_were_told_was_kept(tmp_path, monkeypatch):
    """Six processes write for as long as they live; each says what was acknowledged to it."""
    monkeypatch.setattr(journals, "_SPARE_LINES", 30)
    path, dice, told = tmp_path / "records", random.Random(7), []
    for generation in range(4):
        writers = []
        for number in range(6):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                journal = Journal(path)
                for n in range(10**9):
                    key = f"{generation}-{number}-{n}"
                    journal.write({key: {}, "shared": {"by": key}})
                    os.write(writer, key.encode() + b"\n")
            os.close(writer)
            writers.append((child, reader))
        for child, reader in writers:
            time.sleep(dice.uniform(0.01, 0.15))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            with os.fdopen(reader, "rb") as stream:
                told += stream.read().decode().split()

    journal = Journal(path)
    assert len(told) > 24
    assert set(told) - set(journal.read()) == set()
    assert journal.damaged_lines == 0


@pytest.mark.fault
@pytest.mark.parametrize("kind", KILLS)
@pytest.mark.parametrize("spare", [0, 1000], ids=["clearing out", "appending"])
def test_a_kill_at_any_call_loses_nothing_that_was_acknowledged(tmp_path, monkeypatch, kind, spare):
    path = tmp_path / "records"

    def prepare():
        for leaving in tmp_path.iterdir():
            leaving.unlink()
        for n in range(12):
            Journal(path).write({"old": {"n": n}, f"old-{n % 3}": {}})

    def work(calls):
        monkeypatch.setattr(journals, "_SPARE_LINES", spare)  # in the child alone
        Journal(path, calls=calls).write({"new": {}, "old": {"n": 70}})

    before = ["old-0", "old-1", "old", "old-2"]
    seen = 0
    for at, outcome in each_call(work, Fault(kind=kind, at=1), prepare=prepare):
        seen += 1
        found = Journal(path).read()
        assert sorted(found) in (sorted(before), sorted([*before, "new"])), at
        assert ("new" in found) == (found["old"]["n"] == 70), at  # all of a change or nothing
        Journal(path).write({"next": {}})
        assert {*found, "next"} == set(Journal(path).read()), at
        assert outcome.ended is Ended.KILLED
    assert seen >= (10 if spare else 14)


@pytest.mark.fault
@pytest.mark.parametrize("kind", [Kind.FAIL, Kind.LOSE_REPLY, Kind.SHORT_WRITE])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_at_any_call_is_typed_and_loses_nothing(tmp_path, kind, code):
    path = tmp_path / "records"

    def prepare():
        path.unlink(missing_ok=True)
        Journal(path).write({"old": {}})

    def work(calls):
        journal = Journal(path, calls=calls)
        try:
            journal.write({"new": {}})
        finally:
            calls.fault = None
            assert list(journal.read())[:1] == ["old"]
            journal.write({"later": {}})  # the same object goes on

    for at, outcome in each_call(work, Fault(kind=kind, at=1, code=code), prepare=prepare):
        found = set(Journal(path).read())
        assert found - {"new"} == {"old", "later"}, at
        assert "new" in found or not outcome.acknowledged, at


def test_the_first_record_of_a_file_survives_power_loss(tmp_path):
    outcome = run_here(lambda calls: Journal(tmp_path / "new" / "records", calls=calls).write({"a": {}}))

    names = [(call.name, os.path.basename(call.path)) for call in outcome.trace]
    assert names.index(("fsync", "records")) < names.index(("fsync_dir", "new"))
    assert ("fsync_dir", tmp_path.name) in names


def test_a_damaged_line_is_told_and_costs_no_other(tmp_path, caplog):
    path = tmp_path / "records"
    for key in "abc":
        Journal(path).write({key: {}})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"b", b"x") + lines[2])

    journal = Journal(path)

    assert list(journal.read()) == ["a", "c"]
    assert journal.damaged_lines == 1
    assert "is damaged; what it said is lost" in caplog.text


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "records").mkdir()

    with pytest.raises(StorageFailure, match="records: could not be written"):
        Journal(tmp_path / "records").write({"a": {}})
    with pytest.raises(StorageFailure, match="could not be written"):
        Journal(tmp_path / "no" / "such" / "records").write({"a": {}})


def test_old_lines_do_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "_SPARE_LINES", 10)
    journal = Journal(tmp_path / "records")

    for n in range(200):
        journal.write({"a": {"n": n}})

    assert len((tmp_path / "records").read_bytes().splitlines()) <= 13
    assert os.listdir(tmp_path) == ["records"]


def test_a_file_system_without_locks_is_named_and_used(tmp_path, caplog):
    class NoLocks(Syscalls):
        def flock(self, fd, operation):
            raise OSError(errno.ENOTSUP, "no locks")

    journal = Journal(tmp_path / "records", calls=NoLocks())
    journal.write({"a": {}})

    assert list(journal.read()) == ["a"]
    assert "has no locks; let only one process write there" in caplog.text


@pytest.mark.fault
def test_a_clearing_out_that_fails_costs_only_room(tmp_path, monkeypatch, caplog):
    class NoRename(Syscalls):
        def rename(self, source, target, *, out_of=None, into=None):
            raise OSError(errno.EIO, "no")

    monkeypatch.setattr(journals, "_SPARE_LINES", 0)
    journal = Journal(tmp_path / "records", calls=NoRename())
    for n in range(10):
        journal.write({"a": {"n": n}})

    assert journal.read() == {"a": {"n": 9}}
    assert "could not be cleared out, which only costs room" in caplog.text
