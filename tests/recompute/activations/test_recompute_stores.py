"""Where activations are kept: memory, files, another device."""

import os
import stat
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as hnp
from tests.ground.stored.equal_values import same
from tests.ground.stored.stored_files import flip

from model_checkpoint.errors import UnsupportedType
from model_checkpoint.recompute import (
    ActivationSlot,
    ActivationStore,
    DeviceStore,
    DiskStore,
    MemoryStore,
    SpillDamaged,
)


@pytest.fixture
def store(tmp_path):
    with DiskStore(tmp_path) as store:
        yield store


@pytest.mark.parametrize("make", [MemoryStore, DeviceStore, DiskStore])
def test_every_store_keeps_the_protocol(make):
    store = make()
    slot = store.put("a", torch.ones(3))

    assert isinstance(store, ActivationStore)
    assert isinstance(slot, ActivationSlot)
    assert torch.equal(slot.read(), torch.ones(3))
    slot.release()
    slot.release()
    with pytest.raises(LookupError, match="the activation was released"):
        slot.read()
    assert store.spilled_bytes == 0
    store.close()
    store.close()


@pytest.mark.parametrize(
    "activation",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(20, dtype=np.int64)[::3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3.5),
        np.float32(2.5),
        np.zeros((0, 4)),
        np.array([1 + 2j]),
        np.array(["ab", "c"]),
        np.array([1, 2], ">i4"),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.arange(4).astype(ml_dtypes.bfloat16),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        torch.arange(6.0).reshape(2, 3),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(4).to(torch.bfloat16),
        torch.arange(4.0).to(torch.float8_e4m3fn),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([True, False]),
        torch.tensor(3.0),
        torch.empty(0, 3),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        b"bytes",
        bytearray(b"more"),
        (torch.ones(2), [np.ones(3), None], {"k": b"x", "n": 7, "s": "text", "f": 1.5, "t": True}),
    ],
    ids=lambda a: f"{type(a).__name__}-{getattr(a, 'dtype', '')}-{getattr(a, 'shape', '')}",
)
def test_what_goes_to_disk_comes_back_equal(store, activation):
    slot = store.put("a", activation)

    first, second = slot.read(), slot.read()

    assert same(activation.resolve_conj() if isinstance(activation, torch.Tensor) else activation, first)
    assert same(first, second)


@given(hnp.arrays(hnp.scalar_dtypes() | hnp.byte_string_dtypes(min_len=1), hnp.array_shapes(min_dims=0, min_side=0)))
def test_any_array_comes_back_equal_from_disk(array):
    with DiskStore() as store:
        assert same(array, store.put("a", array).read())


def test_what_comes_back_from_disk_can_be_written_to(store):
    slot = store.put("a", np.zeros(3))

    slot.read()[:] = 1

    assert slot.read().sum() == 0


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (object(), "object"),
        (np.array([object()]), "ndarray of dtype object"),
        ({1, 2}, "set"),
        (torch.ones(2, 2).to_sparse(), "torch.sparse_coo"),
        ((b"x", {"deep": object()}), "object"),
        (np.ma.masked_array([1, 2]), "MaskedArray"),
    ],
    ids=["object", "object array", "set", "sparse", "nested", "subclass"],
)
def test_what_has_no_byte_form_is_refused_by_name_and_nothing_is_kept(store, activation, name):
    with pytest.raises(UnsupportedType, match=f"{name}.*(MemoryStore)"):
        store.put("a", activation)

    assert os.listdir(store.folder) == []
    assert store.spilled_bytes == 0


def test_a_tensor_on_an_autograd_graph_is_refused_with_the_cure(store):
    with pytest.raises(ValueError, match=r"hangs on an autograd graph.*Pass tensor.detach\(\)"):
        store.put("a", torch.ones(2, requires_grad=True) * 2)


def test_files_are_private(tmp_path):
    with DiskStore(tmp_path) as store:
        store.put("a", bytes(10))
        (file,) = store.folder.iterdir()

        assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert store.folder.parent == tmp_path


def test_layer_ids_never_become_paths(store):
    slot = store.put("../../escape", b"x")

    assert [path.parent for path in store.folder.iterdir()] == [store.folder]
    assert slot.read() == b"x"


DAMAGES = {
    "flipped bit": lambda path: flip(path, path.stat().st_size // 2),
    "cut": lambda path: os.truncate(path, 50),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "empty": lambda path: path.write_bytes(b""),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_an_error_that_names_it(store, damage):
    slot = store.put("a", np.arange(100.0))
    (file,) = store.folder.iterdir()

    damage(file)

    with pytest.raises(SpillDamaged, match=rf"{file.name}: the spill.*Compute the activation again") as caught:
        slot.read()
    assert caught.value.checkpoint_path == str(file)


def test_a_disk_that_is_full_is_an_error_and_leaves_no_file(tmp_path):
    """A file size limit stands in for the full disk; it needs a process of its own."""
    probe = f"""
import os, resource, signal
from model_checkpoint.errors import StorageFailure
from model_checkpoint.recompute import CheckpointManager, DiskStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = DiskStore({str(tmp_path)!r}, memory_bytes=150_000)
manager = CheckpointManager(store=store)
manager.register_checkpoint("first", bytes(100_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    manager.register_checkpoint("second", bytes(100_000))
except StorageFailure as error:
    print(error.errno, os.listdir(store.folder), store.spilled_bytes, manager.checkpoint_count)
print(len(manager.retrieve_or_recompute("first")))
"""
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=120)

    assert out.stdout.split("\n")[:2] == ["27 [] 0 1", "100000"]
