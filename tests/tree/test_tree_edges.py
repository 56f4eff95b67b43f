"""The last case on either side of each limit: names, windows, nesting, generators, codecs, optimizer state."""

from ast import literal_eval
from collections import OrderedDict

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, loaded, same, stored, trip

from model_checkpoint.errors import CheckpointException, StructureMismatch, UnsupportedType
from model_checkpoint.tree import flatten, prepare, register_codec, rename, rng_state, select, specs
from model_checkpoint.tree.arrays.array_ref import HostMemory, extent, pieces
from model_checkpoint.tree.generators.rng import RngState
from model_checkpoint.tree.nodes.names import brief, final, segment
from model_checkpoint.tree.nodes.rename import rename as moved
from model_checkpoint.tree.nodes.specs import part_at
from model_checkpoint.tree.restoring.torch_optimizers import load_exactly
from model_checkpoint.tree.values.numpy_generators import numpy_state

# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 49, 50, 51, 199, 200])
def test_a_name_of_up_to_two_hundred_bytes_stays(count):
    assert final("k" * count) == "k" * count


@pytest.mark.parametrize(
    "name", ["k" * 201, "\u00e4" * 101, "k" * 158 + "%41" + "k" * 60, "k" * 159 + "%41" + "k" * 60]
)
def test_a_longer_name_ends_in_a_digest_and_never_in_half_an_escape(name):
    cut = final(name)
    head, mark, digest = cut.rpartition("%h")

    assert len(cut.encode()) <= 200
    assert (mark, len(digest)) == ("%h", 32)
    assert name.startswith(head)
    assert not head[-2:].endswith(("%", "%4"))
    assert final(name + "x") != cut


def test_the_reserved_name_and_the_empty_one_are_replaced():
    assert (final("__metadata__"), final(""), final("a.__metadata__")) == ("%5F_metadata__", "%r", "a.__metadata__")


def test_keys_of_every_kind_have_a_name_of_their_own():
    keys = [None, True, 1, "1", ["i", "0x10"], ["f", "0x1p0"], ["b", "MQ=="], ["b", "*"], ["t", [1]], ["f", "nonsense"]]

    assert [segment(key) for key in keys[:7]] == ["%n", "%bTrue", "%i1", "1", "%i16", "%f1%2E0", "%x31"]
    assert all(segment(key).startswith("%j") for key in keys[7:])
    assert len({segment(key) for key in keys}) == len(keys)


def test_numbers_of_numpy_may_be_keys():
    state = {np.int64(3): 1, np.float32(0.5): {np.str_("a")}}

    assert trip(state) == state
    assert [type(key) for key in trip(state)] == [np.int64, np.float32]


def test_an_endless_value_is_told_briefly():
    assert brief(10**5000) == "an integer of 16610 bits"
    assert brief([[[[[[1]]]]]]) == "[[[[[...]]]]]"
    assert len(brief("a" * 500)) == 120


# --- moving and finding parts ----------------------------------------------------------------------------------------


def test_a_new_name_is_a_text_for_a_text_key():
    tree = stored({"a": {"x": 1, "y": 2}, "b.c": {"d": 3}})[0]

    with pytest.raises(StructureMismatch, match=r"^a\.x: rename= must return a text, got None"):
        rename(tree, lambda name: None)
    with pytest.raises(StructureMismatch, match=r"rename= moves leaves to string keys only, '%i1' stands for another"):
        rename(tree, lambda name: name.replace("a.x", "a.%i1"))
    assert rename(tree, lambda name: name.replace("a.x", "a.%_")) == stored({"a": {"y": 2, "": 1}, "b.c": {"d": 3}})[0]
    assert rename(tree, lambda name: name.replace("a.x", "a.p%2Eq"))[1][1] == ["d", ["y", 2, "p.q", 1]]
    assert rename(tree, lambda name: name.replace("a.", "z.")) == stored({"b.c": {"d": 3}, "z": {"x": 1, "y": 2}})[0]


def test_all_that_is_moved_leaves_nothing():
    assert moved(["d", ["a", 1]], lambda name: "b") == ["d", ["b", 1]]
    assert moved(["d", ["a", ["d", ["x", 1]]]], lambda name: f"n.{name}") == ["d", ["n", ["d", ["a", ["d", ["x", 1]]]]]]
    assert moved(["d", ["a", ["l", [1, ["a", 0]]]]], lambda name: f"b{name[1:]}") == ["d", ["b", ["l", [1, ["a", 0]]]]]


