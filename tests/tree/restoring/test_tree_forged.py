"""Trees that no save has written: each refused by name, for the reason that is told."""

import abc
import enum
import sys
import types
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, same, stored, trip

from model_checkpoint.errors import (
    CheckpointException,
    ClassUnavailable,
    LimitExceeded,
    ManifestInvalid,
    StructureMismatch,
    UnsupportedType,
)
from model_checkpoint.manifest import Entry
from model_checkpoint.tree import prepare, select
from model_checkpoint.tree.arrays.buffers import ArrayBuffer
from model_checkpoint.tree.nodes.walk import array_nodes, arrays, leaves, plain_names
from model_checkpoint.tree.values.classes import Resolver

NO_NODE = r"is no node\. The manifest is damaged"


@dataclass
class Abstract(abc.ABC):
    x: int

    @abc.abstractmethod
    def run(self): ...


@dataclass
class Failure(Exception):
    x: int


@dataclass
class Stubborn:
    x: int

    @property
    def x(self):
        return 1

    @x.setter
    def x(self, value):
        raise KeyError("never")


class Bits(enum.Flag):
    A = 1
    B = 2


class Strict(enum.Flag):
    A = 1

    @classmethod
    def _missing_(cls, value):
        raise RuntimeError("no such bits")


class Loose(enum.Flag):
    A = 1

    @classmethod
    def _missing_(cls, value):
        return cls.A


class Number(enum.Enum):
    ONE = 1


def here(cls):
    return f"{__name__}:{cls.__qualname__}"


def entry(dtype="float32", shape=(4,), nbytes=16, kind="numpy"):
    return Entry("w", kind, dtype, shape, "F32", None, 0, 0, nbytes, "")


# --- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cls", [Abstract, Failure, Bits, torch.Size, type("Bare", (), {})], ids=lambda cls: cls.__name__
)
@pytest.mark.parametrize("tag", ["dc", "nt"])
def test_only_what_can_be_made_from_its_fields_is_a_record(cls, tag):
    name = f"{cls.__module__}:{cls.__qualname__}"

    with pytest.raises(ManifestInvalid, match=r"^x: class .*: no dataclass or namedtuple that can be made from its"):
        prepare(["d", ["x", [tag, name, ["x"], [1]]]], [], types=[cls])


def test_a_record_with_the_tag_of_another_kind_is_refused():
    pair = types.new_class("Pair", (tuple,), {}, lambda body: body.update(_fields=("x",), __module__="m"))

    with pytest.raises(ManifestInvalid, match=rf"^x: tree: \['nt', .*Stubborn'\] {NO_NODE}"):
        prepare(["d", ["x", ["nt", here(Stubborn), ["x"], [1]]]], [])
    with pytest.raises(ManifestInvalid, match=rf"^x: tree: \['dc', 'm:Pair'\] {NO_NODE}"):
        prepare(["d", ["x", ["dc", "m:Pair", ["x"], [1]]]], [], types=[pair])


def test_a_field_that_does_not_take_its_value_is_told():
    with pytest.raises(ClassUnavailable, match=r"Stubborn: its field x does not take the saved value \(KeyError: "):
        prepare(["dc", here(Stubborn), ["x"], [1]], []).finish()


def test_a_class_that_is_live_in_its_place_need_not_be_given():
    assert Resolver().find("gone:Bits", Bits) is Bits
    with pytest.raises(ClassUnavailable, match="class gone:Other: not at hand"):
        Resolver().find("gone:Other", Bits)
    with pytest.raises(ClassUnavailable, match=r"class :x: not at hand.*Import its module first"):
        Resolver().find(":x")


