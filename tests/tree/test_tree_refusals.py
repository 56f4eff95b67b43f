"""Unknown types, foreign classes and hostile trees: refused with path and cure, nothing executed or imported."""

import collections
import enum
import functools
import subprocess
import sys
import types
from dataclasses import dataclass, field, make_dataclass
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, same, stored, trip

from model_checkpoint.errors import (
    CheckpointException,
    ClassUnavailable,
    LimitExceeded,
    StructureMismatch,
    UnsupportedType,
)
from model_checkpoint.manifest import Entry
from model_checkpoint.tree import flatten, prepare, register_codec, select, specs


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: object = field(default=None, compare=False)


class Pair(NamedTuple):
    left: int
    right: int


class Zone(tzinfo):
    """A time zone of the caller's own."""

    def utcoffset(self, moment):
        return timedelta(hours=1)


class Mode(enum.Enum):
    FAST = "fast"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (
            {"model": {"layers": [1, 2, 3, {"fn": print}]}},
            r"^model\.layers\[3\]\.fn: .*builtin_function.*register_codec",
        ),
        ({"a b": {3: object()}}, r"^\['a b'\]\[3\]: cannot save a value of type builtins\.object\. Convert it"),
        ({"d": collections.UserDict()}, r"^d: .*UserDict.*register_codec\(UserDict"),
        ({"s": type("MyStr", (str,), {})("x")}, r"^s: .*MyStr"),
        ({"k": {object: 1}}, r"^k\[.*\]: a dict key of type type cannot be saved"),
        ({"t": torch.ones(2, 2).max(0)}, r"^t: .*torch\.return_types\.max"),
        ({"z": datetime(2026, 1, 1, tzinfo=Zone())}, r"^z: cannot save the time zone .*Use datetime\.timezone or"),
        (object(), r"^state: cannot save"),
    ],
    ids=["function", "object", "UserDict", "str", "key", "structseq", "zone", "root"],
)
def test_unknown_types_are_refused_with_path_and_cure(state, told):
    with pytest.raises(UnsupportedType, match=told):
        flatten(state)


def test_cycles_and_bottomless_nesting_are_refused():
    ring = {"a": []}
    ring["a"].append(ring)
    deep = []
    for _ in range(500):
        deep = [deep]

    with pytest.raises(UnsupportedType, match=r"^x\.a\[0\]: the container holds itself.*Break the cycle"):
        flatten({"x": ring})
    with pytest.raises(UnsupportedType, match=r"nested deeper than 120"):
        flatten(deep)
    twice = [1]
    same([twice, twice], trip([twice, twice]))


def test_deepest_allowed_nesting_comes_back():
    deep = 1
    for _ in range(120):
        deep = {"d": deep}

    same(deep, trip(deep))
    with pytest.raises(UnsupportedType, match=r"nested deeper than 120"):
        flatten({"d": deep})


@pytest.mark.parametrize("wrap", [lambda key: (key,), lambda key: frozenset({key})])
def test_keys_are_nested_as_deeply_as_values(wrap):
    key = 1
    for _ in range(119):
        key = wrap(key)

    flatten({key: 2})
    with pytest.raises(UnsupportedType, match=r"nested deeper than 120"):
        flatten({wrap(key): 2})


def test_dataclasses_come_back_without_running_their_code():
    ran = []

    @dataclass
    class Watched:
        x: int
        y: int = field(init=False, default=0)

        def __post_init__(self):
            ran.append(self.x)

        @functools.cached_property
        def double(self):
            return self.x * 2

    value = Watched(3)
    value.y = 9
    assert value.double == 6
    ran.clear()

    back = trip({"w": value, "s": Slotted(1, [2])}, types=[Watched])

    assert type(back["w"]) is Watched
    assert (back["w"].x, back["w"].y, ran) == (3, 9, [])
    assert back["s"] == Slotted(1)
    assert back["s"].b == [2]


