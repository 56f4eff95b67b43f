"""The object store keeps the contract on obstore's own store in memory, without a server between."""

import pytest
from obstore.store import MemoryStore
from tests.storage.objects.bucket_files import keys

from model_checkpoint.storage import ObjectStore
from model_checkpoint.testing.blobs import blob_manifest, load_blobs, save_blobs
from model_checkpoint.testing.store_suite import StoreSuite

FILES = {"x-a1": b"one" * 50, "y-a1": b"two"}


class TestOnMemory(StoreSuite):
    # a head of no bytes is refused in other words here than by servers
    test_many_manifests_come_in_the_order_asked_and_a_missing_one_is_an_error_in_its_place = None

    @pytest.fixture(autouse=True)
    def client(self):
        self.at = MemoryStore()

    def make_store(self, folder):
        return ObjectStore(f"s3://bucket/suite/{folder.name}", store=self.at)


@pytest.fixture
def store(client):
    return ObjectStore("s3://bucket/root", store=client)


def test_a_manifest_that_a_repair_replaced_is_kept_in_the_trash(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    old = store.read_manifest("step-1")
    mending = store.mend("step-1", "m1")

    assert mending.finish(over=old, manifest=blob_manifest("step-1", "m1", FILES))

    (kept,) = [key for key in keys(client) if key.endswith("/manifest.replaced")]
    assert bytes(client.get(f"root/{kept}").bytes()) == old
    assert store.read_manifest("step-1") != old
    assert load_blobs(store, "step-1") == FILES


def test_a_repair_of_what_was_replaced_meanwhile_changes_nothing(client, store):
    save_blobs(store, "step-1", FILES, attempt="a1")
    mending = store.mend("step-1", "m1")
    save_blobs(store, "step-1", {"x-a2": b"new"}, attempt="a2", replace=True, obsolete=list(FILES))
    now = store.read_manifest("step-1")

    assert not mending.finish(over=b"another", manifest=blob_manifest("step-1", "m1", FILES))

    assert store.read_manifest("step-1") == now
    assert load_blobs(store, "step-1") == {"x-a2": b"new"}
    assert not any(key.endswith((".lease", "manifest.replaced")) for key in keys(client))
