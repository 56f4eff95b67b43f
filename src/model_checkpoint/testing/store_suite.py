"""Store suite: what every store must do, as tests to inherit.

    class TestMyStore(StoreSuite):
        def make_store(self, folder):
            return MyStore(folder)

Needs pytest. ``make_store`` is called with one folder of the test's own and must give the same place each time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from model_checkpoint.errors import CheckpointNotFound, StepExists, StorageFailure, Truncated, UnsafeName
from model_checkpoint.storage.contract.store import Attempt, Reader, Store, Writer, read_manifests
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, stage_blobs, write_blob
from model_checkpoint.testing.mend_suite import MendSuite
from model_checkpoint.testing.trash_suite import TrashSuite

UNSAFE: Sequence[str] = (
    *("", ".", "..", "../x", "/etc/x", "a/b", "a//b", "C:\\x", "a\0b", "a\nb", "a b", "a~b"),
    *("\u202egnp.exe", "caf\u00e9", "x" * 129),
)


class StoreSuite(TrashSuite, MendSuite):
    """The contract of :class:`model_checkpoint.storage.contract.store.Store`."""

    # --- being there -------------------------------------------------------------------------------------------------

    def test_it_has_every_part_of_the_contract(self, store: Store) -> None:
        """The protocols can be checked at run time."""
        stage = store.stage("step-1", "a1")
        writer = stage.create("x", 0)
        writer.seal()
        stage.publish(b"m")

        assert isinstance(store, Store)
        assert isinstance(stage, Attempt)
        assert isinstance(writer, Writer)
        assert isinstance(store.open("step-1", "x"), Reader)

    def test_a_store_nobody_used_does_not_exist_and_is_empty(self, store: Store) -> None:
        """Looking creates nothing."""
        assert not store.exists()
        assert store.names() == []
        assert store.trash() == []
        assert list(store.sweep(AT_ONCE).attempts) == []
        assert not store.exists()

    def test_free_bytes_is_a_number_or_unknown(self, store: Store) -> None:
        """It may be asked before the root exists."""
        free = store.free_bytes()

        assert free is None or free > 0

    # --- saving ------------------------------------------------------------------------------------------------------

    def test_what_was_published_comes_back_byte_for_byte(self, store: Store) -> None:
        """Sizes around block borders, and an empty file."""
        sizes = (0, 1, 4095, 4096, 4097, 70_001)
        files = {f"r0-{i}.bin": random.Random(i).randbytes(size) for i, size in enumerate(sizes)}

        save_blobs(store, "step-1", files)

        assert load_blobs(store, "step-1") == files
        assert {file: size for file, size in store.files("step-1").items() if file in files} == {
            file: len(data) for file, data in files.items()
        }

    def test_files_lists_the_manifest_too(self, store: Store) -> None:
        """Byte budgets count it."""
        store.stage("step-1", "a1").publish(b"twelve bytes")

        assert store.files("step-1") == {"manifest.json": 12}

    def test_the_manifest_is_any_bytes(self, store: Store) -> None:
        """A store does not read what it keeps."""
        manifest = bytes(range(256))

        store.stage("step-1", "a1").publish(manifest)

        assert store.read_manifest("step-1") == manifest

    def test_another_store_of_the_same_place_sees_the_same(self, store: Store, tmp_path: Path) -> None:
        """Nothing is kept in the object."""
        save_blobs(store, "step-1", {"x": b"one"})

        assert load_blobs(self.make_store(tmp_path), "step-1") == {"x": b"one"}
        assert self.make_store(tmp_path).exists()

    def test_a_stage_is_invisible_until_it_is_published(self, store: Store) -> None:
        """A reader never sees a half-written checkpoint."""
        stage = stage_blobs(store, "step-1", {"x": b"one"}, attempt="a1")

        assert store.names() == []
        with pytest.raises(CheckpointNotFound, match=r"step-1: no such checkpoint.*mckpt ls"):
            store.read_manifest("step-1")
        stage.publish(blob_manifest("step-1", "a1", {"x": b"one"}))
        assert store.names() == ["step-1"]

    def test_a_name_is_there_exactly_while_it_is_published(self, store: Store) -> None:
        """Whether it is asked for alone or stands in a list."""
        assert not store.has("step-1")
        assert list(store.entries()) == []
        stage = stage_blobs(store, "step-1", {"x": b"one"}, attempt="a1")
        assert not store.has("step-1")
        stage.publish(blob_manifest("step-1", "a1", {"x": b"one"}))
        save_blobs(store, "step-2", {"x": b"two"})

        assert store.has("step-1")
        assert sorted(store.entries()) == ["step-1", "step-2"]
        assert not any(store.has(name) for name in (*UNSAFE, "step-3", "step"))

        store.discard("step-1")
        assert not store.has("step-1")
        assert "step-2" in store.entries()  # what was deleted may still be among them

    def test_an_aborted_attempt_leaves_nothing(self, store: Store) -> None:
        """And may be aborted again."""
        stage = stage_blobs(store, "step-1", {"x": b"one"}, attempt="a1")

        stage.abort()
        stage.abort()

        swept = store.sweep(AT_ONCE)
        assert store.names() == []
        assert list(swept.attempts) == []
        assert list(swept.alive) == []
        with pytest.raises(StorageFailure, match=r"the attempt is over\. Begin a new one"):
            stage.publish(b"m")

    def test_an_attempt_with_an_open_file_can_be_aborted(self, store: Store) -> None:
        """A save may fail between two slabs."""
        stage = store.stage("step-1", "a1")
        stage.create("x", 10)

        stage.abort()

        save_blobs(store, "step-1", {"x": b"one"}, attempt="a1")
        assert load_blobs(store, "step-1") == {"x": b"one"}

    def test_an_existing_name_is_refused_and_untouched(self, store: Store) -> None:
        """Publishing never replaces by accident."""
        save_blobs(store, "step-1", {"x": b"old"})

        with pytest.raises(StepExists, match=r"step-1: a checkpoint of that name exists.*overwrite=True"):
            save_blobs(store, "step-1", {"x": b"new"})

        assert load_blobs(store, "step-1") == {"x": b"old"}
        assert list(store.sweep(AT_ONCE).alive) == []

    def test_one_attempt_id_serves_one_attempt(self, store: Store) -> None:
        """Two processes with the same id would mix their files."""
        stage = store.stage("step-1", "a1")

        with pytest.raises(StorageFailure, match=r"a1"):
            store.stage("step-2", "a1")

        stage.publish(b"m")
        assert store.names() == ["step-1"]

    def test_of_many_threads_that_want_one_name_exactly_one_gets_it(self, store: Store) -> None:
        """And what is there is all of one attempt."""

        def save(number: int) -> bool:
            try:
                save_blobs(store, "step-1", {f"x-{number}": bytes([number]) * 5000})
            except StepExists:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(save, range(8)))

        assert won.count(True) == 1
        number = won.index(True)
        assert load_blobs(store, "step-1") == {f"x-{number}": bytes([number]) * 5000}
        assert set(store.files("step-1")) == {f"x-{number}", "manifest.json"}

    # --- writing one file --------------------------------------------------------------------------------------------

    def test_slabs_may_come_in_any_order_from_many_threads(self, store: Store) -> None:
        """Offsets decide, not time."""
        slab = 64 * 1024
        parts = [random.Random(i).randbytes(slab) for i in range(16)]
        stage = store.stage("step-1", "a1")
        writer = stage.create("x", slab * len(parts))

        def put(index: int) -> None:
            part = _Shifted(writer, index * slab)
            write_blob(part, parts[index])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, random.Random(0).sample(range(16), 16)))
        writer.seal()
        stage.publish(blob_manifest("step-1", "a1", {"x": b"".join(parts)}))

        assert load_blobs(store, "step-1") == {"x": b"".join(parts)}

    def test_a_writer_refuses_what_it_was_not_announced(self, store: Store) -> None:
        """Bytes outside, too few bytes, bytes after the seal."""
        writer = store.stage("step-1", "a1").create("x", 4096)

        with pytest.raises(StorageFailure, match=r"bytes 4096 to 8192 lie outside the 4096 announced"):
            write_blob(_Shifted(writer, 4096), b"x" * 4096)
        with pytest.raises(StorageFailure, match=r"only 0 of the 4096 bytes announced were written"):
            writer.seal()
        write_blob(writer, b"x" * 4096)
        writer.seal()
        with pytest.raises(StorageFailure, match=r"closed already"):
            write_blob(writer, b"x" * 4096)
        with pytest.raises(StorageFailure, match=r"sealed, or failed, before"):
            writer.seal()

    def test_a_file_that_is_not_sealed_cannot_be_published(self, store: Store) -> None:
        """Its bytes may not be on the medium."""
        stage = store.stage("step-1", "a1")
        write_blob(stage.create("x", 3), b"abc")

        with pytest.raises(StorageFailure, match=r"1 files are not sealed \(x\)"):
            stage.publish(b"m")

        stage.abort()
        assert store.names() == []

    # --- replacing ---------------------------------------------------------------------------------------------------

    def test_a_replacement_switches_to_the_new_files(self, store: Store) -> None:
        """The obsolete files leave the checkpoint; what was not named stays."""
        save_blobs(store, "step-1", {"x-1": b"old", "kept-1": b"kept"})

        save_blobs(store, "step-1", {"x-2": b"new"}, attempt="2", replace=True, obsolete=["x-1"])

        assert load_blobs(store, "step-1") == {"x-2": b"new"}
        assert set(store.files("step-1")) == {"x-2", "kept-1", "manifest.json"}
        assert list(store.sweep(AT_ONCE).alive) == []

    def test_what_was_replaced_can_be_brought_back(self, store: Store) -> None:
        """An overwrite forgets no more than a deletion does."""
        save_blobs(store, "step-1", {"x-1": b"old", "y-1": b"old too"}, attempt="1")
        save_blobs(store, "step-1", {"x-2": b"new"}, attempt="2", replace=True, obsolete=["x-1", "y-1"])

        store.discard("step-1")
        store.bring_back(store.trash()[0].token)
        assert load_blobs(store, "step-1") == {"x-1": b"old", "y-1": b"old too"}

    def test_a_replacement_of_nothing_is_a_new_checkpoint(self, store: Store) -> None:
        """Whether it was there is known only at the end."""
        save_blobs(store, "step-1", {"x-1": b"new"}, attempt="1", replace=True, obsolete=["x-0"])

        assert load_blobs(store, "step-1") == {"x-1": b"new"}

    def test_an_aborted_replacement_leaves_the_old(self, store: Store) -> None:
        """The old version stays loadable to the last moment."""
        save_blobs(store, "step-1", {"x-1": b"old"})

        stage_blobs(store, "step-1", {"x-2": b"new"}, attempt="a2").abort()

        assert load_blobs(store, "step-1") == {"x-1": b"old"}
        assert set(store.files("step-1")) == {"x-1", "manifest.json"}

    def test_replacements_by_many_threads_leave_one_whole_version(self, store: Store) -> None:
        """The last switch wins, and everything its manifest lists is there."""
        save_blobs(store, "step-1", {"x-old": b"old"})

        def replace(number: int) -> None:
            files = {f"x-{number}": bytes([number]) * 5000}
            save_blobs(store, "step-1", files, attempt=str(number), replace=True, obsolete=["x-old"])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(replace, range(8)))

        ((file, data),) = load_blobs(store, "step-1").items()
        assert data == bytes([int(file[2:])]) * 5000

    # --- reading -----------------------------------------------------------------------------------------------------

    def test_reading_past_the_end_is_truncated(self, store: Store) -> None:
        """Never zeros, never fewer bytes."""
        save_blobs(store, "step-1", {"x": b"abc"})
        reader = store.open("step-1", "x")

        with pytest.raises(Truncated, match=r"step-1: x ends at byte 3, expected bytes 1 to 5"):
            reader.read_into(1, memoryview(bytearray(4)))
        reader.close()

    def test_a_file_that_is_gone_is_truncated(self, store: Store) -> None:
        """So that a loader reads the manifest again."""
        save_blobs(store, "step-1", {"x": b"abc"})

        with pytest.raises(Truncated, match=r"step-1: the file y is gone"):
            store.open("step-1", "y")
        with pytest.raises(Truncated, match=r"step-2: the file x is gone"):
            store.open("step-2", "x")

    def test_an_unknown_name_is_not_found(self, store: Store) -> None:
        """Each way to ask for it says so."""
        for ask in (store.read_manifest, store.files, store.discard):
            with pytest.raises(CheckpointNotFound, match=r"step-9: no such checkpoint.*mckpt ls"):
                ask("step-9")

    def test_many_manifests_come_in_the_order_asked_and_a_missing_one_is_an_error_in_its_place(
        self, store: Store
    ) -> None:
        """One that was deleted meanwhile does not keep the others from being read."""
        names = [f"step-{number}" for number in range(5)]
        for name in names:
            store.stage(name, f"of-{name}").publish(b"the manifest of " + name.encode())
        store.discard("step-1")

        whole, heads = dict(read_manifests(store, reversed(names))), dict(read_manifests(store, names, limit=20))

        assert list(whole) == names[::-1]
        assert list(heads) == names
        assert isinstance(whole.pop("step-1"), CheckpointNotFound)
        assert isinstance(heads.pop("step-1"), CheckpointNotFound)
        assert whole == {name: store.read_manifest(name) for name in names if name != "step-1"}
        assert set(heads.values()) == {b"the manifest of step"}

    def test_a_map_holds_the_same_bytes_and_outlives_its_reader(self, store: Store) -> None:
        """Where there is no map, there is None."""
        save_blobs(store, "step-1", {"x": b"abc" * 5000, "empty": b""})
        reader, empty = store.open("step-1", "x"), store.open("step-1", "empty")

        view, nothing = reader.map(), empty.map()
        reader.close()
        reader.close()
        empty.close()

        if view is not None:
            assert bytes(view) == b"abc" * 5000
        if view is not None and not view.readonly:
            view[0] = 0
        assert load_blobs(store, "step-1")["x"] == b"abc" * 5000
        assert nothing is None or bytes(nothing) == b""

    # --- names -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("name", UNSAFE)
    def test_an_unsafe_name_is_refused_everywhere(self, store: Store, name: str) -> None:
        """Before it reaches the medium."""
        save_blobs(store, "step-1", {"x": b"abc"})
        stage = store.stage("step-2", "a2")

        for use in (
            lambda: store.stage(name, "a3"),
            lambda: store.stage("step-3", name),
            lambda: stage.create(name, 1),
            lambda: stage.publish(b"m", replace=True, obsolete=[name]),
            lambda: store.open(name, "x"),
            lambda: store.open("step-1", name),
            lambda: store.read_manifest(name),
            lambda: store.files(name),
            lambda: store.discard(name),
        ):
            with pytest.raises(UnsafeName, match=r"is not safe"):
                use()
        stage.abort()

    @pytest.mark.parametrize("second", ["weights.bin", "WEIGHTS.bin", "manifest.json", "Manifest.TMP"])
    def test_two_names_equal_but_for_case_and_reserved_ones_are_refused(self, store: Store, second: str) -> None:
        """Some file systems would take them for one."""
        stage = store.stage("step-1", "a1")
        stage.create("Weights.bin", 0).seal()

        with pytest.raises(UnsafeName, match=r"is reserved, or differs from another one only in case"):
            stage.create(second, 0)
        stage.abort()


class _Shifted:
    """A writer seen from ``start`` on."""

    def __init__(self, writer: Writer, start: int) -> None:
        self._writer, self._start = writer, start

    @property
    def alignment(self) -> int:
        return self._writer.alignment

    def write(self, offset: int, data: memoryview) -> None:
        self._writer.write(self._start + offset, data)

    def seal(self, size: int | None = None) -> None:
        self._writer.seal(size)