def test_dataclass_attributes_that_are_no_fields_are_refused():
    @dataclass
    class Loose:
        x: int

    value = Loose(1)
    value.extra = 2

    with pytest.raises(UnsupportedType, match=r"^a: the dataclass .*Loose has attributes that are no fields: extra\. "):
        flatten({"a": value})


def test_classes_are_restored_only_when_at_hand_and_unchanged():
    ghost = make_dataclass("Ghost", ["a"], namespace={"__module__": "no_such_module"})
    grown = make_dataclass("Ghost", ["a", "b"], namespace={"__module__": "no_such_module"})
    tree, entries, _, _ = stored({"g": ghost(1)})

    with pytest.raises(ClassUnavailable, match=r"^g: class no_such_module:Ghost: not at hand.*types=\[Ghost\]"):
        prepare(tree, entries)
    with pytest.raises(ClassUnavailable, match=r"^g: class .*fields changed, .* has a, the class has a, b\. "):
        prepare(tree, entries, types=[grown])

    assert prepare(tree, entries, types=[ghost]).finish() == {"g": ghost(1)}
    live = {"g": ghost(0)}
    assert prepare(tree, entries, into=live).finish()["g"].a == 1


def test_enums_must_have_the_saved_value():
    tree, entries, _, _ = stored([Mode.FAST])
    changed = enum.Enum("Mode", {"FAST": "slow"}, module=__name__)

    assert prepare(tree, entries).finish() == [Mode.FAST]
    with pytest.raises(
        ClassUnavailable, match=r"^0: enum .*Mode: member FAST was saved with value 'fast', now it is 'slow'"
    ):
        prepare(tree, entries, types=[changed])


def test_a_load_never_imports():
    tree = ["dc", "wave:Wave_read", [], []]
    sys.modules.pop("wave", None)

    with pytest.raises(ClassUnavailable, match=r"a load imports nothing"):
        prepare(tree, [])

    assert "wave" not in sys.modules


def test_a_codec_teaches_a_type():
    class Ratio(Fraction):
        pass

    register_codec(Ratio, lambda r: (r.numerator, r.denominator), lambda p: Ratio(*p), name="tests.Ratio")

    same({"r": [Ratio(1, 3)]}, trip({"r": [Ratio(1, 3)]}))
    with pytest.raises(UnsupportedType, match=r"register_codec: the name 'tests.Ratio' belongs to"):
        register_codec(Fraction, str, Fraction, name="tests.Ratio")
    with pytest.raises(UnsupportedType, match=r"register_codec: takes a class and two callables"):
        register_codec("Fraction", str, Fraction)
    with pytest.raises(ClassUnavailable, match=r"^x: codec nobody: .*not registered"):
        prepare(["d", ["x", ["x", "nobody", 1]]], [])


def test_a_codec_for_tensors_serves_those_without_plain_bytes(monkeypatch):
    from model_checkpoint.tree.values import codecs

    monkeypatch.setattr(codecs, "_BY_TYPE", dict(codecs._BY_TYPE))
    monkeypatch.setattr(codecs, "_BY_NAME", dict(codecs._BY_NAME))
    register_codec(
        torch.Tensor,
        lambda t: (t.indices(), t.values(), t.shape),
        lambda p: torch.sparse_coo_tensor(*p, check_invariants=True).coalesce(),
    )
    sparse = torch.eye(3).to_sparse().coalesce()

    back = trip({"s": sparse, "d": torch.ones(2)})

    assert torch.equal(back["s"].to_dense(), torch.eye(3))
    assert back["d"].tolist() == [1, 1]


def test_a_codec_of_ones_own_for_generators_holds_though_the_usual_one_is_learned_late(monkeypatch):
    from model_checkpoint.tree.values import codecs

    usual = ("numpy.random.Generator", "numpy.random.RandomState")
    by_name = {name: codec for name, codec in codecs._BY_NAME.items() if name not in usual}
    monkeypatch.setattr(codecs, "_BY_NAME", by_name)
    monkeypatch.setattr(codecs, "_BY_TYPE", {codec.cls: codec for codec in by_name.values()})

    register_codec(np.random.Generator, lambda g: 1, np.random.default_rng, name="mine")

    assert codecs.codec_of(np.random.Generator).name == "mine"
    assert codecs.codec_of(np.random.RandomState).name == "numpy.random.RandomState"
    assert codecs.codec_named("numpy.random.Generator").cls is np.random.Generator


