"""Small pieces that ranks wrote are read in parts of 256 KiB where other ranks want other parts of them."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks, save_all
from tests.ground.stored.stored_files import flip

import model_checkpoint as mc
from model_checkpoint.engine.root.rank_manifests import read_summary
from model_checkpoint.errors import ChunkMismatch, PartlyLoaded
from model_checkpoint.manifest import FileRecord
from model_checkpoint.storage.locate import open_store

PART = 256 << 10
GOLDEN = Path(__file__).parent.parent / "golden"
ROWS = (np.arange(6 << 20) % 251).astype(np.uint8).reshape(24, PART)  # three of them: a piece is a chunk


def rows_state(rank):
    return {name: marked(ROWS + tag, (12 * rank, 0), (12, PART)) for tag, name in enumerate("abc")}


def load_rows(root, first, count, **options):
    """Rows of all tensors into fresh arrays by one rank of two, and row 0 by the other; the bytes the first read."""
    seen = []

    def load(coordinator):
        box = ((first, 0), (count, PART)) if coordinator.rank == 0 else ((0, 0), (1, PART))
        live = {name: marked(np.zeros_like(ROWS), *box) for name in "abc"}
        listen = seen.append if coordinator.rank == 0 else None
        mc.load(root, into=live, coordinator=coordinator, progress=listen, **options)
        return all(np.array_equal(live[n].array, (ROWS + t)[box[0][0] :][: box[1][0]]) for t, n in enumerate("abc"))

    assert all_well(on_ranks(2, load)) == [True, True]
    assert seen[-1].done == seen[-1].total
    return seen[-1].total


def records(root):
    store = open_store(root)
    name = mc.list_checkpoints(root)[0].prefix
    return read_summary(store, name, store.read_manifest(name)).files


def test_of_small_pieces_only_the_wanted_parts_are_read(tmp_path):
    save_all(tmp_path, 2, rows_state, step=1)

    read = load_rows(tmp_path, 17, 1)

    assert 3 * PART <= read <= 3 * PART + 6 * PART  # one run of each tensor, and one part for each of its ends
    assert load_rows(tmp_path, 17, 1, verify="full") > read  # SHA-256 is of whole chunks


def test_damage_that_nobody_asks_for_disturbs_nobody_and_is_found_by_a_verification(tmp_path):
    save_all(tmp_path, 2, rows_state, step=1)
    record = next(one for one in records(tmp_path) if one.name.startswith("r1-"))
    path = tmp_path / "checkpoints/step-00000001" / record.name
    flip(path, record.ends[0] + 5)  # in row 12 of the first tensor, which lies in the chunk of row 17

    load_rows(tmp_path, 17, 1)

    with pytest.raises((ChunkMismatch, PartlyLoaded), match=r"chunk 1 .* does not have the recorded digest"):
        load_rows(tmp_path, 11, 2)
    assert [one.chunk for one in mc.verify(tmp_path)[0].damage] == [1]


def test_a_change_in_any_part_that_is_read_is_noticed(tmp_path):
    save_all(tmp_path, 2, rows_state, step=1)
    record = next(one for one in records(tmp_path) if one.name.startswith("r1-"))
    path = tmp_path / "checkpoints/step-00000001" / record.name
    whole = path.read_bytes()
    for offset in (5 * PART, 6 * PART - 1):
        data = bytearray(whole)
        data[record.ends[0] + offset] ^= 0x80
        path.write_bytes(data)
        with pytest.raises((ChunkMismatch, PartlyLoaded), match="does not have the recorded digest"):
            load_rows(tmp_path, 17, 1)


def test_only_pieces_under_16_mib_have_digests_of_parts(tmp_path):
    long = np.zeros(17 << 20, np.uint8)
    save_all(tmp_path, 2, lambda rank: {"x": marked(long, (rank << 24,), ((1 << 20) if rank else (1 << 24),))}, step=1)
    mc.save(tmp_path / "alone", {"x": long[: 1 << 20]}, step=1)
    save_all(tmp_path / "packed", 2, rows_state, step=1, compression=mc.CompressionLevel.FAST)

    large, small = records(tmp_path)

    assert large.subchunks == ()
    assert [len(text) > 0 for text in small.subchunks] == [False, True]
    assert all(record.subchunks == () for record in (*records(tmp_path / "alone"), *records(tmp_path / "packed")))


@pytest.mark.parametrize(("root", "parts"), [("ranks-without-subchunks", False), ("ranks-with-subchunks", True)])
def test_what_ranks_wrote_with_and_without_digests_of_parts_stays_readable(root, parts):
    whole = (np.arange(1 << 20) // 4096).astype(np.uint8)
    assert [bool(record.subchunks) for record in records(GOLDEN / root)] == [parts] * 2

    def load(coordinator):
        live = {"x": marked(np.zeros_like(whole), (coordinator.rank * 300_000,), (300_000,)), "epoch": 0}
        mc.load(GOLDEN / root, into=live, coordinator=coordinator)
        return live["x"].array.tobytes()

    assert b"".join(all_well(on_ranks(3, load))) == whole[:900_000].tobytes()
    assert np.array_equal(mc.load(GOLDEN / root, verify="full")["x"], whole)


def test_a_reader_that_knows_no_digests_of_parts_reads_the_record_all_the_same():
    fields = [(name, kind) for name, kind in FileRecord.__annotations__.items() if name != "subchunks"]
    kinds = [(name, {"str": str, "int": int}.get(kind, tuple)) for name, kind in fields]
    older = msgspec.defstruct("Older", kinds, array_like=True)
    record = FileRecord("r0-0", 9, (9,), "", "", "", subchunks=("AAAA",))

    read = msgspec.json.decode(msgspec.json.encode(record), type=older)

    assert (read.name, read.ends, read.verified) == ("r0-0", (9,), 0)