def test_a_part_is_found_by_its_whole_name_only():
    tree = ["d", ["a", ["d", ["b", ["l", [1, 2]]]], "ab", 3, "w", ["a", 0]]]

    assert part_at(tree, "a.b") == ["l", [1, 2]]
    assert part_at(tree, "a.b.1") == 2
    assert part_at(tree, "ab") == 3
    assert part_at(tree, "w") == ["a", 0]
    assert part_at(tree, "%r") == tree
    assert part_at(tree, "a.c") == part_at(tree, "w.0") == part_at(tree, "b") == ["-"]


def test_an_optimizer_that_knows_no_parameters_is_a_part_like_any_other():
    tree = ["d", ["o", ["m", "optimizer", "x:y", ["d", ["state", ["d", ["a", 1]], "lr", 2]]]]]

    assert select(tree, lambda name: name == "o.lr") == ["d", ["o", ["m", "optimizer", "x:y", ["d", ["lr", 2]]]]]
    assert rename(tree, lambda name: name) == tree
    assert rename(tree, lambda name: f"p{name[1:]}")[1][0] == "p"
    assert prepare(tree, []).finish() == {"o": {"state": {"a": 1}, "lr": 2}}


def test_an_array_says_where_it_is_stored():
    tree, entries, _, _ = stored({"a": np.ones(2), "b": torch.ones(3)})

    assert [(spec.name, spec.entry, spec.kind, spec.shape) for spec in specs(tree, entries)] == [
        ("a", 0, "numpy", (2,)), ("b", 1, "torch", (3,)),
    ]  # fmt: skip


# --- memory ----------------------------------------------------------------------------------------------------------


def test_an_array_without_elements_reaches_nowhere():
    assert extent((0, 5), (40, 8), 8) == (0, 0)
    assert extent((), (), 8) == (0, 8)
    assert extent((2, 3), (-24, 8), 8) == (24, 48)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (3, 1, 2), (2, 3, 4)])
def test_pieces_hold_every_range_of_elements_in_order(shape):
    array = np.arange(int(np.prod(shape))).reshape(shape)
    turned = array.T

    for whole in (array, turned):
        flat = whole.reshape(-1).tolist()
        for start in range(len(flat) + 1):
            for stop in range(start, len(flat) + 1):
                parts = [part.reshape(-1).tolist() for part in pieces(whole, start, stop)]
                assert [item for part in parts for item in part] == flat[start:stop]
                assert all(parts)


def test_shared_memory_is_shown_in_windows_and_never_written():
    store = np.arange(8, dtype=np.uint8)
    memory = HostMemory(store.__array_interface__["data"][0], 8, [store])

    assert bytes(memory.window(2, 5)) == b"\x02\x03\x04"
    assert memory.window(0, 8).readonly


# --- what a save refuses ---------------------------------------------------------------------------------------------


def test_arrays_beside_a_state_dict_are_refused():
    state = OrderedDict(w=np.ones(1))
    state._metadata = {"x": np.ones(1)}

    with pytest.raises(UnsupportedType, match=r"^m: its _metadata holds arrays, which torch never puts there"):
        flatten({"m": state})


def test_a_stack_without_room_is_a_typed_error():
    def deep(left):
        return deep(left - 1) if left else flatten(nested)

    nested = []
    for _ in range(100):
        nested = [nested]

    def down():
        for left in range(700, 1000, 5):
            deep(left)

    with pytest.raises((UnsupportedType, RecursionError), match=r"nested deeper than the stack has room|recursion"):
        down()


def test_bytes_up_to_four_kibibytes_lie_in_the_tree_and_may_be_keys():
    assert flatten([b"a" * 4096]).leaves == []
    assert [leaf.kind for leaf in flatten([b"a" * 4097, bytearray(4097)]).leaves] == ["bytes", "bytearray"]
    assert trip({b"a" * 4096: 1}) == {b"a" * 4096: 1}
    with pytest.raises(UnsupportedType, match=r"a dict key of type bytes cannot be saved.*up to 4 KiB"):
        flatten({b"a" * 4097: 1})


def test_a_codec_that_fails_is_named_with_its_place():
    class Picky:
        def __init__(self, value):
            self.value = value

    def picky(value):
        raise ArithmeticError("not this one")

    register_codec(Picky, lambda one: one.value, picky, name="tests.Picky")

    with pytest.raises(CheckpointException, match=r"^a\.b: decode of the codec tests\.Picky failed \(Arithmetic"):
        trip({"a": {"b": Picky(3)}})