def test_a_selection_that_cuts_a_record_in_two_is_refused():
    tree, entries, _, _ = stored({"p": Pair(1, 2)})
    part = select(tree, lambda name: name == "p.left")

    with pytest.raises(StructureMismatch, match=r"^p: only some fields of .*Pair are selected"):
        prepare(part, entries)


def entry(nbytes=16, dtype="float32", shape=(4,), kind="numpy"):
    return Entry("w", kind, dtype, shape, "F32", None, 0, 0, nbytes, "")


@pytest.mark.parametrize(
    "tree",
    [
        ["a", 1], ["a", -1], ["a", "0"], ["a"], [], [1], ["zzz", 1], ["d", ["a"]], ["d", 5], ["l", None],
        ["m", "module"], ["m", "optimizer", "x", ["d", ["state", ["d"]]], 5],
        ["v", 0, "numpy", "float32", [5], None, 0, "", 0], ["v", 0, "numpy", "float32", [4], None, 4, "", 0],
        ["v", 0, "numpy", "float32", [4], [-4], 0, "", 0], ["v", 0, "numpy", "float32", [2], [4, 4], 0, "", 0],
        ["v", 0, "numpy", "float32", [-1], None, 0, "", 0], ["v", 0, "numpy", "float32", [1e9], None, 0, "", 0],
        ["v", 0, "torch", "float32", [2], None, 2, "", 0], ["v", 0, "numpy", "object", [1], None, 0, "", 0],
        ["v", 0, "evil", "float32", [1], None, 0, "", 0], ["v", 0, "numpy", "record:[[", [1], None, 0, "", 0],
        ["f", "zz"], ["i", "0xq"], ["b", "*"], ["datetime", "never", None, 0], ["np", "O", ""],
        ["np", "float32", "AA=="],
        ["dc", "os:environ", [], []], ["dc", "builtins:dict", [], []], ["nt", "builtins:int", ["a"], [1]],
        ["e", "builtins:int", "x", 1], ["e", 1], ["x", "posix.system", "true"], ["torch.dtype", "save"],
        ["torch.device", "moon"], ["torch.Size", ["a"]], ["d", [["l", [1]], 2]], ["s", [["l", []]]], ["s", 1],
        ["zone", "../../etc/passwd"], ["npdtype", "O"], ["timedelta", 10**30, 0, 0],
        functools.reduce(lambda inner, _: ["l", [inner]], range(450), 1),
    ],
    ids=lambda tree: str(tree)[:50],
)  # fmt: skip
def test_hostile_trees_are_refused_before_anything_is_built(tree):
    def load():
        specs(tree, [entry()])
        restore = prepare(tree, [entry()])
        for index in restore.needed:
            restore.target(index).put(0, memoryview(bytes(16)))
        restore.finish()

    with pytest.raises(CheckpointException, match=r"."):
        load()


@pytest.mark.parametrize(
    "bad",
    [entry(nbytes=15), entry(shape=(2**62, 2**62)), entry(shape=(-4,)), entry(dtype="object"), entry(kind="pickle"),
     entry(dtype="O"), entry(shape=(1,) * 70 + (4,)), entry(dtype="longdouble@vax-little-16")],
    ids=str,
)  # fmt: skip
def test_hostile_entries_are_refused_before_memory_is_taken(bad):
    with pytest.raises(CheckpointException, match=r"^w: "):
        prepare(["d", ["w", ["a", 0]]], [bad])


def test_two_modules_of_the_same_tree_keep_their_parameters_apart():
    one, two = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    both = torch.optim.Adam([*one.parameters(), *two.parameters()])
    (one(torch.ones(1)) + two(torch.ones(1))).sum().backward()
    both.step()

    told = [leaf.name for leaf in flatten({"opt": both, "one": one, "nested": {"two": two}}).leaves]

    assert "opt.state.one.weight.exp_avg" in told
    assert "opt.state.nested.two.bias.exp_avg" in told


