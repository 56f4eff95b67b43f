"""Each backend passes the suite that authors of backends inherit, and what only one of them promises."""

import copy
import json
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model_checkpoint.checkpoint.storage import (
    BackendInvalid,
    BaseStorageBackend,
    NativeBackend,
    SafeTensorsBackend,
    StorageBackend,
    TorchBackend,
    UnknownBackend,
    find_backend,
    register_backend,
)
from model_checkpoint.checkpoint.storage.backend_io import deposit, withdraw
from model_checkpoint.errors import ManifestInvalid, UnsupportedType
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing.backend_suite import BackendSuite


class TestTorchFiles(BackendSuite):
    def make_backend(self):
        return TorchBackend

    def make_state(self):
        numbers = {"array": np.arange(3, dtype=np.int16), "number": np.float32(0.5)}
        return {
            "weight": torch.arange(6.0).reshape(2, 3),
            "half": torch.ones(2, dtype=torch.bfloat16).float(),
            **numbers,
        }


class TestSafeTensorsFiles(BackendSuite):
    def make_backend(self):
        return SafeTensorsBackend


class TestTheEngineItself(BackendSuite):
    def make_backend(self):
        return NativeBackend


class FolderBackend(BaseStorageBackend):
    """Writes a folder with folders in it, an empty file and one that is called like ours."""

    def save(self, data, path):
        for name, value in data.items():
            folder = Path(path) / "parts" / name
            folder.mkdir(parents=True)
            (folder / "manifest.json").write_text(json.dumps(value))
        (Path(path) / ".done").touch()
        (Path(path).parent / "manifest.json").write_text("mine")

    def load(self, path):
        assert (Path(path) / ".done").exists()
        assert (Path(path).parent / "manifest.json").read_text() == "mine"
        return {one.name: json.loads((one / "manifest.json").read_text()) for one in (Path(path) / "parts").iterdir()}


class TestAFolderOfFiles(BackendSuite):
    def make_backend(self):
        return FolderBackend()

    def make_state(self):
        return {"epoch": 3, "names": ["a", "b"]}


class Duck:
    """Not derived from anything of ours."""

    def save_checkpoint(self, data, path):
        Path(path).write_bytes(pickle.dumps(data))
        return {"file_size": 1}

    def load_checkpoint(self, path, device=None):
        return pickle.loads(Path(path).read_bytes())


class TestADuck(BackendSuite):
    def make_backend(self):
        return Duck


# --- one class, two names, found in four ways ------------------------------------------------------------------------


def test_the_contract_is_one_class_under_all_its_names():
    from model_checkpoint.backend import BaseStorageBackend as contract
    from model_checkpoint.storage.base_backend import BaseStorageBackend as by_path
    from model_checkpoint.storage.base_backend import StorageBackend as by_path_too

    assert {contract, by_path, by_path_too, StorageBackend} == {BaseStorageBackend}


def test_a_backend_is_found_by_name_class_instance_and_entry_point(tmp_path, monkeypatch):
    installed = tmp_path / "somebodys_backend-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-backend\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[model_checkpoint.backends]\ninstalled = somebodys_backend:Sound\n")
    (tmp_path / "somebodys_backend.py").write_text(
        "from model_checkpoint.checkpoint.storage import SafeTensorsBackend\n\n\nclass Sound(SafeTensorsBackend): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    instance = TorchBackend()
    register_backend("by-name", Duck)

    assert isinstance(find_backend("pytorch"), TorchBackend)
    assert isinstance(find_backend("torch"), TorchBackend)
    assert isinstance(find_backend("safetensors"), SafeTensorsBackend)
    assert isinstance(find_backend(), NativeBackend)
    assert isinstance(find_backend(SafeTensorsBackend), SafeTensorsBackend)
    assert find_backend(instance) is instance
    assert type(find_backend("installed")).__module__ == "somebodys_backend"
    assert isinstance(find_backend("by-name"), Duck)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UnknownBackend, match=r"'tape'; there are .*native, pytorch, safetensors"):
        find_backend("tape")
    with pytest.raises(ValueError, match="tape"):
        find_backend("tape")


class OnlySaves(BaseStorageBackend):
    def save(self, data, path):
        Path(path).write_bytes(b"1")


class NeedsAnArgument(Duck):
    def __init__(self, where):
        self.where = where


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        (OnlySaves, "OnlySaves: defines neither load_checkpoint nor load"),
        (BaseStorageBackend, "defines neither save_checkpoint nor save"),
        (object(), "object: defines neither save_checkpoint"),
        (NeedsAnArgument, "could not be made without arguments .*Give an instance"),
    ],
)
def test_what_could_not_bring_a_checkpoint_back_is_refused_before_it_saves_one(backend, why):
    with pytest.raises(BackendInvalid, match=why):
        find_backend(backend)


