"""Link suite: sharing one copy of a file between checkpoints, the part of the store contract incremental saves need."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_checkpoint.errors import CheckpointNotFound, StorageFailure, UnsafeName
from model_checkpoint.storage.contract.store import Attempt, Store
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, seal_blob, write_blob
from model_checkpoint.testing.store_maker import StoreMaker


class LinkSuite(StoreMaker):
    """What a store owes to files that several checkpoints share."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """A store with one checkpoint of two files."""
        store = self.make_store(tmp_path)
        save_blobs(store, "step-1", {"x-a1": b"one" * 5000, "y-a1": b"two"}, attempt="a1")
        return store

    def link(self, store: Store, stage: Attempt, file: str = "x-a2") -> bool:
        """Link the first file of step-1."""
        identity = store.stamps("step-1")["x-a1"].identity
        return stage.link(file, source="step-1", source_file="x-a1", identity=identity)

    def publish_linked(self, store: Store, name: str = "step-2", attempt: str = "a2", replace: bool = False) -> None:
        """Publish a checkpoint that shares one file and has one of its own."""
        stage = store.stage(name, attempt)
        assert self.link(store, stage, f"x-{attempt}")
        seal_blob(stage, f"z-{attempt}", b"three")
        files = {f"x-{attempt}": b"one" * 5000, f"z-{attempt}": b"three"}
        obsolete = [file for file in store.files(name) if file != "manifest.json"] if replace else []
        stage.publish(blob_manifest(name, attempt, files), replace=replace, obsolete=obsolete)

    def test_a_stamp_has_the_size_and_tells_copies_apart(self, store: Store) -> None:
        """Whatever an identity is made of."""
        stamps = store.stamps("step-1")

        assert {file: stamp.size for file, stamp in stamps.items()} == store.files("step-1")
        assert len({stamp.identity for stamp in stamps.values()}) == len(stamps)
        assert all(stamp.links == 1 for stamp in stamps.values())
        assert store.stamps("step-1") == stamps

    def test_there_are_no_stamps_of_what_is_not_there(self, store: Store) -> None:
        """A parent may be deleted at any time."""
        with pytest.raises(CheckpointNotFound, match=r"step-9: no such checkpoint"):
            store.stamps("step-9")

    def test_a_linked_file_has_the_bytes_and_is_the_same_copy(self, store: Store) -> None:
        """Under a name of its own."""
        self.publish_linked(store)

        one, two = store.stamps("step-1")["x-a1"], store.stamps("step-2")["x-a2"]
        assert load_blobs(store, "step-2") == {"x-a2": b"one" * 5000, "z-a2": b"three"}
        assert (one.identity, one.links) == (two.identity, 2)

    def test_stamps_of_a_stage_are_those_of_the_checkpoint_it_becomes(self, store: Store) -> None:
        """They are written into the manifest before it is published."""
        stage = store.stage("step-2", "a2")
        self.link(store, stage)
        seal_blob(stage, "z-a2", b"three")

        before = stage.stamps()
        stage.publish(blob_manifest("step-2", "a2", {}))

        after = store.stamps("step-2")
        assert {file: (s.size, s.identity) for file, s in before.items()} == {
            file: (s.size, s.identity) for file, s in after.items() if file != "manifest.json"
        }

    def test_each_of_two_that_share_outlives_the_other(self, store: Store) -> None:
        """Deleted, and removed for good."""
        self.publish_linked(store)

        store.discard("step-1")
        store.sweep(AT_ONCE)
        self.publish_again(store)

        assert load_blobs(store, "step-2")["x-a2"] == b"one" * 5000
        assert sorted(store.names()) == ["step-2", "step-3"]

    def publish_again(self, store: Store) -> None:
        """Link from a checkpoint that itself was linked."""
        stage = store.stage("step-3", "a3")
        identity = store.stamps("step-2")["x-a2"].identity
        assert stage.link("x-a3", source="step-2", source_file="x-a2", identity=identity)
        stage.publish(blob_manifest("step-3", "a3", {"x-a3": b"one" * 5000}))

    def test_a_checkpoint_can_be_replaced_by_one_that_links_to_it(self, store: Store) -> None:
        """The old name goes, the copy stays."""
        self.publish_linked(store, "step-1", "a2", replace=True)
        store.sweep(AT_ONCE)

        assert load_blobs(store, "step-1") == {"x-a2": b"one" * 5000, "z-a2": b"three"}
        assert sorted(store.files("step-1")) == ["manifest.json", "x-a2", "z-a2"]

    @pytest.mark.parametrize(
        ("source", "source_file", "identity"),
        [("step-9", "x-a1", ""), ("step-1", "q-a1", ""), ("step-1", "x-a1", "another copy")],
    )
    def test_what_cannot_be_linked_may_be_written_under_the_same_name(
        self, store: Store, source: str, source_file: str, identity: str
    ) -> None:
        """Gone, or not the file that was meant: then nothing is staged."""
        stage = store.stage("step-2", "a2")

        linked = stage.link("x-a2", source=source, source_file=source_file, identity=identity)

        assert not linked
        assert stage.stamps() == {}
        seal_blob(stage, "x-a2", b"new")
        stage.publish(blob_manifest("step-2", "a2", {"x-a2": b"new"}))
        assert load_blobs(store, "step-2") == {"x-a2": b"new"}
        assert load_blobs(store, "step-1")["x-a1"] == b"one" * 5000

    def test_a_link_needs_a_safe_name_nobody_has(self, store: Store) -> None:
        """Like any other file."""
        stage = store.stage("step-2", "a2")
        self.link(store, stage)

        with pytest.raises(UnsafeName, match=r"is reserved, or differs"):
            self.link(store, stage, "X-A2")
        with pytest.raises(UnsafeName, match=r"is reserved, or differs"):
            stage.create("x-a2", 1)
        with pytest.raises(UnsafeName, match=r"not safe"):
            self.link(store, stage, "../x")
        stage.abort()

    def test_an_aborted_attempt_does_not_harm_what_it_linked(self, store: Store) -> None:
        """Only its own name goes."""
        stage = store.stage("step-2", "a2")
        self.link(store, stage)

        stage.abort()

        assert load_blobs(store, "step-1")["x-a1"] == b"one" * 5000
        assert store.stamps("step-1")["x-a1"].links == 1
        with pytest.raises(StorageFailure, match=r"the attempt is over"):
            self.link(store, stage)

    def test_a_file_may_end_up_smaller_than_announced_but_not_larger(self, store: Store) -> None:
        """Compressed files do."""
        stage = store.stage("step-2", "a2")
        writer, liar = stage.create("z-a2", 9000), stage.create("q-a2", 3)
        write_blob(writer, b"x" * 9000)
        writer.seal(5000)
        write_blob(liar, b"abc")

        with pytest.raises(StorageFailure, match=r"only .* of the 9000 bytes announced were written"):
            liar.seal(9000)

        assert stage.stamps()["z-a2"].size == 5000
        stage.abort()
