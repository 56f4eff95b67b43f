"""The examples that the architecture prints for authors run word for word, and work once their bodies are real."""

import pickle
from abc import ABC
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.checkpoint.storage.backend_io import deposit, withdraw
from model_checkpoint.hooks import HookEvent
from model_checkpoint.storage.local.store import LocalStore

STORAGE_BACKEND = '''
from abc import ABC, abstractmethod

class StorageBackend(ABC):
    @abstractmethod
    def save_checkpoint(self, data: Any, path: str) -> Dict[str, Any]:
        """Save checkpoint data to storage"""
        pass

    @abstractmethod
    def load_checkpoint(self, path: str, device=None) -> Any:
        """Load checkpoint data from storage"""
        pass
'''

CUSTOM_HOOK = """
from model_checkpoint.hooks import BaseHook, HookEvent

class CustomHook(BaseHook):
    def execute(self, context):
        # Custom logic here
        return True

# Register with the hook manager
manager.hook_manager.register_hook(CustomHook())
"""

CUSTOM_STORAGE_BACKEND = """
from model_checkpoint.checkpoint.storage import BaseStorageBackend

class CustomStorageBackend(BaseStorageBackend):
    def save_checkpoint(self, data, path):
        # Custom storage logic
        pass
    
    def load_checkpoint(self, path, device=None):
        # Custom loading logic  
        pass
"""

CUSTOM_BACKEND = """
from model_checkpoint.storage.base_backend import BaseStorageBackend

class CustomBackend(BaseStorageBackend):
    def save(self, data, path):
        # Custom serialization
        pass
"""

CUSTOM_API = """
from model_checkpoint.api.base_api import BaseAPI

class CustomAPI(BaseAPI):
    def custom_endpoint(self, request):
        # Custom functionality
        pass
"""


def run_example(text: str, **names: Any) -> dict[str, Any]:
    """Run an example as printed and return what it has defined."""
    exec(compile(text, "example", "exec"), names)
    return names


def write(data: Any, path: str) -> dict[str, Any]:
    return {"file_size": Path(path).write_bytes(pickle.dumps(data))}


def read(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())


def round_trip(backend: Any, folder: Path) -> None:
    """Save and load through a backend."""
    store, state = LocalStore(f"{folder}"), {"weights": np.arange(4), "epoch": 3}
    info = deposit(backend, store, state, step=1)
    back = withdraw(store, info.prefix, own=backend)
    assert back["epoch"] == 3
    np.testing.assert_array_equal(back["weights"], np.arange(4))


def test_the_printed_storage_backend_is_a_base_one_can_write_on(tmp_path):
    printed = run_example(STORAGE_BACKEND, Any=Any, Dict=dict)["StorageBackend"]

    class Mine(printed):
        def save_checkpoint(self, data: Any, path: str) -> dict[str, Any]:
            return write(data, path)

        def load_checkpoint(self, path: str, device=None) -> Any:
            return read(path)

    assert issubclass(printed, ABC)
    round_trip(Mine(), tmp_path)


def save(_: Any, data: Any, path: str) -> None:
    write(data, path)


def load(_: Any, path: str, device: Any = None) -> Any:
    return read(path)


@pytest.mark.parametrize(
    ("example", "name", "bodies"),
    [
        (CUSTOM_STORAGE_BACKEND, "CustomStorageBackend", {"save_checkpoint": save, "load_checkpoint": load}),
        (CUSTOM_BACKEND, "CustomBackend", {"save": save, "load": lambda _, path: read(path)}),
    ],
    ids=["CustomStorageBackend", "CustomBackend"],
)
def test_a_printed_custom_backend_can_be_made_and_with_bodies_saves_and_loads(tmp_path, example, name, bodies):
    printed = run_example(example)[name]
    assert printed() is not None

    round_trip(type("Mine", (printed,), bodies)(), tmp_path)


def test_the_printed_hook_registers_with_the_hook_manager_of_a_manager(tmp_path):
    """The object alone; an object with only ``execute`` hears of every event."""
    run = ExperimentTracker("example", database_url=f"sqlite:///{tmp_path}/runs.db")
    with run, EnhancedCheckpointManager(run, f"{tmp_path}/checkpoints") as manager:
        printed = run_example(CUSTOM_HOOK, manager=manager)["CustomHook"]
        assert [info.name for info in manager.list_hooks()] == ["CustomHook"]

        manager.save_checkpoint({"w": np.ones(2)}, step=1)

        heard = {each.event for each in manager.hook_manager.timeline() if each.hook == "CustomHook"}
    run.connection.close()
    assert printed().execute(None) is True
    assert {HookEvent.BEFORE_CHECKPOINT_SAVE, HookEvent.AFTER_CHECKPOINT_SAVE} < heard


def test_the_printed_api_can_be_made_without_arguments():
    printed = run_example(CUSTOM_API)["CustomAPI"]

    assert printed().custom_endpoint(None) is None


@pytest.mark.parametrize("form", ["class", "instance"])
def test_a_printed_backend_plugs_into_a_manager(tmp_path, form):
    printed = run_example(CUSTOM_STORAGE_BACKEND)["CustomStorageBackend"]

    class Mine(printed):
        def save_checkpoint(self, data, path):
            write(data, path)

        def load_checkpoint(self, path, device=None):
            return read(path)

    backend = Mine if form == "class" else Mine()
    run = ExperimentTracker("example", database_url=f"sqlite:///{tmp_path}/runs.db")
    with run, EnhancedCheckpointManager(run, f"{tmp_path}/checkpoints", storage_backend=backend) as manager:
        id = manager.save_checkpoint({"w": np.arange(3)}, epoch=3)
        np.testing.assert_array_equal(manager.load_checkpoint(id)["model_state_dict"]["w"], np.arange(3))
        assert manager.verify_experiment_integrity().ok
    run.connection.close()


def test_a_printed_body_that_writes_nothing_is_told_so_and_commits_nothing(tmp_path):
    printed = run_example(CUSTOM_STORAGE_BACKEND)["CustomStorageBackend"]

    with pytest.raises(ValueError, match="CustomStorageBackend wrote nothing"):
        deposit(printed(), LocalStore(f"{tmp_path}"), {"epoch": 3}, step=1)
    assert LocalStore(f"{tmp_path}").names() == []
