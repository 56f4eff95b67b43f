"""Sidecar suite: small values beside the checkpoints, and stamps of many; for stores that keep pins, tags and notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_checkpoint.errors import CheckpointNotFound, UnsafeName
from model_checkpoint.storage.contract.sidecars import SidecarKeeper, sidecars_of
from model_checkpoint.storage.contract.stamping import stamp_all
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.testing.blobs import AT_ONCE, save_blobs
from model_checkpoint.testing.store_maker import StoreMaker


class SidecarSuite(StoreMaker):
    """What a store owes to the small values it keeps."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """A store with one checkpoint."""
        store = self.make_store(tmp_path)
        save_blobs(store, "step-1", {"x-a1": b"one"}, attempt="a1")
        return store

    @pytest.fixture
    def shelf(self, store: Store) -> SidecarKeeper:
        """The same store as one that keeps sidecars."""
        return sidecars_of(store)

    def test_a_value_is_kept_and_replaced_and_forgotten(self, shelf: SidecarKeeper, tmp_path: Path) -> None:
        """By any store of the same place."""
        shelf.write_sidecar("b", b"two")
        shelf.write_sidecar("a.1", b"one")
        shelf.write_sidecar("b", b"three")

        assert list(sidecars_of(self.make_store(tmp_path)).read_sidecars()) == [("a.1", b"one"), ("b", b"three")]
        assert list(shelf.read_sidecars(".1")) == [("a.1", b"one")]
        shelf.remove_sidecar("b")
        assert list(shelf.read_sidecars()) == [("a.1", b"one")]

    def test_forgetting_what_is_not_there_is_no_error(self, shelf: SidecarKeeper) -> None:
        """So that anybody may do it again."""
        shelf.remove_sidecar("never")
        shelf.remove_sidecar("never")

        assert list(shelf.read_sidecars()) == []

    def test_a_value_is_no_checkpoint_and_recovery_leaves_it_alone(self, store: Store, shelf: SidecarKeeper) -> None:
        """Nor is it listed, nor counted."""
        shelf.write_sidecar("a", b"one")
        before = store.files("step-1")

        store.sweep(AT_ONCE)

        assert list(shelf.read_sidecars()) == [("a", b"one")]
        assert (store.names(), store.files("step-1"), store.trash()) == (["step-1"], before, [])

    @pytest.mark.parametrize("key", ["../a", "a/b", "", ".", "a\n"])
    def test_a_key_that_could_lead_elsewhere_is_refused(self, shelf: SidecarKeeper, key: str) -> None:
        """Whether written or removed."""
        with pytest.raises(UnsafeName, match=r"is not safe"):
            shelf.write_sidecar(key, b"")
        with pytest.raises(UnsafeName, match=r"is not safe"):
            shelf.remove_sidecar(key)

    def test_the_stamps_of_many_are_those_of_each(self, store: Store) -> None:
        """Also where a version was deleted, and for a name that is gone."""
        for number in (2, 3):
            save_blobs(store, f"step-{number}", {f"x-a{number}": b"x" * number}, attempt=f"a{number}")
        store.discard("step-2")
        save_blobs(store, "step-2", {"x-b2": b"new"}, attempt="b2")

        found = dict(stamp_all(store, ["step-3", "step-2", "none", "step-1"]))

        assert list(found) == ["step-3", "step-2", "none", "step-1"]
        assert isinstance(found.pop("none"), CheckpointNotFound)
        assert found == {name: store.stamps(name) for name in found}
