"""Stores that spill, move to a device, or are the user's own."""

import gc
import os
import resource
import subprocess
import sys
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tests.ground.crowds import in_child, in_threads

from model_checkpoint.errors import StorageFailure
from model_checkpoint.recompute import (
    CheckpointManager,
    ClosedError,
    DeviceStore,
    DiskStore,
)
from model_checkpoint.recompute.common.spill_files import SpillFolder


@pytest.fixture
def store(tmp_path):
    with DiskStore(tmp_path) as store:
        yield store


def test_up_to_a_limit_activations_stay_in_memory_as_the_same_object(tmp_path):
    with DiskStore(tmp_path, memory_bytes=100) as store:
        one, two = np.zeros(50, np.uint8), np.ones(50, np.uint8)
        first, second = store.put("a", one), store.put("b", two)

        assert first.read() is one
        assert second.read() is two
        assert store.spilled_bytes == 0


def test_a_lone_element_is_spilled_whatever_its_stride_says(store):
    lone = torch.arange(15.0).reshape(3, 5)[1:2, 2:3].t()

    assert store.put("a", lone).read().tolist() == [[7.0]]


def test_beyond_it_the_least_recently_used_is_spilled(tmp_path):
    with DiskStore(tmp_path, memory_bytes=100) as store:
        one, two, three = (np.full(50, value, np.uint8) for value in (1, 2, 3))
        first, second = store.put("a", one), store.put("b", two)
        first.read()

        third = store.put("c", three)

        assert first.read() is one
        assert third.read() is three
        assert second.read() is not two
        assert second.read().tolist() == two.tolist()
        assert store.spilled_bytes == 50


def test_one_larger_than_the_limit_goes_to_disk_and_all_others_with_it_stay_readable(tmp_path):
    with DiskStore(tmp_path, memory_bytes=100) as store:
        slots = [store.put(str(size), bytes(size)) for size in (40, 200, 60)]

        assert [len(slot.read()) for slot in slots] == [40, 200, 60]
        assert store.spilled_bytes == 240


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="memory_bytes is -1"):
        DiskStore(memory_bytes=-1)


def test_what_is_released_leaves_memory_and_disk(tmp_path):
    with DiskStore(tmp_path, memory_bytes=10) as store:
        in_memory, on_disk = store.put("a", np.ones(1)), store.put("b", np.ones(100))
        watch = weakref.ref(in_memory.read())

        in_memory.release()
        on_disk.release()
        gc.collect()

        assert watch() is None
        assert os.listdir(store.folder) == []
        assert store.spilled_bytes == 0


def test_closing_deletes_the_folder_and_ends_all_slots(tmp_path):
    store = DiskStore(tmp_path, memory_bytes=10)
    slots = [store.put("a", bytes(5)), store.put("b", bytes(50))]

    store.dispose()
    store.close()

    assert os.listdir(tmp_path) == []
    for slot in slots:
        with pytest.raises(LookupError, match="released"):
            slot.read()
        slot.release()
    with pytest.raises(ClosedError, match="disk store: it is closed"):
        store.put("c", b"x")
    assert store.spilled_bytes == 0


def test_a_forgotten_store_cleans_up_after_itself(tmp_path):
    store = DiskStore(tmp_path)
    store.put("a", bytes(10))

    del store
    gc.collect()

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("last_words", ["", "slot.release()", "store.close()"])
def test_the_end_of_the_process_deletes_the_files_but_that_of_a_child_does_not(last_words, tmp_path):
    probe = f"""
import os
from model_checkpoint.recompute import DiskStore
store = DiskStore({str(tmp_path)!r})
slot = store.put("a", b"abc")
child = os.fork()
if child == 0:
    {last_words}
    raise SystemExit(0)
os.waitpid(child, 0)
print(slot.read(), len(os.listdir(store.folder)))
"""
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=120)

    assert out.stdout.strip() == "b'abc' 1"
    assert os.listdir(tmp_path) == []


def test_threads_spill_and_read_without_losing_one(tmp_path):
    with DiskStore(tmp_path, memory_bytes=500) as store, CheckpointManager(store=store) as manager:

        def churn(thread):
            for index in range(60):
                layer = f"{thread}/{index}"
                manager.register_checkpoint(layer, np.full(100, thread, np.uint8))
                assert manager.retrieve_or_recompute(f"{thread}/{index // 2}").tolist() == [thread] * 100
                if index % 3 == 0:
                    manager.remove(layer)
                    manager.register_checkpoint(layer, np.full(100, thread, np.uint8))

        in_threads(churn, range(8))

        assert manager.checkpoint_count == 480
        assert store.spilled_bytes == 48000 - 500
        assert len(os.listdir(store.folder)) == 475


