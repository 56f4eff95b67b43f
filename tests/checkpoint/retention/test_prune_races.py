"""What others do meanwhile: a checkpoint that changes, a pin that comes, a process that prunes at the same time."""

import subprocess
import sys

import pytest
from tests.checkpoint.retention.retention_ground import fill
from tests.ground.stored.stored_files import data_file, steps

import model_checkpoint as mc
from model_checkpoint.engine.root.intents import open_intents
from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import LocalStore


class Raced(LocalStore):
    """A store on which something happens just before a checkpoint is discarded."""

    def meanwhile(self, name):
        raise NotImplementedError

    def discard(self, name):
        self.meanwhile(name)
        return super().discard(name)


def test_a_checkpoint_that_is_replaced_meanwhile_is_not_dropped(folder):
    class Replaced(Raced):
        def meanwhile(self, name):
            if name == "step-00000002":
                mc.save(folder, {"w": "new"}, step=2, overwrite=True)

    plan = mc.prune(Replaced(folder), keep=[mc.last(3)])

    assert plan.done == ("step-00000001", "step-00000003")
    assert mc.load(folder, step=2) == {"w": "new"}


def test_a_pin_set_meanwhile_is_respected(folder):
    class Pinned(Raced):
        def meanwhile(self, name):
            if name == "step-00000001":
                mc.pin(folder, step=3)

    assert mc.prune(Pinned(folder), keep=[mc.last(2)]).done == ("step-00000001", "step-00000002", "step-00000004")


def test_a_checkpoint_deleted_meanwhile_is_passed_over(folder):
    class Deleted(Raced):
        def meanwhile(self, name):
            if name == "step-00000002":
                mc.delete(folder, step=2)

    assert mc.prune(Deleted(folder), keep=[mc.last(3)]).done == ("step-00000001", "step-00000003")


def test_a_failure_midway_is_told_and_leaves_no_unfinished_plan(folder):
    class Failing(Raced):
        def meanwhile(self, name):
            if name == "step-00000003":
                raise StorageFailure("the medium is gone")

    with pytest.raises(StorageFailure, match=r"the medium is gone"):
        mc.prune(Failing(folder), keep=[mc.last(2)])
    assert steps(folder) == [3, 4, 5, 6]
    assert open_intents(LocalStore(folder)) == []


def test_readers_go_on_reading_what_is_dropped(folder):
    reader = LocalStore(folder).open("step-00000001", data_file(folder, 1).name)
    mc.prune(folder, keep=[mc.last(1)])
    buffer = bytearray(reader.size)
    reader.read_into(0, memoryview(buffer))
    reader.close()

    assert mc.undelete(folder, step=1).step == 1
    assert bytes(buffer) == data_file(folder, 1).read_bytes()


@pytest.mark.slow
def test_processes_that_prune_at_once_all_succeed(folder):
    code = "import sys, model_checkpoint as mc; mc.prune(sys.argv[1], keep=[mc.last(2), mc.every(3)])"
    fill(folder, range(7, 40))

    running = [subprocess.Popen([sys.executable, "-c", code, str(folder)]) for _ in range(4)]

    assert [one.wait() for one in running] == [0, 0, 0, 0]
    assert steps(folder) == [1, *range(3, 39, 3), 38, 39]
    assert open_intents(LocalStore(folder)) == []
