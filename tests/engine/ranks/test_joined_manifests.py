"""The manifests of ranks, joined: every array once and whole, only what is wanted, and no piece believed blindly."""

import hashlib

import msgspec
import numpy as np
import pytest
from tests.distributed.test_save_on_ranks import marked
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.engine.reading.gather_boxes import BoxGather, _merged
from model_checkpoint.engine.root import rank_manifests
from model_checkpoint.engine.root.rank_manifests import (
    join_ranks,
    piece_stored_shape,
    pieces_of,
    rank_files_only,
    read_rank,
    read_summary,
)
from model_checkpoint.errors import LayoutInvalid, NeedsCoordinator, Truncated
from model_checkpoint.manifest import decode, encode_rank
from model_checkpoint.plan.sharding.regions import ArrayBox
from model_checkpoint.storage.locate import open_store
from model_checkpoint.storage.memory import InMemoryStore

NAME = "step-00000001"
ROWS = np.arange(40.0).reshape(20, 2)


class Counted(InMemoryStore):
    """Memory that knows which files were opened."""

    def __init__(self, url):
        super().__init__(url)
        self.opened = []

    def open(self, name, file):
        self.opened.append(file.split("-")[1] if file.startswith("rank-") else file)
        return super().open(name, file)


def saved(root, world=2):
    """Rows on all ranks, an array that all have, and the store and the manifest of it all."""
    rows = np.array_split(range(len(ROWS)), world)

    def save(ranks):
        mine = rows[ranks.rank]
        part = marked(ROWS, (int(mine[0]), 0), (len(mine), 2))
        mc.save(root, {"same": np.arange(7), "rows": part}, step=1, coordinator=ranks)

    all_well(on_ranks(world, save))
    store = Counted(root)
    return store, decode(store.read_manifest(NAME), root)


@pytest.fixture
def root(tmp_path):
    return f"memory://{tmp_path.name}"


