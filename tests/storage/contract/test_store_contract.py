"""Every store of ours keeps the contract."""

import secrets

import pytest

from model_checkpoint.errors import MemoryRefused
from model_checkpoint.storage import InMemoryStore, LocalStore
from model_checkpoint.testing.sidecar_suite import SidecarSuite
from model_checkpoint.testing.store_suite import StoreSuite


class TestLocalStore(StoreSuite):
    def make_store(self, folder):
        return LocalStore(folder / "runs" / "a")


class TestLocalStoreThroughThePageCache(StoreSuite):
    def make_store(self, folder):
        return LocalStore(folder / "runs" / "a", direct=False)


class TestMemoryStore(StoreSuite):
    salt = secrets.token_hex(4)  # the registry outlives a test; tmp_path names may come again in another run

    def make_store(self, folder):
        return InMemoryStore(f"memory://{self.salt}/{folder.name}")


class TestSidecarsOfALocalStore(SidecarSuite):
    def make_store(self, folder):
        return LocalStore(folder / "runs" / "a")


class TestSidecarsOfAMemoryStore(SidecarSuite):
    salt = secrets.token_hex(4)

    def make_store(self, folder):
        return InMemoryStore(f"memory://{self.salt}/{folder.name}")


def test_a_file_that_no_memory_holds_is_refused_by_its_name():
    store = InMemoryStore("memory://too-large")

    with pytest.raises(MemoryRefused, match=rf"^memory://too-large/.*x-a1: no memory for {1 << 62} bytes.*to a disk"):
        store.stage("step-1", "a1").create("x-a1", 1 << 62)
