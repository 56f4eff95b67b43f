"""Which files an incremental save repeats: only whole ones, and never one with a tensor that changed."""

from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.manifest import Entry, FileRecord, Manifest
from model_checkpoint.options import CheckpointFormat, LayoutLimits
from model_checkpoint.plan import comparable, reassign
from model_checkpoint.state import Leaf

LIMITS = LayoutLimits(file_bytes=100)
SHARDS = CheckpointFormat.MULTI_SHARD


class Bytes:
    def __init__(self, nbytes):
        self.nbytes = nbytes


def leaf(name, nbytes=10, *, dtype="uint8", frozen=False):
    return Leaf(name, "numpy", dtype, (nbytes,), "U8", None, Bytes(nbytes), 1, None, frozen)


def parent(files):
    """A manifest of ``{file name: [tensor, ...]}``, ten bytes each."""
    entries, records = [], []
    for number, (file, names) in enumerate(files.items()):
        records.append(FileRecord(file, 4096, (4096,), "", "", ""))
        for i, name in enumerate(names):
            entries.append(Entry(name, "numpy", "uint8", (10,), "U8", None, number, 10 * i, 10 * i + 10, ""))
    fields = {"id": "p", "attempt": "p", "name": "p", "step": 1, "created": "", "layout": "", "compression": ""}
    return Manifest(**fields, entries=tuple(entries), files=tuple(records))


def plans(leaves, before, unchanged, usable, layout=SHARDS):
    pairs = comparable(leaves, layout, before)
    same = {i: entry for i, entry in pairs.items() if leaves[i].name in unchanged}
    return reassign(leaves, layout, LIMITS, unchanged=same, parent=before, usable=usable)


def test_a_file_of_which_all_is_unchanged_is_repeated_under_its_own_names():
    leaves = [leaf("b"), leaf("a"), leaf("c")]

    first, second = plans(leaves, parent({"r0-0": ["a", "b"], "r0-1": ["c"]}), {"a", "b"}, {0, 1})

    assert (first.repeats, list(first.leaves), list(first.names)) == (0, [1, 0], ["a", "b"])
    assert (second.repeats, list(second.names)) == (None, ["c"])


def test_one_changed_tensor_parts_its_file_into_settled_and_moving():
    leaves = [leaf("a"), leaf("b"), leaf("c")]

    files = plans(leaves, parent({"r0-0": ["a", "b", "c"]}), {"a", "c"}, {0})

    assert [(file.repeats, list(file.names)) for file in files] == [(None, ["a", "c"]), (None, ["b"])]


def test_a_file_of_which_a_tensor_is_gone_is_not_repeated():
    files = plans([leaf("a")], parent({"r0-0": ["a", "b"]}), {"a"}, {0})

    assert [file.repeats for file in files] == [None]


def test_a_file_that_may_not_be_used_is_written_again_with_other_settled_tensors():
    leaves = [leaf("a"), leaf("b"), leaf("c", frozen=True)]

    files = plans(leaves, parent({"r0-0": ["a"], "r0-1": ["b"]}), {"a", "b"}, set())

    assert [(file.repeats, list(file.names)) for file in files] == [(None, ["a", "b", "c"])]


def test_without_a_parent_frozen_tensors_are_kept_apart():
    leaves = [leaf("a"), leaf("b", frozen=True), leaf("c")]

    files = reassign(leaves, SHARDS, LIMITS, unchanged={}, parent=None, usable=())

    assert [list(file.names) for file in files] == [["b"], ["a", "c"]]


def test_only_a_tensor_of_the_same_name_dtype_shape_and_storage_may_be_unchanged():
    before = parent({"r0-0": ["a"]})
    same = leaf("a")

    others = [
        leaf("b"),
        leaf("a", dtype="int8"),
        leaf("a", 20),
        Leaf("a", "numpy", "uint8", (2, 5), "U8", None, Bytes(10), 1),
        Leaf("a", "numpy", "uint8", (10,), "I8", None, Bytes(10), 1),
        Leaf("a", "numpy", "uint8", (10,), "U8", (10,), Bytes(10), 1),
        Leaf("a", "numpy", "uint8", (10,), "U8", None, Bytes(11), 1),
    ]
    assert comparable([same], SHARDS, before) == {0: 0}
    assert [comparable([other], SHARDS, before) for other in others] == [{}] * len(others)


def test_tensors_of_a_consolidated_model_are_known_by_their_own_names():
    leaves = [leaf("model.a"), leaf("a")]
    before = parent({"model-0-x": ["a"], "r0-1-x": ["a"]})

    files = plans(leaves, before, {"model.a"}, {0, 1}, CheckpointFormat.CONSOLIDATED)

    assert [(file.part, file.repeats, list(file.leaves)) for file in files] == [("model", 0, [0]), ("", None, [1])]


@given(data=st.data())
def test_every_leaf_has_exactly_one_place_and_no_repeated_file_holds_a_changed_one(data):
    names = data.draw(st.lists(st.sampled_from("abcdefghij"), unique=True))
    leaves = [leaf(name, frozen=data.draw(st.booleans())) for name in names]
    old = data.draw(st.lists(st.sampled_from("abcdefghijkl"), unique=True))
    cut = data.draw(st.integers(0, len(old)))
    before = parent({"r0-0": old[:cut], "r0-1": old[cut:]})
    unchanged = data.draw(st.sets(st.sampled_from("abcdefghij")))
    usable = data.draw(st.sets(st.sampled_from([0, 1])))

    files = plans(leaves, before, unchanged, usable)

    assert sorted(i for file in files for i in file.leaves) == list(range(len(leaves)))
    for file in files:
        assert [leaves[i].name for i in file.leaves] == list(file.names)
        if file.repeats is not None:
            assert file.repeats in usable
            assert set(file.names) <= unchanged
            assert list(file.names) == [old[:cut], old[cut:]][file.repeats]
        else:
            settled = {leaves[i].frozen or (leaves[i].name in unchanged and leaves[i].name in old) for i in file.leaves}
            assert len(settled) == 1
            assert sum(leaves[i].nbytes for i in file.leaves) <= LIMITS.file_bytes