def test_namespace_objects_ask_for_a_codec():
    with pytest.raises(UnsupportedType, match=r"^args: .*SimpleNamespace"):
        flatten({"args": types.SimpleNamespace(a=1)})


def test_everything_but_torch_arrays_works_without_torch():
    probe = """
import sys
sys.modules["torch"] = None
import numpy as np
from model_checkpoint.errors import ClassUnavailable
from model_checkpoint.manifest import Entry
from model_checkpoint.tree import flatten, live_specs, prepare, rng_state
flat = flatten({"a": np.ones(2), "rng": rng_state(), "n": [1, 2.5]})
live_specs({"a": np.ones(2)})
torch_entry = Entry("w", "torch", "bfloat16", (2,), "BF16", None, 0, 0, 4, "")
tree = ["d", ["w", ["a", 0]]]
try:
    prepare(tree, [torch_entry])
except ClassUnavailable as error:
    assert 'framework="numpy"' in str(error), error
restore = prepare(tree, [torch_entry], framework="numpy")
restore.target(0).put(0, memoryview(bytes(4)))
assert str(restore.finish()["w"].dtype) == "bfloat16"
into = {"w": restore.finish()["w"]}
assert prepare(tree, [torch_entry], into=into).target(0).live
"""
    subprocess.run([sys.executable, "-c", probe], check=True)


def test_numpy_is_all_that_flatten_brings_in():
    probe = "import sys, model_checkpoint.tree; print([m for m in ('torch', 'jax', 'tensorflow') if m in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", probe], text=True).strip() == "[]"


def test_object_arrays_in_records_are_refused():
    with pytest.raises(UnsupportedType, match=r"^r: .*holds Python objects"):
        flatten({"r": np.zeros(1, [("a", "O")])})


def test_failing_user_code_is_named_with_its_path():
    class Broken:
        def state_dict(self):
            raise KeyError("lost")

        def load_state_dict(self, state):
            pass

    with pytest.raises(CheckpointException, match=r"^a\.b: state_dict\(\) of .*Broken failed \(KeyError: 'lost'\)"):
        flatten({"a": {"b": Broken()}})


@pytest.mark.parametrize("shape", [[-1], [2, -2], [True], [1.0], ["1"], 3])
def test_a_view_of_an_absurd_shape_has_no_spec(shape):
    entries = [Entry("w", "numpy", "float32", (4,), "F32", None, 0, 0, 16, "")]

    with pytest.raises(CheckpointException, match="is no node"):
        specs(["v", 0, "numpy", "float32", shape, None, 0, "", 0], entries)


@pytest.mark.parametrize("index", [-1, 1, True, "0", None])
def test_an_array_that_is_not_stored_has_no_spec(index):
    entries = [Entry("w", "numpy", "float32", (4,), "F32", None, 0, 0, 16, "")]

    with pytest.raises(CheckpointException, match="is no node"):
        specs(["a", index], entries)


@pytest.mark.parametrize(
    ("kind", "shape", "steps", "copied"),
    [
        ("numpy", [1 << 50], [0], False),
        ("torch", [1 << 50], [0], False),
        ("jax", [1 << 50], [0], True),
        ("numpy", [1 << 50, 4], [0, -1], True),
        ("numpy", [1 << 62, 4], [0, 0], True),
    ],
)
def test_a_view_that_shows_its_bytes_too_often_to_be_copied_is_refused(kind, shape, steps, copied):
    pytest.importorskip(kind)
    entries = [Entry("w", kind, "uint8", (4,), "U8", None, 0, 0, 4, "")]
    tree = ["v", 0, kind, "uint8", shape, steps, 3 if -1 in steps else 0, "", 0]

    if copied:
        with pytest.raises(LimitExceeded, match=r"a view of [0-9]+ bytes into 4 stored ones"):
            prepare(tree, entries)
    else:
        assert tuple(fill(prepare(tree, entries), [b"abcd"]).shape) == tuple(shape)