def forged(store, manifest, rank, change):
    """The manifest, where that of one rank has its pieces changed and is signed again."""
    record = manifest.ranks[rank]
    known = read_rank(store, manifest, record, "here")
    data = encode_rank(msgspec.structs.replace(known, pieces=tuple(change(list(known.pieces)))))
    content = store._bucket.published[NAME]
    content[record.name] = type(content[record.name])(data)
    signed = msgspec.structs.replace(record, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    ranks = [*manifest.ranks]
    ranks[rank] = signed
    return msgspec.structs.replace(manifest, ranks=tuple(ranks))


def test_an_array_in_one_piece_is_an_entry_like_any_other(root):
    store, manifest = saved(root)

    joined = join_ranks(store, manifest)

    names = {entry.name: number for number, entry in enumerate(manifest.entries)}
    assert list(joined.pieces) == [names["rows"]]
    assert [offsets for offsets, _ in joined.pieces[names["rows"]]] == [(0, 0), (10, 0)]
    assert joined.entries[names["same"]].file >= 0
    assert (names["rows"] in joined.pieces, names["same"] in joined.pieces) == (True, False)
    assert pieces_of(joined, names["same"]) == [((0,), names["same"])]
    assert len({entry.name for entry in joined.entries}) >= 2
    assert {file.name for file in joined.files} == {file for rank in manifest.ranks for file in rank.files}


@pytest.mark.parametrize("wanted", [None, {0: [ArrayBox((0, 3), (0, 3))]}])
def test_an_array_without_elements_needs_no_piece(root, wanted):
    all_well(on_ranks(2, lambda ranks: mc.save(root, {"none": np.zeros((0, 3))}, step=1, coordinator=ranks)))
    store = Counted(root)

    joined = join_ranks(store, decode(store.read_manifest(NAME), root), wanted)

    assert joined.pieces == {0: ()}
    assert mc.load(root)["none"].shape == (0, 3)


def test_what_one_process_wrote_has_nothing_to_join(root):
    mc.save(root, {"w": np.arange(3)}, step=1)
    store = Counted(root)
    manifest = decode(store.read_manifest(NAME), root)

    assert join_ranks(store, manifest) is manifest
    assert manifest.pieces == {}
    assert pieces_of(manifest, 0) == [((0,), 0)]
    assert read_summary(store, NAME, store.read_manifest(NAME)).files == manifest.files


def test_the_files_of_all_ranks_are_summed_up_with_and_without_their_manifests(root):
    store, manifest = saved(root)

    whole = read_summary(store, NAME, store.read_manifest(NAME))
    sizes = rank_files_only(manifest)

    assert whole.name == NAME
    assert {file.name: file.size for file in whole.files} == {file.name: file.size for file in sizes.files}
    assert len(whole.files) == sum(len(rank.files) for rank in manifest.ranks)


@pytest.mark.parametrize(("world", "opened", "first", "count"), [(8, range(8), 9, 3), (9, [3], 8, 2)])
def test_of_many_manifests_only_those_that_hold_something_wanted_are_read(root, world, opened, first, count):
    store, manifest = saved(root, world)
    number = next(i for i, entry in enumerate(manifest.entries) if entry.name == "rows")

    joined = join_ranks(store, manifest, {number: [ArrayBox((9, 0), (1, 1))]})

    assert sorted(store.opened) == [str(rank) for rank in opened]
    assert [offsets for offsets, _ in joined.pieces[number]] == [(first, 0)]
    held = [joined.entries[at] for _, at in joined.pieces[number]]
    assert [(one.name.partition("%")[0], one.shape, one.nbytes) for one in held] == [("rows", (count, 2), 16 * count)]


def test_nothing_wanted_is_nothing_joined(root):
    store, manifest = saved(root, 9)

    joined = join_ranks(store, manifest, {})

    assert (store.opened, joined.pieces) == ([], {})


@pytest.mark.parametrize(
    "change",
    [
        lambda pieces: pieces[:-1],
        lambda pieces: [*pieces, pieces[-1]],
        lambda pieces: [msgspec.structs.replace(one, offsets=(0,) * len(one.offsets)) for one in pieces],
        lambda pieces: [msgspec.structs.replace(one, entry=2) for one in pieces],
        lambda pieces: [msgspec.structs.replace(one, entry=-1) for one in pieces],
        lambda pieces: [
            msgspec.structs.replace(one, shape=(*one.shape, 1), offsets=(*one.offsets, 0)) for one in pieces
        ],
    ],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_pieces_that_do_not_make_up_the_whole_are_never_believed(root, change, wanted):
    store, manifest = saved(root)
    number = next(i for i, entry in enumerate(manifest.entries) if entry.name == "rows")
    spoilt = forged(store, manifest, 1, change)

    with pytest.raises(LayoutInvalid, match=r"the pieces of tensor .* do not make up the whole"):
        join_ranks(store, spoilt, {number: [ArrayBox((0, 0), (20, 2))]} if wanted else None)


def test_a_manifest_of_another_size_is_told_before_it_is_read(root):
    store, manifest = saved(root)
    record = msgspec.structs.replace(manifest.ranks[1], size=manifest.ranks[1].size + 1)

    with pytest.raises(Truncated, match=rf"has {record.size - 1} bytes, the manifest says {record.size}"):
        read_rank(store, manifest, record, "here")


def test_a_manifest_larger_than_any_is_refused_before_memory_is_taken_for_it(root, monkeypatch):
    store, manifest = saved(root)
    record = manifest.ranks[1]

    monkeypatch.setattr(rank_manifests, "_MOST", record.size)
    assert read_rank(store, manifest, record, "here").pieces
    monkeypatch.setattr(rank_manifests, "_MOST", record.size - 1)
    with pytest.raises(Truncated, match=rf"the manifest says {record.size}"):
        read_rank(store, manifest, record, "here")


def test_the_manifest_of_another_save_is_refused(root):
    store, manifest = saved(root)
    other = msgspec.structs.replace(manifest, attempt="f" * len(manifest.attempt))

    with pytest.raises(mc.CheckpointException, match="rank"):
        join_ranks(store, other)


def test_pieces_of_numbers_that_are_stored_as_several_keep_their_own_shape():
    assert piece_stored_shape((4, 6), None, (2, 3)) is None
    assert piece_stored_shape((4, 6), (4, 6, 2), (2, 3)) == (2, 3, 2)  # the parts of a complex number
    assert piece_stored_shape((4, 6), (4, 12), (2, 3)) == (2, 6)  # two numbers in a byte


# --- gathering -------------------------------------------------------------------------------------------------------


class Chunks:
    """Gives the chunks of files that lie in memory, and remembers which bytes."""

    def __init__(self, store, manifest):
        self.files = [store._bucket.published[NAME][record.name] for record in manifest.files]
        self.read = []

    def read_chunks(self, reads, place, take):
        for read in reads:
            assert place(read) is None
            self.read.append((read.file, read.start, read.stop))
            take(read, memoryview(bytes(self.files[read.file])[read.start : read.stop]))


@pytest.mark.parametrize("runs", [[(0, 320)], [(8, 24)], [(0, 8), (16, 32), (312, 320)], [(150, 170)], [(160, 160)]])
def test_runs_of_bytes_are_gathered_from_the_pieces_that_hold_them(root, runs):
    store, manifest = saved(root, 3)
    joined = join_ranks(store, manifest)
    number = next(iter(joined.pieces))
    runs = [(start // 8 * 8, stop // 8 * 8) for start, stop in runs]

    gather, rooms = BoxGather.of_runs(joined, number, runs)
    medium = Chunks(store, joined)
    gather.run(medium)

    assert [room.tobytes() for room in rooms] == [ROWS.tobytes()[start:stop] for start, stop in runs]
    assert len(set(medium.read)) == len(medium.read)


@pytest.mark.parametrize("save", [mc.save, lambda *args, **options: mc.save_async(*args, **options).result(30)])
def test_a_part_of_an_array_is_saved_only_by_ranks_that_save_together(root, save):
    with pytest.raises(NeedsCoordinator, match=r"rows.*coordinator="):
        save(root, {"rows": marked(ROWS, (5, 0), (3, 2))}, step=1)

    assert not open_store(root).exists()


def test_a_part_of_an_array_is_filled_only_by_ranks_that_load_together(root):
    saved(root)
    live = marked(np.zeros_like(ROWS), (5, 0), (3, 2))

    with pytest.raises(NeedsCoordinator, match=r"rows.*coordinator="):
        mc.load(root, into={"rows": live}, parts="rows")

    assert not live.array.any()


@pytest.mark.parametrize(
    ("runs", "merged"),
    [
        ([(0, 10), (2, 5)], [(0, 10)]),
        ([(2, 5), (0, 3)], [(0, 5)]),
        ([(0, 3), (3, 5)], [(0, 5)]),
        ([(0, 3), (4, 5), (9, 12), (10, 20)], [(0, 3), (4, 5), (9, 20)]),
    ],
)
def test_runs_that_touch_or_overlap_are_one(runs, merged):
    assert _merged(runs) == merged