def test_a_module_that_waits_to_be_loaded_goes_on_waiting():
    class Waiting(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(f"asked for {name}")

    sys.modules["waiting_module"] = Waiting("waiting_module")
    try:
        with pytest.raises(ClassUnavailable, match="not at hand"):
            Resolver().find("waiting_module:Thing")
        with pytest.raises(ClassUnavailable, match="not at hand"):
            Resolver().find("waiting_module:Thing.__dict__.x")
    finally:
        del sys.modules["waiting_module"]


def test_a_flag_whose_bits_have_changed_their_names_is_refused():
    tree, entries, _, _ = stored([Bits.A, Bits.A | Bits.B, Bits(0)])
    turned = enum.Flag("Bits", {"A": 2, "B": 1}, module=__name__)

    assert prepare(tree, entries).finish() == [Bits.A, Bits.A | Bits.B, Bits(0)]
    with pytest.raises(ClassUnavailable, match=r"^0: enum .*Bits: member A was saved with value 1, now it is 2"):
        prepare(tree, entries, types=[turned])


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (["e", here(Bits), None, "1"], "a member without a name is a number, got '1'"),
        (["e", here(Bits), "C", 1.5], "now it is gone"),
        (["e", here(Bits), "A", True], "member A was saved with value True, now it is 1"),
        (["e", here(Strict), None, 6], "member None was saved with value 6, now it is gone"),
        (["e", here(Loose), None, None], "a member without a name is a number, got None"),
        (["e", here(Number), "FIRST", 1], "member FIRST was saved with value 1, now it is gone"),
        (["e", "enum:Flag", None, 1], "is a base of enums and has no members"),
        (["e", here(Bits), None, 64], "now it is gone"),
        (["e", here(Abstract), "A", 1], "saved as an enum, now it is none"),
        (["e", here(Bits), 5, 1], "is no node"),
        (["e", here(Bits), "A"], "is no node"),
    ],
    ids=str,
)
def test_a_member_that_no_enum_has_is_refused(node, told):
    with pytest.raises(CheckpointException, match=told):
        prepare(node, [])


# --- arrays and views ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        ["a", 0, "g"], ["a", 0, "p"], ["a", 0, "z"], ["a", 0, "q", 1], ["a", True], ["a", 1], ["a"],
        ["v", 0, "numpy", "int32", [4], None, 0, "g", 0], ["v", 0, "numpy", "int32", [4], None, 0, "", 0, 0],
        ["v", 0, "numpy", "int32", [True], None, 0, "", 0], ["v", 0, "numpy", "int32", [4], [4.0], 0, "", 0],
        ["v", 0, "numpy", "int32", [4], None, 1, "", 0], ["v", 0, "numpy", "int32", [4], None, "0", "", 0],
        ["v", 0, "numpy", "int32", [5], None, 0, "", 0], ["v", 0, "numpy", "int32", [4], None, 4, "", 0],
        ["v", 0, "numpy", "int32", [2], [-4], 0, "", 0], ["v", 0, "numpy", "int32", [1] * 65, None, 0, "", 0],
        ["v", 0, "numpy", "int32", [0], [2**62 + 1], 0, "", 0],
        ["v", 0, "numpy", "int32", [0, 2**62 + 1], None, 0, "", 0],
        ["v", 0, "numpy", "int32", [4], "c", 0, "", 0], ["v", 0, "numpy", "int32", [4]],
    ],
    ids=str,
)  # fmt: skip
def test_array_nodes_that_no_save_writes_are_refused(node):
    with pytest.raises(ManifestInvalid, match=rf"^w: tree: .*{NO_NODE}"):
        prepare(["d", ["w", node]], [entry("int32")])


@pytest.mark.parametrize(
    ("node", "want"),
    [
        (["v", 0, "numpy", "int32", [2], [-4], 4, "", 0], [1, 0]),
        (["v", 0, "numpy", "int32", [4], None, 0, "", 0], [0, 1, 2, 3]),
        (["v", 0, "numpy", "int32", [1], None, 12, "q", 0], [3]), (["v", 0, "numpy", "int32", [], None, 8, "", 0], 2),
        (["v", 0, "numpy", "int32", [0], [2**62], 16, "", 0], []), (["a", 0, "q"], [0, 1, 2, 3]),
        (["a", 0, ""], [0, 1, 2, 3]),
    ],
    ids=str,
)  # fmt: skip
def test_views_at_the_very_edges_are_given(node, want):
    blob = np.arange(4, dtype=np.int32).tobytes()

    assert fill(prepare(node, [entry("int32")]), [blob]).tolist() == want