def test_the_device_store_gives_tensors_back_where_they_were():
    store = DeviceStore("cpu")
    tensor = torch.ones(3)

    slot = store.put("a", tensor)

    assert slot.read() is tensor
    assert store.spilled_bytes == 0


def test_the_device_store_moves_to_another_device_and_counts_what_it_moved():
    """The meta device stands in for a second one: it has no data, but moving there is real."""
    store = DeviceStore("meta")

    slot = store.put("a", torch.ones(3))

    assert store.spilled_bytes == 12
    slot.release()
    slot.release()
    assert store.spilled_bytes == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_device_store_keeps_gpu_tensors_on_the_host():
    with DeviceStore("cpu") as store:
        tensor = torch.arange(1000.0, device="cuda")
        slot = store.put("a", tensor)

        assert store.spilled_bytes == 4000
        assert slot.read().device == tensor.device
        assert torch.equal(slot.read(), tensor)


def test_the_device_store_takes_torch_tensors_only():
    with pytest.raises(ValueError, match="is a ndarray, expected a torch tensor"):
        DeviceStore().put("a", np.ones(3))


def test_a_closed_device_store_takes_no_more():
    with DeviceStore() as store:
        pass

    with pytest.raises(ClosedError, match="device store: it is closed"):
        store.put("a", torch.ones(1))


def test_a_store_of_ones_own_keeps_the_activations_of_a_manager():
    class Slot:
        def __init__(self, kept, layer):
            self.kept, self.layer = kept, layer

        def read(self):
            return self.kept[self.layer]

        def release(self):
            self.kept.pop(self.layer, None)

    class Shelf:
        borrows, spilled_bytes = True, 0

        def __init__(self):
            self.kept = {}

        def put(self, layer_id, activation):
            self.kept[layer_id] = activation
            return Slot(self.kept, layer_id)

        def close(self):
            self.kept.clear()

    shelf = Shelf()
    manager = CheckpointManager(store=shelf)

    manager.register_checkpoint("a", b"x")

    assert shelf.kept == {"a": b"x"}
    assert manager.retrieve_or_recompute("a") == b"x"
    manager.clear_checkpoints()
    assert shelf.kept == {}


def test_a_folder_that_cannot_be_read_is_a_storage_failure(store):
    slot = store.put("a", bytes(10))
    (file,) = store.folder.iterdir()
    file.unlink()
    file.mkdir()

    with pytest.raises(StorageFailure, match="could not be read"):
        slot.read()
    file.rmdir()
    file.write_bytes(b"")


@contextmanager
def files_of_at_most(size):
    """No file of this process can grow beyond ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [70, 5000], ids=["another must go", "both must go"])
def test_what_cannot_be_written_stays_in_memory_and_only_the_new_one_is_refused(size, tmp_path):
    with DiskStore(tmp_path, memory_bytes=100) as store:
        old = bytes(60)
        kept = store.put("a", old)

        with files_of_at_most(10), pytest.raises(StorageFailure, match=r"bytes cannot be written: .*File too large"):
            store.put("b", bytes(size))

        assert (store.spilled_bytes, os.listdir(store.folder)) == (0, [])
        assert kept.read() is old
        assert store.put("c", bytes(60)).read() == bytes(60)
        assert store.spilled_bytes == 60
        assert kept.read() == old


def test_files_on_disk_take_no_descriptors(store):
    before = len(os.listdir("/proc/self/fd"))

    slots = [store.put(str(number), bytes(10)) for number in range(40)]

    assert len(os.listdir("/proc/self/fd")) - before < 20
    assert all(slot.read() == bytes(10) for slot in slots)


def test_a_forked_child_cannot_write_into_its_parents_files(tmp_path):
    file = SpillFolder(tmp_path).new_file("layer")
    extent = file.reserve(3)

    def work():
        with pytest.raises(StorageFailure, match="belongs to process"):
            file.write(extent, memoryview(b"abc"))

    assert in_child(work) == 0
    assert file.path.read_bytes() == b""