def test_either_pair_of_names_is_answered_by_both(tmp_path):
    class Saves(BaseStorageBackend):
        def save(self, data, path):
            Path(path).write_text(data)

        def load(self, path):
            return Path(path).read_text()

    class SavesCheckpoints(BaseStorageBackend):
        def save_checkpoint(self, data, path):
            Path(path).write_text(data)

        def load_checkpoint(self, path, device=None):
            return f"{Path(path).read_text()} on {device}"

    Saves().save_checkpoint("a", f"{tmp_path}/a")
    SavesCheckpoints().save("b", f"{tmp_path}/b")

    assert Saves().load_checkpoint(f"{tmp_path}/a") == "a"
    assert SavesCheckpoints().load(f"{tmp_path}/b", "cpu") == "b on cpu"
    with pytest.raises(BackendInvalid, match="takes no device"):
        Saves().load_checkpoint("x", "cuda:0")


def test_the_device_reaches_a_backend_that_takes_one(tmp_path):
    class OnDevice(Duck):
        def load_checkpoint(self, path, device=None):
            return {"device": device}

    store = LocalStore(f"{tmp_path}")
    info = deposit(OnDevice(), store, {"a": 1}, step=1)

    assert withdraw(store, info.prefix, own=OnDevice(), device="meta") == {"device": "meta"}


def test_a_backend_that_gives_something_else_than_it_was_given_is_told_so(tmp_path):
    class Forgetful(Duck):
        def load_checkpoint(self, path):
            return 7

    store = LocalStore(f"{tmp_path}")
    info = deposit(Forgetful(), store, {"a": 1}, step=1)

    with pytest.raises(BackendInvalid, match="Forgetful gave back a int"):
        withdraw(store, info.prefix, own=Forgetful())


# --- what only one of them promises ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"model": {"hook": print}}, "model.hook: a builtin_function_or_method cannot"),
        ({"model": torch.nn.Linear(1, 1)}, r"model: a Linear cannot .*Save its state_dict\(\)"),
        ([np.array([None])], "0: a NumPy array of object cannot"),
        ({Path("x"): 1}, "PosixPath cannot"),
        ({"a": np.zeros(1, ml_dtypes.bfloat16)}, "NumPy array of bfloat16"),
    ],
)
def test_what_the_safe_loader_of_torch_would_refuse_is_never_written(tmp_path, state, why):
    with pytest.raises(UnsupportedType, match=why):
        TorchBackend().save_checkpoint(state, f"{tmp_path}/x.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_pt_file_is_what_torch_itself_loads_safely(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    store = LocalStore(f"{tmp_path}")

    info = deposit(TorchBackend(), store, {"model": model, "optimizer": optimizer, "epoch": 3}, step=1)

    found = torch.load(f"{store.place(info.prefix)}/checkpoint.pt", weights_only=True)
    assert sorted(found) == ["epoch", "model_state_dict", "optimizer_state_dict"]
    assert torch.equal(found["model_state_dict"]["weight"], model.weight)
    assert found["optimizer_state_dict"]["state"][0]["step"] == 1


def test_a_pt_file_written_to_run_code_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path(f"{tmp_path}/ran").touch, ())

    torch.save({"model": Evil()}, f"{tmp_path}/evil.pt")

    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        TorchBackend().load_checkpoint(f"{tmp_path}/evil.pt")
    assert not (tmp_path / "ran").exists()


def test_a_safetensors_file_is_what_the_safetensors_package_opens(tmp_path):
    tied = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    state = {"model": {"a": tied, "b": tied}, "plain": {"x": (1, None, b"bytes", float("inf"))}, 3: np.zeros((0, 4))}
    path = f"{tmp_path}/state.safetensors"
    SafeTensorsBackend().save_checkpoint(copy.deepcopy(state), path)

    back = SafeTensorsBackend().load_checkpoint(path)

    assert torch.equal(load_file(path)["model.a"], tied)
    assert torch.equal(back["model"]["b"], tied)
    assert back["model"]["a"].data_ptr() == back["model"]["b"].data_ptr()
    assert back["plain"] == state["plain"]
    assert back[3].shape == (0, 4)


def test_a_safetensors_file_of_others_says_what_it_lacks(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, f"{tmp_path}/theirs.safetensors")

    with pytest.raises(ManifestInvalid, match="not one of this backend"):
        SafeTensorsBackend().load_checkpoint(f"{tmp_path}/theirs.safetensors")