@pytest.mark.parametrize(
    "bad",
    [entry(shape=(1,) * 64 + (4,)), entry(shape=(-1, -4)), entry(shape=(5,)), entry(nbytes=17), entry(shape=())],
    ids=str,
)
def test_a_shape_and_its_bytes_must_agree(bad):
    with pytest.raises(LimitExceeded, match=r"^w: shape \[.*\] of float32 does not take 1[67] bytes"):
        prepare(["d", ["w", ["a", 0]]], [bad])


def test_an_array_of_as_many_dimensions_as_numpy_counts_comes_back():
    array = np.arange(4.0).reshape((1,) * 63 + (4,))

    same(trip({"w": array, "v": array[..., ::2]}), {"w": array, "v": array[..., ::2]})


def test_text_bytes_of_another_dtype_are_refused():
    with pytest.raises(ManifestInvalid, match=r"^w: dtype float32: bytes are stored as uint8"):
        prepare(["d", ["w", ["a", 0]]], [entry(kind="bytes")])
    with pytest.raises(ManifestInvalid, match=r"^w: arrays of kind 'pickle': unknown"):
        prepare(["d", ["w", ["a", 0]]], [entry(kind="pickle")])
    with pytest.raises(UnsupportedType, match=r"^framework: 'mxnet' is unknown, expected one of numpy, torch, jax, "):
        prepare(["a", 0], [entry()], framework="mxnet")
    with pytest.raises(UnsupportedType, match=r"^w: dtype int9: torch cannot hold it"):
        prepare(["d", ["w", ["a", 0]]], [entry("int9", kind="torch")])


@pytest.mark.parametrize(("at", "taken"), [(0, True), (16, True), (32, True), (8, False), (4, False)])
def test_memory_is_adopted_where_wide_elements_may_lie(at, taken):
    """Vector loads take sixteen bytes at a time; no processor asks for more."""
    store = np.zeros(32 * 40, np.uint8)
    base = -store.__array_interface__["data"][0] % (17 * 16)  # so that no other small number divides all addresses
    data = memoryview(store)[base + 16 + at : base + 16 + at + 32]

    buffer = ArrayBuffer(entry("<U8", (1,), 32), name="w", framework=None)

    assert buffer.adopt(data) is taken
    assert not ArrayBuffer(entry("<U8", (2,), 64), name="w", framework=None).adopt(data)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_adopted_memory_is_the_array(kind):
    store = bytearray(np.arange(5.0).tobytes())
    buffer = ArrayBuffer(entry("float64", (5,), 40, kind), name="w", framework=None)
    frozen = ArrayBuffer(entry("float64", (5,), 40, kind), name="w", framework=None)
    turned = ArrayBuffer(entry(">float64", (5,), 40), name="w", framework=None)
    text = ArrayBuffer(entry("uint8", (40,), 40, "bytes"), name="w", framework=None)
    empty = ArrayBuffer(entry("float64", (0,), 0, kind), name="w", framework=None)

    assert buffer.adopt(memoryview(store))
    assert frozen.adopt(memoryview(bytes(store))) is (kind == "numpy")
    assert [one.adopt(memoryview(store)) for one in (turned, text)] == [False, False]
    assert not empty.adopt(memoryview(b""))
    store[:8] = np.array([9.0]).tobytes()
    assert buffer.value("", None).tolist() == [9, 1, 2, 3, 4]


# --- containers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tree",
    [
        ["m", "rng", "x", ["l", []]], ["m", "rng", "x", 5], ["d", [["zzz"], 1]], ["d", [["l", [1]], 1]],
        ["s", [["d", []]]],
        ["s", [1], 2], ["fs", 5], ["fs", [["s", [1]]]], ["d", [["t"], 1]],
        ["o", ["a", 1], True, ["d", ["x", ["a", 0]]]],
        ["m", "optimizer", "x", ["d", ["state", ["d", [["l", []], 1]]]], []],
        ["m", "optimizer", "x", ["d", ["state", ["d", []], ["l", []], 1]], []],
        ["m", "optimizer", "x", ["d", ["state", ["d", []]]], [5]], ["m", "optimizer", "x", ["d", ["state"]], []],
        ["m", "optimizer", "x", ["d", []], [["a"]]], ["m", "optimizer", "x", ["d", []], [[5, [1]]]],
        ["m", "optimizer", "x", ["d", []], [["a", 1]]], ["m", "optimizer", "x", ["d", []], 5], ["m", 1, "x", 1],
        ["nt", "x:y", ["a"], []], ["dc", 5, [], []], ["x", 5, 1], ["x", "name"], ["l"], ["l", [], 1], ["t", {}],
        ["d", []  , True, ["zzz"]],
    ],
    ids=str,
)  # fmt: skip
def test_containers_that_no_save_writes_are_refused(tree):
    with pytest.raises(ManifestInvalid, match=r"is no (node|value)"):
        prepare(["d", ["x", tree]], [entry()])


