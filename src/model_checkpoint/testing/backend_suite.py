"""Backend suite: what every storage backend must do, as tests to inherit.

    class TestMyBackend(BackendSuite):
        def make_backend(self):
            return MyBackend()

Needs pytest. ``make_state`` may be replaced, for a backend that takes only some kinds of states.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_checkpoint.backend import loader_of, saver_of
from model_checkpoint.checkpoint.storage.backend_io import deposit, withdraw
from model_checkpoint.checkpoint.storage.backend_registry import extension_of, find_backend, name_of
from model_checkpoint.engine.reading.verify import verify
from model_checkpoint.engine.root.delete import delete, undelete
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.errors import CheckpointException, CorruptedCheckpoint
from model_checkpoint.storage.local.store import LocalStore


class BackendSuite:
    """The contract of :class:`model_checkpoint.backend.BaseStorageBackend`, and what is promised around it."""

    def make_backend(self) -> Any:
        """The backend under test."""
        raise NotImplementedError("make_backend: return the backend to be tested")

    def make_state(self) -> dict[str, Any]:
        """A state that the backend takes."""
        return {"model": {"weight": np.arange(12.0).reshape(3, 4), "bias": np.zeros(4)}, "epoch": 3, "name": "a"}

    def assert_equal(self, found: Any, saved: Any) -> None:
        """Compare what came back with what was saved."""
        if isinstance(saved, dict):
            assert sorted(found) == sorted(saved)
            for key in saved:
                self.assert_equal(found[key], saved[key])
        elif hasattr(saved, "shape"):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(saved))
        else:
            assert found == saved

    @pytest.fixture
    def backend(self) -> Any:
        """The backend under test, as a manager gets it."""
        return find_backend(self.make_backend())

    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        """A root of the test's own."""
        return LocalStore(f"{tmp_path}/root")

    # --- alone -------------------------------------------------------------------------------------------------------

    def test_what_it_writes_at_a_path_it_reads_from_that_path(self, backend: Any, tmp_path: Path) -> None:
        """Nothing is remembered in the object: a second one reads it too."""
        path = f"{tmp_path}/checkpoint{extension_of(backend)}"
        saver_of(backend)(self.make_state(), path)

        found = loader_of(find_backend(self.make_backend()))(path, None)

        self.assert_equal(found, self.make_state())

    def test_it_writes_at_the_path_it_is_given_and_nowhere_else(self, backend: Any, tmp_path: Path) -> None:
        """The path is in a stage that nobody sees; what is written elsewhere would be lost."""
        folder = tmp_path / "stage"
        folder.mkdir()
        saver_of(backend)(self.make_state(), f"{folder}/checkpoint{extension_of(backend)}")

        assert os.listdir(tmp_path) == ["stage"]
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) > 0

    def test_it_has_a_name_that_stays(self, backend: Any) -> None:
        """Checkpoints remember it."""
        assert name_of(backend) == name_of(find_backend(self.make_backend())) != ""

    # --- as checkpoints ----------------------------------------------------------------------------------------------

    def test_a_checkpoint_of_it_comes_back_and_is_listed_and_healthy(self, backend: Any, store: LocalStore) -> None:
        """It is a checkpoint like any other."""
        info = deposit(backend, store, self.make_state(), step=7, metrics={"loss": 0.5})

        self.assert_equal(withdraw(store, info.prefix, own=backend), self.make_state())
        assert [(one.step, one.metrics) for one in list_checkpoints(store)] == [(7, {"loss": 0.5})]
        assert [health.ok for health in verify(store)] == [True]

    def test_a_deleted_checkpoint_can_be_brought_back(self, backend: Any, store: LocalStore) -> None:
        """Through the same trash as every other."""
        info = deposit(backend, store, self.make_state(), step=7)
        delete(store, step=7)

        undelete(store, step=7)

        self.assert_equal(withdraw(store, info.prefix, own=backend), self.make_state())

    def test_a_changed_byte_is_refused_before_the_backend_sees_it(self, backend: Any, store: LocalStore) -> None:
        """Wherever in its files it is."""
        info = deposit(backend, store, self.make_state(), step=7)
        for path in sorted(Path(store.place(info.prefix)).iterdir()):
            before = path.read_bytes()
            if path.name == "manifest.json":
                continue
            path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))

            with pytest.raises(CorruptedCheckpoint, match=path.name):
                withdraw(store, info.prefix, own=backend)
            assert [health.ok for health in verify(store)] == [False]
            path.write_bytes(before)

    def test_a_missing_file_is_refused(self, backend: Any, store: LocalStore) -> None:
        """Nothing loads by half."""
        info = deposit(backend, store, self.make_state(), step=7)
        largest = max(Path(store.place(info.prefix)).glob("[!m]*"), key=lambda path: path.stat().st_size)
        largest.unlink()

        with pytest.raises(CheckpointException, match=largest.name):
            withdraw(store, info.prefix, own=backend)

    def test_a_save_that_fails_leaves_nothing_to_be_seen(self, backend: Any, store: LocalStore) -> None:
        """However far the backend had come."""

        class Failing:
            def save(self, data: Any, path: str) -> None:
                saver_of(backend)(data, path)
                raise OSError("no more")

            def load(self, path: str) -> None:
                return None

        with pytest.raises(OSError, match="no more"):
            deposit(Failing(), store, self.make_state(), step=7)
        assert list_checkpoints(store) == []
