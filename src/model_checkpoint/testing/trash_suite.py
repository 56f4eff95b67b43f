"""Trash suite: deleting, bringing back and recovery, the second half of the store suite.

Inherit :class:`model_checkpoint.testing.store_suite.StoreSuite`, which holds these tests too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from model_checkpoint.errors import CheckpointNotFound, StepExists
from model_checkpoint.options import Graces
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, stage_blobs
from model_checkpoint.testing.store_maker import StoreMaker


class TrashSuite(StoreMaker):
    """What a store owes to what was deleted, and to attempts that are alive."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """A store nobody has used."""
        return self.make_store(tmp_path)

    def test_a_discarded_checkpoint_can_be_brought_back(self, store: Store) -> None:
        """With every byte."""
        save_blobs(store, "step-1", {"x": b"abc"})

        written = store.read_manifest("step-1")
        gone = store.discard("step-1")

        assert store.names() == []
        assert store.trash() == [gone]
        assert gone.name == "step-1"
        assert gone.nbytes > 3
        assert store.read_trashed(gone.token) == written
        assert store.bring_back(gone.token) == "step-1"
        assert load_blobs(store, "step-1") == {"x": b"abc"}
        assert store.trash() == []

    def test_deletions_are_told_in_the_order_in_which_they_happened(self, store: Store) -> None:
        """So that the last one is the one to undo."""
        gone = []
        for number in range(4):
            save_blobs(store, "step-1", {"x": bytes([number])})
            gone.append(store.discard("step-1"))

        assert store.trash() == gone

    def test_bringing_back_onto_a_taken_name_is_refused(self, store: Store) -> None:
        """Both stay as they are."""
        save_blobs(store, "step-1", {"x": b"first"})
        gone = store.discard("step-1")
        save_blobs(store, "step-1", {"x": b"second"})

        with pytest.raises(StepExists, match=r"step-1: a checkpoint of that name exists"):
            store.bring_back(gone.token)

        assert load_blobs(store, "step-1") == {"x": b"second"}
        assert store.trash() == [gone]

    @pytest.mark.parametrize("token", ["", "step-1", "../x", "..~1~0000000000000000", "step-1~1~0000000000000000"])
    def test_a_key_that_is_not_in_the_trash_is_not_found(self, store: Store, token: str) -> None:
        """Whatever it looks like."""
        with pytest.raises(CheckpointNotFound, match=r"mckpt trash"):
            store.bring_back(token)
        with pytest.raises(CheckpointNotFound, match=r"mckpt trash"):
            store.read_trashed(token)

    def test_recovery_empties_the_trash_only_after_its_grace(self, store: Store) -> None:
        """Until then it can be brought back."""
        save_blobs(store, "step-1", {"x": b"abc"})
        gone = store.discard("step-1")

        early, late, again = store.sweep(Graces(trash=3600.0)), store.sweep(AT_ONCE), store.sweep(AT_ONCE)

        assert list(early.trashed) == []
        assert list(late.trashed) == [gone.token]
        assert late.nbytes == gone.nbytes
        assert list(again.trashed) == []
        assert store.trash() == []
        with pytest.raises(CheckpointNotFound, match=r"no such checkpoint in the trash"):
            store.bring_back(gone.token)

    def test_a_grace_of_some_deletions_leaves_the_others_their_day(self, store: Store) -> None:
        """Whoever sweeps what is theirs must not take what others were promised."""
        for number in (1, 2):
            save_blobs(store, f"step-{number}", {"x": b"abc"})
        mine, other = store.discard("step-1"), store.discard("step-2")
        graces = Graces(local=0.0, foreign=0.0, trash=0.0, only=frozenset({mine.token}))

        seen, swept = store.sweep(graces, dry_run=True), store.sweep(graces)

        assert list(seen.trashed) == list(swept.trashed) == [mine.token]
        assert [left.key for left in swept.waiting] == [other.token]
        assert store.trash() == [other]

    def test_a_dry_run_removes_nothing_and_tells_what_recovery_removes_then(self, store: Store) -> None:
        """People look before they let go of what could still be brought back."""
        save_blobs(store, "step-1", {"x": b"abc"})
        gone = store.discard("step-1")

        told: list[str] = []
        early = store.sweep(Graces(trash=3600.0), dry_run=True)
        seen = store.sweep(AT_ONCE, dry_run=True, tell=told.append)
        there, nothing, done = store.trash(), [*told], store.sweep(AT_ONCE, tell=told.append)

        assert (list(early.trashed), [left.key for left in early.waiting]) == ([], [gone.token])
        assert [item.token for item in there] == [gone.token]
        assert (list(seen.trashed), seen.nbytes) == (list(done.trashed), done.nbytes) == ([gone.token], gone.nbytes)
        assert list(seen.waiting) == []
        assert (nothing, told) == ([], [gone.token])  # each is told when it went

    def test_recovery_tells_how_long_it_still_waits_for_what_it_leaves(self, store: Store) -> None:
        """An attempt that lives is waited for as long as it does."""
        save_blobs(store, "step-1", {"x": b"abc"})
        gone = store.discard("step-1")
        stage = stage_blobs(store, "step-2", {"x-a1": b"abc"}, attempt="a1")

        attempt, deletion = store.sweep(Graces(local=0.0, foreign=0.0, trash=3600.0)).waiting
        stage.abort()
        emptied = store.sweep(AT_ONCE)

        assert (attempt.key, attempt.seconds) == ("a1", None)
        assert deletion.key == gone.token
        assert deletion.seconds is not None
        assert 0 < deletion.seconds <= 3600
        assert list(emptied.waiting) == []

    def test_recovery_never_touches_a_live_attempt(self, store: Store, tmp_path: Path) -> None:
        """However short the graces, and whoever runs it."""
        files = {"x-a1": b"abc"}
        stage = stage_blobs(store, "step-1", files, attempt="a1")

        swept = self.make_store(tmp_path).sweep(AT_ONCE)

        assert list(swept.alive) == ["a1"]
        assert list(swept.attempts) == []
        stage.publish(blob_manifest("step-1", "a1", files))
        assert load_blobs(store, "step-1") == files
        assert list(store.sweep(AT_ONCE).alive) == []

    def test_recovery_leaves_published_checkpoints_alone(self, store: Store) -> None:
        """Also replaced ones, and files nobody listed."""
        save_blobs(store, "step-1", {"x-1": b"old", "extra": b"kept"})
        save_blobs(store, "step-1", {"x-2": b"new"}, attempt="2", replace=True, obsolete=["x-1"])
        save_blobs(store, "step-2", {"y": b"y"})
        before = {name: store.files(name) for name in store.names()}

        store.sweep(AT_ONCE)

        assert {name: store.files(name) for name in store.names()} == before
        assert load_blobs(store, "step-1") == {"x-2": b"new"}

    def test_a_replacement_may_have_files_of_the_same_names(self, store: Store) -> None:
        """Then it takes the place of the old version as a whole, which can be brought back as it was."""
        save_blobs(store, "step-1", {"x": b"old", "y-a1": b"old too"}, attempt="a1")

        save_blobs(
            store, "step-1", {"x": b"new", "z-a2": b"new too"}, attempt="a2", replace=True, obsolete=["x", "y-a1"]
        )

        assert load_blobs(store, "step-1") == {"x": b"new", "z-a2": b"new too"}
        store.discard("step-1")
        store.bring_back(store.trash()[0].token)
        assert load_blobs(store, "step-1") == {"x": b"old", "y-a1": b"old too"}
