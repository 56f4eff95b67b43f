"""Mend suite: files put into a published checkpoint, the part of the store contract that parity and repair need."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from model_checkpoint.errors import CheckpointNotFound, StorageFailure, UnsafeName
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Mending, Store
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, seal_blob, stage_blobs

FILES = {"x-a1": b"one" * 5000, "y-a1": b"two"}
DAMAGED = {"x-a1": b"0ne" * 5000, "y-a1": b"two"}


class MendSuite:
    """What a store owes to a checkpoint that is mended; ``store`` is an empty one."""

    def mend(self, store: Store, files: Mapping[str, bytes], attempt: str = "m1") -> Mending:
        """Bring files on their way into step-1."""
        mending = store.mend("step-1", attempt)
        for file, data in files.items():
            seal_blob(mending, file, data)
        return mending

    def save_damaged(self, store: Store) -> bytes:
        """Publish a checkpoint one of whose files is not what its manifest says; return that manifest."""
        stage_blobs(store, "step-1", DAMAGED, attempt="a1").publish(blob_manifest("step-1", "a1", FILES))
        return store.read_manifest("step-1")

    def is_still_damaged(self, store: Store) -> bool:
        """Whether the damaged file is there as it was."""
        data = bytearray(len(DAMAGED["x-a1"]))
        reader = store.open("step-1", "x-a1")
        reader.read_into(0, memoryview(data))
        reader.close()
        return bytes(data) == DAMAGED["x-a1"]

    def test_a_mended_file_has_its_new_bytes_and_the_others_are_as_they_were(self, store: Store) -> None:
        """The manifest is not touched."""
        manifest = self.save_damaged(store)
        before = store.stamps("step-1")

        mending = self.mend(store, {"x-a1": FILES["x-a1"]})

        assert isinstance(mending, Mending)
        assert mending.finish(over=manifest)
        assert load_blobs(store, "step-1") == FILES
        assert store.stamps("step-1")["y-a1"] == before["y-a1"]
        assert store.stamps("step-1")["x-a1"].identity != before["x-a1"].identity

    def test_a_file_that_was_lost_or_never_there_joins(self, store: Store) -> None:
        """As parity files do."""
        save_blobs(store, "step-1", FILES, attempt="a1")

        assert self.mend(store, {"p-a1.parity": b"sum"}).finish(over=store.read_manifest("step-1"))

        reader = store.open("step-1", "p-a1.parity")
        data = bytearray(3)
        reader.read_into(0, memoryview(data))
        reader.close()
        assert bytes(data) == b"sum"

    def test_what_was_replaced_is_in_the_trash_until_its_grace_is_over(self, store: Store) -> None:
        """It is no checkpoint, so it is not listed there; the mended one is untouched when it goes."""
        manifest = self.save_damaged(store)
        self.mend(store, {"x-a1": FILES["x-a1"]}).finish(over=manifest)

        kept = store.sweep(Graces(local=0.0, foreign=0.0)).waiting
        gone = store.sweep(AT_ONCE).trashed

        assert store.trash() == []
        assert len(kept) == 1
        assert list(gone) == [kept[0].key]
        assert load_blobs(store, "step-1") == FILES

    def test_nothing_is_mended_over_another_version(self, store: Store) -> None:
        """Whoever judged the old one must judge again."""
        manifest = self.save_damaged(store)
        mending = self.mend(store, {"x-a1": FILES["x-a1"]})
        save_blobs(store, "step-1", {"z-a2": b"new"}, attempt="a2", replace=True, obsolete=["x-a1", "y-a1"])

        assert not mending.finish(over=manifest)

        assert load_blobs(store, "step-1") == {"z-a2": b"new"}
        assert set(store.files("step-1")) == {"manifest.json", "z-a2"}

    def test_a_checkpoint_that_is_gone_is_not_mended(self, store: Store) -> None:
        """Nor does it come back by that."""
        manifest = self.save_damaged(store)
        mending = self.mend(store, {"x-a1": FILES["x-a1"]})
        store.discard("step-1")

        assert not mending.finish(over=manifest)

        assert store.names() == []
        with pytest.raises(CheckpointNotFound, match=r"step-1: no such checkpoint"):
            store.read_manifest("step-1")

    def test_a_damaged_manifest_is_replaced_last_and_only_if_it_is_still_there(self, store: Store) -> None:
        """By the one it had before."""
        save_blobs(store, "step-1", FILES, attempt="a1")
        good = store.read_manifest("step-1")
        store.mend("step-1", "m0").finish(over=good, manifest=blob_manifest("step-1", "a1", {}))
        other = store.read_manifest("step-1")

        assert not store.mend("step-1", "m1").finish(over=good, manifest=good)
        assert store.read_manifest("step-1") == other
        assert store.mend("step-1", "m2").finish(over=other, manifest=good)

        assert store.read_manifest("step-1") == good
        assert load_blobs(store, "step-1") == FILES

    def test_a_mending_given_up_leaves_the_checkpoint_and_nothing_else(self, store: Store) -> None:
        """As if nobody had begun; a second call is no error."""
        self.save_damaged(store)
        mending = store.mend("step-1", "m1")
        mending.create("x-a1", 5)

        mending.abort()
        mending.abort()

        assert self.is_still_damaged(store)
        assert list(store.sweep(AT_ONCE).attempts) == []
        with pytest.raises(StorageFailure, match="the attempt is over"):
            mending.create("y-a1", 5)

    def test_only_sealed_files_are_put_in_place(self, store: Store) -> None:
        """Half a file never gets a name."""
        manifest = self.save_damaged(store)
        mending = store.mend("step-1", "m1")
        mending.create("x-a1", 5)

        with pytest.raises(StorageFailure, match="not sealed"):
            mending.finish(over=manifest)

        mending.abort()
        assert self.is_still_damaged(store)

    def test_names_that_lead_elsewhere_are_refused(self, store: Store) -> None:
        """Neither as a file nor in place of the manifest."""
        self.save_damaged(store)
        mending = store.mend("step-1", "m1")

        for name in ("../x", "manifest.json", "manifest.tmp"):
            with pytest.raises(UnsafeName, match=r"step-1|m1"):
                mending.create(name, 1)
        mending.abort()

    def test_a_mended_file_can_be_the_copy_of_another_checkpoint(self, store: Store) -> None:
        """Where the store can share one."""
        manifest = self.save_damaged(store)
        save_blobs(store, "step-2", {"x-b1": FILES["x-a1"]}, attempt="b1")
        identity = store.stamps("step-2")["x-b1"].identity
        mending = store.mend("step-1", "m1")

        assert mending.link("x-a1", source="step-2", source_file="x-b1", identity=identity)
        assert not mending.link("y-a1", source="step-2", source_file="x-b1", identity="another")
        assert mending.finish(over=manifest)

        assert load_blobs(store, "step-1") == FILES