def test_a_class_that_is_defined_anew_takes_its_name_over_and_another_does_not():
    def made():
        class Reloaded:
            pass

        return Reloaded

    first, second = made(), made()
    for cls, code in ((first, 1), (second, 2)):
        register_codec(cls, lambda one, code=code: code, lambda saved: saved)

    assert trip([second()]) == [2]
    with pytest.raises(UnsupportedType, match=r"register_codec: the name 'test.*Reloaded' belongs to .*, got int"):
        register_codec(int, int, int, name=f"{first.__module__}.{first.__qualname__}")


@pytest.mark.parametrize("state", [7, None, [1, [2]], (), {"a": [3]}, "text"], ids=repr)
def test_the_state_of_an_object_may_be_anything(state):
    class Any:
        def state_dict(self):
            return state

        def load_state_dict(self, given):
            self.given = given

    live = Any()

    same(trip({"x": Any()}), {"x": state})
    loaded({"x": Any()}, {"x": live})
    same(live.given, state)


# --- generators ------------------------------------------------------------------------------------------------------


def test_half_a_snapshot_of_the_generators_is_refused():
    whole = rng_state().state_dict()

    for lacking in ("python", "numpy"):
        with pytest.raises(StructureMismatch, match=rf"^rng: the snapshot lacks \['{lacking}'\]"):
            RngState({key: value for key, value in whole.items() if key != lacking}).restore()
    more = {**whole, "torch": {**whole["torch"], "cuda": [whole["torch"]["cpu"]] * (torch.cuda.device_count() + 1)}}
    with pytest.raises(StructureMismatch, match=r"^rng: saved with \d+ CUDA generators, this machine has \d+ devices"):
        RngState(more).restore()
    RngState(whole).restore()


def test_positions_at_the_ends_of_a_generators_words_are_taken():
    for position in (0, 624):
        state = np.random.RandomState(1).get_state(legacy=False)
        state["state"]["pos"] = position
        assert numpy_state(state)["state"]["pos"] == position
    for position in (-1, 625):
        state["state"]["pos"] = position
        with pytest.raises(ValueError, match=f"a generator at position {position} of its words"):
            numpy_state(state)


def test_an_old_generator_over_a_new_one_is_refused():
    with pytest.raises(CheckpointException, match=r"a RandomState over PCG64; NumPy itself sets only MT19937"):
        flatten({"r": np.random.RandomState(np.random.PCG64(1))})


def test_a_seed_with_a_pool_of_no_size_is_refused():
    tree, entries, blobs, _ = stored({"g": np.random.default_rng(1)})

    def forged(size):
        return str(tree).replace("'pool_size', 4", f"'pool_size', {size}")

    assert forged(4) == str(tree)
    for size in (0, -1, 10**9):
        with pytest.raises(CheckpointException, match=f"a seed sequence with a pool of {size}"):
            fill(prepare(literal_eval(forged(size)), entries), blobs)


# --- optimizer state -------------------------------------------------------------------------------------------------


def test_state_of_any_form_keeps_its_dtypes_and_its_texts():
    weight = torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16))
    optimizer = torch.optim.Adam([weight])
    state = {
        "step": torch.tensor(1.0), "list": [torch.ones(2), 5], "pair": (torch.ones(1), torch.ones(1).double()),
        "deep": {"x": torch.ones(3)}, "word": "a", "words": ["b", ("c",)], "half": torch.ones(2, dtype=torch.bfloat16),
    }  # fmt: skip

    load_exactly(optimizer, {**optimizer.state_dict(), "state": {0: state}})

    same(dict(optimizer.state[weight]), state)


def test_state_as_large_as_its_parameter_lies_as_that_does():
    weight = torch.nn.Parameter(torch.zeros(3, 2).t())
    optimizer = torch.optim.SGD([weight], momentum=0.5)
    buffer, other = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2)

    load_exactly(optimizer, {**optimizer.state_dict(), "state": {0: {"momentum_buffer": buffer, "other": other}}})

    mine = optimizer.state[weight]
    assert mine["momentum_buffer"].stride() == weight.stride() == (1, 2)
    assert torch.equal(mine["momentum_buffer"], buffer)
    assert mine["other"].stride() == (2, 1)


def test_state_of_parameters_that_were_never_stepped_is_nothing():
    weight, other = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight, other], momentum=0.5)
    weight.grad = torch.ones(1)
    optimizer.step()
    live = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1)) for _ in range(2)], momentum=0.5)

    loaded({"o": optimizer}, {"o": live})

    same(live.state_dict(), optimizer.state_dict())
    assert list(live.state_dict()["state"]) == [0]
