"""Files of a backend are a checkpoint like any other: digested once, committed, checked before they are read."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.checkpoint.storage import BaseStorageBackend, TorchBackend
from model_checkpoint.checkpoint.storage.backend_io import deposit_plain, withdraw
from model_checkpoint.engine.reading.export import export_file
from model_checkpoint.engine.reading.opaque_load import load_opaque, written_by
from model_checkpoint.engine.root import recover
from model_checkpoint.engine.writing import opaque_save
from model_checkpoint.engine.writing.opaque_save import save_opaque
from model_checkpoint.errors import (
    ChunkMismatch,
    ManifestInvalid,
    NothingWritten,
    StepExists,
    StorageFailure,
    UnsafeName,
    WrittenByBackend,
)
from model_checkpoint.manifest import decode, encode, pack
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.locate import open_store
from model_checkpoint.testing import Ended, Fault, Kind, each_call, flushes_retried
from model_checkpoint.testing.blobs import AT_ONCE

BIG = np.random.default_rng(0).bytes(9 << 20)  # three chunks


class Bytes(BaseStorageBackend):
    def save(self, data, path):
        for number, each in enumerate(data["files"]):
            Path(f"{path}.{number}").write_bytes(each)

    def load(self, path):
        found = sorted(Path(path).parent.glob(f"{Path(path).name}.*"), key=lambda one: int(one.suffix[1:]))
        return {"files": [one.read_bytes() for one in found]}


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def root(request, tmp_path):
    if request.param == "s3":
        for key, value in request.getfixturevalue("moto").environment().items():
            request.getfixturevalue("monkeypatch").setenv(key, value)
        return f"s3://bucket/opaque/{tmp_path.name}"
    return f"{tmp_path}/root" if request.param == "local" else f"memory://{tmp_path.name}"


def test_files_of_any_size_come_back_from_every_kind_of_store(root):
    state = {"files": [b"", b"1", BIG, b"0" * 4097]}
    info = deposit_plain(Bytes(), _store(root), state, step=3, metrics={"loss": 1.0})

    assert withdraw(_store(root), info.prefix, own=Bytes()) == state
    assert [one.size_bytes for one in mc.list_checkpoints(root)] == [sum(map(len, state["files"]))]
    assert all(health.ok for health in mc.verify(root))


def _store(root):
    from model_checkpoint.storage.locate import open_store

    return open_store(root)


def test_each_byte_is_hashed_once(tmp_path, monkeypatch):
    hashed = []

    def counting(chunks, rooms=None):
        hashed.extend(len(chunk) for chunk in chunks)
        return real(chunks, rooms)

    real = opaque_save.digest_chunks
    monkeypatch.setattr(opaque_save, "digest_chunks", counting)

    deposit_plain(Bytes(), LocalStore(f"{tmp_path}"), {"files": [BIG, b"abc"]}, step=1)

    assert sum(hashed) == len(BIG) + 3


def test_a_backend_that_writes_no_byte_is_an_error_that_commits_nothing(tmp_path):
    class Idle(Bytes):
        def save(self, data, path):
            return None

    for backend, files, why in ((Idle(), [], "Idle wrote nothing"), (Bytes(), [b"", b""], "only empty files")):
        with pytest.raises(NothingWritten, match=why):
            deposit_plain(backend, LocalStore(f"{tmp_path}/r"), {"files": files}, step=1)
    assert mc.list_checkpoints(f"{tmp_path}/r") == []
    assert os.listdir(f"{tmp_path}/r/.staging") == []


def test_a_name_that_is_taken_is_refused_before_the_backend_is_called(tmp_path):
    called = []
    store = LocalStore(f"{tmp_path}")
    deposit_plain(Bytes(), store, {"files": [b"1"]}, step=1)

    with pytest.raises(StepExists, match="exists"):
        save_opaque(store, called.append, backend="x", step=1)
    assert called == []


def test_a_link_that_a_backend_made_is_refused(tmp_path):
    def write(path):
        Path(path).symlink_to("/etc/passwd")

    with pytest.raises(UnsafeName, match="neither a file nor a folder"):
        save_opaque(f"{tmp_path}", write, backend="x", step=1)


def test_the_engine_says_who_can_read_what_it_did_not_write(tmp_path):
    save_opaque(f"{tmp_path}", lambda path: Path(path).write_bytes(b"1"), backend="mine", file="a.bin", step=1)

    asked = {
        "load": lambda root: mc.load(root),
        "diff": lambda root: mc.diff(root, root),
        "slice": lambda root: mc.load_slice(root, "a", 0),
        "export": lambda root: export_file(root, tmp_path / "out.safetensors"),
    }
    for ask in asked.values():
        with pytest.raises(WrittenByBackend, match=r"written by the storage backend 'mine'.*a\.bin"):
            ask(f"{tmp_path}")


def test_a_description_tells_which_backend_wrote_which_files(root):
    big = {"files": [b"one", b"", BIG]}
    info = deposit_plain(Bytes(), open_store(root), big, step=1, metrics={"loss": 0.5})

    told = mc.describe(root)

    assert (told.info.id, told.info.metrics, told.backend) == (info.id, {"loss": 0.5}, "Bytes")
    assert [(one.path, one.nbytes) for one in told.files] == [("checkpoint.0", 3), ("checkpoint.2", len(BIG))]
    assert (told.parts, told.tensors, told.lacking) == ((), (), ())


def test_an_incremental_save_does_not_build_on_files_of_a_backend(tmp_path):
    state = {"w": np.arange(1000)}
    mc.save(f"{tmp_path}", state, step=1, incremental=True)
    save_opaque(f"{tmp_path}", lambda path: Path(path).write_bytes(b"1"), backend="mine", step=2)

    mc.save(f"{tmp_path}", state, step=3, incremental=True)

    assert mc.list_checkpoints(f"{tmp_path}")[0].shared_with == ("step-00000001",)


def test_a_fallback_of_the_engine_and_its_listing_stand_beside_files_of_a_backend(tmp_path):
    mc.save(f"{tmp_path}", {"epoch": 1}, step=1)
    save_opaque(f"{tmp_path}", lambda path: Path(path).write_bytes(b"1"), backend="mine", step=2)

    assert [one.step for one in mc.list_checkpoints(f"{tmp_path}")] == [2, 1]
    assert mc.load(f"{tmp_path}", step=1) == {"epoch": 1}
    assert written_by(_store(tmp_path), "step-00000001") is None
    assert written_by(_store(tmp_path), "step-00000002").backend == "mine"


def test_damage_in_any_chunk_is_told_and_never_read(tmp_path):
    store, seen = LocalStore(f"{tmp_path}"), []
    info = save_opaque(store, lambda path: Path(path).write_bytes(BIG), backend="mine", file="a.bin", step=1)
    path = Path(store.place(info.prefix)) / "a.bin"
    for chunk, at in ((0, 0), (1, 5 << 20), (2, len(BIG) - 1)):
        path.write_bytes(BIG[:at] + bytes([BIG[at] ^ 1]) + BIG[at + 1 :])

        with pytest.raises(ChunkMismatch, match=rf"a\.bin: chunk {chunk} "):
            load_opaque(store, info.prefix, seen.append)
        assert [(one.file, one.chunk) for one in mc.verify(store)[0].damage] == [("a.bin", chunk)]
    assert seen == []


@pytest.mark.parametrize(
    "inside",
    [
        {"backend": "x", "file": "../a", "paths": {"a.bin": "a.bin"}, "empty": []},
        {"backend": "x", "file": "a", "paths": {"a.bin": "/etc/x"}, "empty": []},
        {"backend": "x", "file": "a", "paths": {"a.bin": "a.bin"}, "empty": ["b/../../x"]},
        {"backend": "x", "file": "a", "paths": {}, "empty": []},
        {"backend": 3, "file": "a", "paths": {"a.bin": "a.bin"}, "empty": []},
        [1, 2],
    ],
)
def test_a_forged_manifest_makes_no_file_outside(tmp_path, inside):
    import msgspec

    store = LocalStore(f"{tmp_path}")
    info = save_opaque(store, lambda path: Path(path).write_bytes(b"1"), backend="mine", file="a.bin", step=1)
    manifest = Path(store.place(info.prefix)) / "manifest.json"
    forged = msgspec.structs.replace(decode(manifest.read_bytes(), "x"), tree=pack(inside))
    manifest.write_bytes(encode(forged))

    with pytest.raises(ManifestInvalid, match="damaged or hostile"):
        load_opaque(store, info.prefix, lambda path: None)


def attempt(folder):
    def work(calls):
        recover._done.clear()
        store = LocalStore(f"{folder}", calls=calls)
        return deposit_plain(Bytes(), store, {"files": [b"x" * 5000, b"y"]}, step=2).prefix

    return work


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=Kind.KILL_BEFORE, at=0),
        Fault(kind=Kind.FAIL, at=0, code=errno.EIO),
        Fault(kind=Kind.FAIL, at=0, code=errno.ENOSPC, lasting=True),
        Fault(kind=Kind.LOSE_REPLY, at=0, code=errno.EIO),
    ],
    ids=lambda fault: f"{fault.kind.value}-{fault.code}",
)
@pytest.mark.slow
def test_no_fault_at_any_call_loses_or_shows_half_of_a_checkpoint(tmp_path, fault):
    folder = tmp_path / "root"

    def prepare():
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        mc.save(f"{folder}", {"epoch": 1}, step=1)

    calls = 0
    for _, outcome in each_call(attempt(folder), fault, prepare=prepare):
        calls += 1
        there = [one.step for one in mc.list_checkpoints(f"{folder}")]
        assert 1 in there
        assert flushes_retried(outcome.trace) == []
        if outcome.acknowledged:
            assert there == [2, 1]
        if outcome.ended is Ended.RAISED:
            assert isinstance(outcome.error, StorageFailure), outcome.error
        if 2 in there:
            found = withdraw(LocalStore(f"{folder}"), "step-00000002", own=Bytes())
            assert found == {"files": [b"x" * 5000, b"y"]}
        mc.collect_garbage(f"{folder}", graces=AT_ONCE)
        assert [one.step for one in mc.list_checkpoints(f"{folder}")] == there
        assert os.listdir(f"{folder}/.staging") == []
    assert calls > 15


def test_no_torch_is_needed_to_make_the_torch_backend():
    import subprocess
    import sys

    code = "import sys, model_checkpoint.checkpoint.storage as s; s.TorchBackend(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert TorchBackend().get_file_extension() == ".pt"