def nested(count, inner=1, tag="l"):
    for _ in range(count):
        inner = [tag, [inner]]
    return inner


def test_nesting_beyond_what_a_save_writes_is_refused_and_the_deepest_is_not():
    looks = {
        (lambda tree: list(leaves(tree))): 129,
        array_nodes: 129,
        arrays: 128,
        (lambda tree: prepare(tree, [])): 129,
    }
    for look, deepest in looks.items():
        look(nested(deepest))
        with pytest.raises(ManifestInvalid, match="nesting deeper than any save writes"):
            look(nested(deepest + 1))
    assert prepare(nested(128), []).finish()


def test_leaves_of_every_kind_are_counted_once_and_in_order():
    tree = ["d", ["a", ["a", 0], "n", ["l", []], "s", ["s", [1]], "b", ["d", ["x", ["v", 0], "y", ["-"]]], "k", 3]]

    assert [name for name, _ in leaves(tree)] == ["a", "n", "s", "b.x", "k"]
    assert [name for name, _ in arrays(tree)] == ["a", "b.x"]
    assert [node[0] for node in array_nodes(tree)] == ["a", "v"]
    assert plain_names(tree) == ["n", "s", "k"]
    assert plain_names(["l", [["l", [1, 2]], ["t", [["a", 0], 7]], ["l", [["a", 0], ["v", 0]]], ["d", []]]]) == [
        "0.0", "0.1", "1.1", "3",
    ]  # fmt: skip
    assert plain_names(["l", [["torch.dtype", "float32"], ["a", 1]]]) == ["0"]
    assert plain_names(["l", [["x", "a", 1]]]) == ["0"]
    assert plain_names(["a", 0]) == []
    assert plain_names(7) == ["%r"]


def test_short_and_odd_nodes_are_named_and_refused():
    moved = ["m", "optimizer", "a:B", ["d", ["state", ["l", [7, 8]], "param_groups", ["l", []]]], [["w", [2]]]]

    assert [name for name, _ in leaves(moved)] == ["state.0", "state.1", "param_groups"]
    assert [name for name, _ in leaves(["o", ["a.b", 1]])] == ["a%2Eb"]
    assert [name for name, _ in leaves(["o", ["a.b", 1], True])] == ["a.b"]
    for odd in (["a"], ["a", -1], ["a", 1], ["a", True], ["v"], ["v", 0, "", "float32"]):
        with pytest.raises(ManifestInvalid, match=NO_NODE):
            prepare(["d", ["x", odd]], [entry()], into={"x": torch.nn.Linear(1, 1).weight})
    for odd in (True, ["f", "0x1p0"]):
        with pytest.raises(ManifestInvalid, match=r"is no (node|value)"):
            prepare(["d", ["x", ["range", 0, odd, 1]]], [])


def test_a_selection_that_leaves_nothing_of_a_record_is_empty():
    tree, entries, _, _ = stored({"b": Bits.A, "r": Stubborn.__new__(Stubborn), "s": {1}, "e": []})

    assert select(tree, lambda name: name in ("s", "e")) == ["d", ["s", ["s", [1]], "e", ["l", []]]]
    assert prepare(select(tree, lambda name: name == "b"), entries).finish() == {"b": Bits.A}
    with pytest.raises(StructureMismatch, match=r"fields|into: the checkpoint"):
        prepare(["d", ["r", ["dc", here(Stubborn), ["x"], [["-"]]]]], [])
