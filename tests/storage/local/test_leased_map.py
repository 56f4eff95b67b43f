"""Bytes looked at where they lie: nobody changes or cuts a file under a load, and nobody waits longer than needed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.storage import InMemoryStore
from model_checkpoint.storage.local.data_files.leased_map import LeasedMap
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import save_blobs

SIZE = 3 << 20
CUTTER = "import os, sys; print('begun', flush=True); os.truncate(sys.argv[1], 10); print('cut', flush=True)"


@pytest.fixture
def file(tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    return path


@pytest.fixture
def leased(file: Path):
    fd = os.open(file, os.O_RDONLY)
    found = LeasedMap(Syscalls(), fd, SIZE)
    yield found
    found.close()
    os.close(fd)


def cutter(file: Path) -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-c", CUTTER, str(file)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    return child


def wait_until_wanted(leased: LeasedMap) -> None:
    """Until the system says that somebody waits; the child has begun, so it comes to that by itself."""
    while not leased._is_wanted():
        os.sched_yield()


def test_who_cuts_a_file_waits_until_the_last_lent_piece_is_given_back(file, leased):
    first, second = leased.lend(0, 1000), leased.lend(5000, SIZE)
    child = cutter(file)
    wait_until_wanted(leased)

    assert leased.lend(0, 10) is None  # nothing new while somebody waits
    assert bytes(first) == (bytes(range(256)) * 4)[:1000]
    leased.give_back(0, 1000)
    assert len(second) == SIZE - 5000
    assert bytes(second[-3:]) == b"\xfd\xfe\xff"
    assert file.stat().st_size == SIZE
    leased.give_back(5000, SIZE)

    assert child.communicate(timeout=60)[0] == "cut\n"
    assert file.stat().st_size == 10
    assert leased.lend(0, 10) is None  # it does not begin again


def test_closing_ends_the_lease(file, leased):
    leased.lend(0, 10)
    leased.give_back(0, 10)
    child = cutter(file)
    leased.close()

    assert child.communicate(timeout=60)[0] == "cut\n"


def test_a_file_that_is_open_for_writing_is_not_lent(file, leased):
    with file.open("r+b"):
        assert leased.lend(0, 10) is None


def test_a_medium_that_cannot_be_read_lends_nothing(file):
    class Broken(Syscalls):
        def populate(self, area, start, length):
            raise OSError(5, "Input/output error")

    fd = os.open(file, os.O_RDONLY)
    found = LeasedMap(Broken(), fd, SIZE)
    assert found.lend(0, 10) is None
    found.close()
    file.write_bytes(b"anew")  # and nobody waits
    os.close(fd)


@pytest.mark.parametrize("call", ["lease", "map_shared", "lease_wanted", "end_lease", "forget_pages", "populate"])
def test_a_load_reads_where_a_lease_fails(tmp_path, call):
    class Failing(Syscalls):
        def __getattribute__(self, name):
            if name == call:
                asked.append(name)
                raise OSError(13, "Permission denied")
            return super().__getattribute__(name)

    asked: list[str] = []
    truth = np.arange(6 << 20, dtype=np.float32)
    mc.save(tmp_path, {"a": truth}, step=1)
    _warm(tmp_path)
    live = {"a": np.zeros_like(truth)}

    mc.load(LocalStore(str(tmp_path), calls=Failing()), into=live)

    assert asked
    assert np.array_equal(live["a"], truth)


def test_a_cached_checkpoint_is_loaded_from_where_it_lies_and_damage_is_still_found(tmp_path):
    class Counting(Syscalls):
        def preadv(self, fd, buffer, offset):
            read.append(len(buffer))
            return super().preadv(fd, buffer, offset)

    read: list[int] = []
    truth = np.arange(6 << 20, dtype=np.float32)
    info = mc.save(tmp_path, {"a": truth}, step=1)
    _warm(tmp_path)
    live = {"a": np.zeros_like(truth)}
    store = LocalStore(str(tmp_path), calls=Counting())

    mc.load(store, into=live)
    assert np.array_equal(live["a"], truth)
    assert sum(read) < 1 << 20  # the header and the manifest

    [data] = Path(info.path).glob("*.safetensors")
    with data.open("r+b") as file:
        file.seek(20 << 20)
        file.write(b"\xff\xff\xff")
    live = {"a": np.zeros_like(truth)}
    with pytest.raises(mc.CheckpointException, match="does not have the recorded digest"):
        mc.load(store, into=live)
    assert not live["a"][4 << 20 : 5 << 20].any()  # the damaged chunk reached nothing


def _warm(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            path.read_bytes()


def test_a_store_in_memory_lends_its_own_bytes():
    store = InMemoryStore("memory://lent")
    save_blobs(store, "step-1", {"x": b"0123456789"})
    reader = store.open("step-1", "x")

    with reader.lend(5, 8) as some, reader.lend(9, 12) as beyond:
        assert bytes(some) == b"567"
        assert beyond is None
