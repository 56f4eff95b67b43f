"""Forged manifests, rightly signed: each ends in a typed error or loads, quickly, and brings no module in."""

import abc
import collections
import datetime
import enum
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.engine.reading.forging import read_manifest, write_manifest

import model_checkpoint as mc
from model_checkpoint.errors import (
    ClassUnavailable,
    CorruptedCheckpoint,
    LimitExceeded,
    UnsupportedType,
)

HERE = Path(__file__).parents[3]


class Mode(enum.Enum):
    FAST = "fast"


class Vast(enum.Enum):
    MOST = 1 << 40_000


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Arrays(enum.Enum):
    A = np.zeros(2)


@dataclass
class Config:
    rate: float = 0.5
    sizes: list = field(default_factory=lambda: [1, 2])


@dataclass
class Abstract(abc.ABC):
    @abc.abstractmethod
    def act(self): ...


@dataclass
class Failure(Exception):
    a: int = 0


@dataclass
class Shadowed:
    a: int = 0


Shadowed.a = property(lambda self: 1)
Point = collections.namedtuple("Point", "x y")


def live():
    """Objects of every kind that a state may be poured into."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    return {
        "model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
        "list": [np.zeros(2), 1], "pair": (torch.zeros(1), 2), "cfg": collections.OrderedDict(a=1),
        "rng": mc.rng_state(), "config": Config(), "point": Point(1, np.ones(2)), "none": None, "mode": Mode.FAST,
        "views": {"base": np.zeros(8, np.float32), "part": np.zeros(3, np.float32)}, "tag": "x",
    }  # fmt: skip


def state():
    """A state with every kind of node in it."""
    made = live()
    made["model"](torch.ones(3, 2)).sum().backward()
    made["optimizer"].step()
    base, view = np.arange(8, dtype=np.float32), torch.arange(6.0)
    made["views"] = {"base": base, "part": base[2:5], "t": view, "tt": view.view(2, 3).t(), "back": base[::-1]}
    made["none"] = {
        1: base[:1].copy(), (1, "a"): {3, b"x"}, None: frozenset((1, 2)), 2.5: 1 << 80, "c": 1 - 2j, "n": np.float16(3),
        "d": np.dtype(">i4"), "size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "when": datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "long": bytes(5000), "short": bytearray(b"abc"),
        "bits": Bits.A | Bits.B, "count": collections.Counter("aab"), "queue": collections.deque([1], 3),
        "zero": np.zeros((0, 3)), "texts": np.array(["a", "bc"]), "rec": np.zeros(2, [("a", "<f4"), ("b", "<i2")]),
        "bf16": torch.ones(3, dtype=torch.bfloat16), "par": torch.nn.Parameter(torch.ones(2), requires_grad=False),
    }  # fmt: skip
    return made


def nested(count, wrap, value=1):
    for _ in range(count):
        value = wrap(value)
    return value


def forge(tmp_path, tree):
    """Save two checkpoints and forge the tree of the newer, over arrays of 8 float32 and 6 int64."""
    mc.save(tmp_path, {"fine": 1}, step=1)
    arrays = {"f": torch.arange(8.0), "i": np.arange(6)}
    folder = mc.save(tmp_path, arrays, step=2).path
    write_manifest(folder, {**read_manifest(folder), "tree": ["d", ["x", tree]]})
    return tmp_path


def view(shape, strides, *, kind="torch", dtype="float32", offset=0):
    return ["v", 0, kind, dtype, shape, strides, offset, "", 0]


FORGED = {
    "lists 380 deep": nested(380, lambda inner: ["l", [inner]]),
    "objects 200 deep": nested(200, lambda inner: ["m", "object", "a:b", inner]),
    "keys 300 deep": ["d", [nested(300, lambda inner: ["t", [inner]]), 1]],
    "metadata of metadata": nested(200, lambda inner: ["o", [], True, inner]),
    "arrays in metadata": ["o", [], True, ["a", 1]],
    "struct_time": ["nt", "time:struct_time", [], []],
    "stat_result": ["nt", "os:stat_result", [], []],
    "torch.Size as a record": ["nt", "torch:Size", [], []],
    "an abstract dataclass": ["dc", f"{__name__}:Abstract", [], []],
    "an exception dataclass": ["dc", f"{__name__}:Failure", ["a"], [1]],
    "a dataclass as a namedtuple": ["nt", f"{__name__}:Config", ["rate", "sizes"], [1, 2]],
    "a namedtuple as a dataclass": ["dc", f"{__name__}:Point", ["x", "y"], [1, 2]],
    "rank 70": view([1] * 70, [4] * 70),
    "a stride of 2**70": view([1], [1 << 70]),
    "a side of 2**70": view([1 << 70], [0]),
    "a view beyond all memory": view([1 << 60, 1 << 60], [0, 0], kind="numpy"),
    "a negative torch stride out of the array": view([3], [-4]),
    "an offset between elements": view([1], [4], offset=3),
    "gradients of integers": ["a", 1, "g"],
    "a parameter of integers": ["a", 1, "p"],
    "a flag nobody knows": ["a", 0, "z"],
    "npdtype 8": ["npdtype", 8],
    "a dtype of Python objects": ["npdtype", 'record:[["a","|O"]]'],
    "a scalar of Python objects": ["np", 'record:[["a","|O"]]', "AAAAAAAAAAA="],
    "a size beyond 64 bits": ["torch.Size", [1 << 63]],
    "an attribute of torch that is no dtype": ["torch.dtype", "_inductor"],
    "a zone that is a folder": ["zone", "Europe"],
    "a base of enums as an enum": ["e", "enum:Flag", None, 3],
    "a member without a name or number": ["e", f"{__name__}:Mode", None, "fast"],
    "a sum of flags without end": ["e", f"{__name__}:Bits", None, ["i", "0x" + "f" * 9000]],
    "a member of a value without end": ["e", f"{__name__}:Mode", "FAST", ["i", "0x" + "f" * 9000]],
}


@pytest.mark.parametrize("tree", FORGED.values(), ids=FORGED)
def test_what_no_save_writes_is_refused_by_type_and_passed_over(tmp_path, tree):
    root = forge(tmp_path, tree)

    with pytest.raises(CorruptedCheckpoint, match=r"step-00000002|^x|tree:|dtype"):
        mc.load(root)
    with pytest.warns(mc.CheckpointWarning, match="passed over"):
        assert mc.load(root, fallback=True) == {"fine": 1}


@pytest.mark.parametrize(
    "tree",
    [
        ["e", f"{__name__}:Mode", "FAST", ["i", "0x" + "f" * 32]],
        ["e", f"{__name__}:Arrays", "A", 1],
        ["e", f"{__name__}:Mode", "SLOW", "slow"],
        ["dc", f"{__name__}:Shadowed", ["a"], [1]],
        ["dc", "not.imported:Config", ["a"], [1]],
    ],
    ids=["another value", "array value", "member gone", "property", "not imported"],
)
def test_classes_that_changed_or_are_not_at_hand_are_refused_by_name_and_never_passed_over(tmp_path, tree):
    """The checkpoint is sound: to step over it would lose progress for the want of an import."""
    root = forge(tmp_path, tree)

    for fallback in (False, True):
        with pytest.raises(ClassUnavailable, match=r"types=\[|codec"):
            mc.load(root, fallback=fallback)


def test_a_member_of_a_vast_value_that_is_its_own_comes_back(tmp_path):
    mc.save(tmp_path, {"vast": Vast.MOST}, step=1)

    assert mc.load(tmp_path) == {"vast": Vast.MOST}


def test_metadata_without_end_is_refused_by_every_reader(tmp_path):
    folder = mc.save(tmp_path, {"a": 1}, step=1, metadata={"k": 1}).path
    top = read_manifest(folder)
    write_manifest(folder, top | {"metadata": ["d", ["k", nested(300, lambda inner: ["l", [inner]])]]})

    with pytest.raises(LimitExceeded, match="more than 256 arrays inside each other"):
        mc.load(tmp_path)
    assert "256 arrays" in mc.list_checkpoints(tmp_path)[0].problem
    assert not mc.verify(tmp_path)[0].ok


def test_what_is_nested_too_deeply_is_not_saved_and_the_path_is_told(tmp_path):
    with pytest.raises(UnsupportedType, match=r"^a\['b'\]\[\('x', 1\)\]|^a\.b\[\(.*nested deeper than 120"):
        mc.save(tmp_path, {"a": {"b": {nested(500, lambda inner: (inner,)): 1}}}, step=1)
    with pytest.raises(UnsupportedType, match=r"^metadata\.k\[0\]\[0\].*nested deeper than 120"):
        mc.save(tmp_path, {"a": 1}, step=1, metadata={"k": nested(200, lambda inner: [inner])})
    with pytest.raises(UnsupportedType, match=r"^s\[0\]\[0\].*nested deeper than 120"):
        mc.save(tmp_path, {"s": nested(200, lambda inner: [inner])}, step=1)


def test_what_is_nested_as_deeply_as_a_save_writes_comes_back(tmp_path):
    deep = {"l": nested(118, lambda inner: [inner]), "k": {nested(100, lambda inner: (inner, 2.5)): 3}}
    metadata = {"m": nested(119, lambda inner: [inner])}
    mc.save(tmp_path, deep, step=1, metadata=metadata)

    assert mc.load(tmp_path) == deep
    assert mc.list_checkpoints(tmp_path)[0].metadata == metadata


def test_a_view_that_torch_cannot_step_through_comes_as_a_copy(tmp_path):
    """Torch steps forward only; NumPy, with which it may share its memory, does not."""
    tensor = torch.arange(6.0)
    mc.save(tmp_path, {"t": tensor, "back": tensor.numpy()[::-1]}, step=1)

    back = mc.load(tmp_path, framework="torch")["back"]

    assert back.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


CHILD = """
import sys, pathlib
import model_checkpoint as mc
from model_checkpoint.errors import CheckpointException
from tests.engine.reading.forging import Forger, read_manifest, write_manifest

root, folder = sys.argv[1:]
top, forger = read_manifest(folder), Forger(1)
mc.describe(root)
before = set(sys.modules)
kinds = set()
for case in range(1_000):
    write_manifest(folder, forger.forge(top))
    try:
        mc.load(root, **({"framework": "numpy"} if case % 2 else {}))
    except CheckpointException as error:
        kinds.add(type(error).__name__)
known = {*sys.stdlib_module_names, "model_checkpoint", "numpy", "ml_dtypes", "xxhash", "zstandard", "tzdata", "tests"}
known |= {name for name in sys.modules if "cython" in name or name.startswith("_sysconfigdata")}  # of numpy.random
print(sorted(name for name in set(sys.modules) - before if name.split(".")[0] not in known))
print("ClassUnavailable" in kinds)
"""


@pytest.mark.slow
def test_forgeries_bring_no_framework_into_a_program_that_has_none(tmp_path):
    folder = mc.save(tmp_path, state(), step=1).path

    told = run_apart(CHILD, tmp_path, folder)

    assert told == ["[]", "True"]


TORCH_CHILD = """
import sys
import torch
import model_checkpoint as mc
from model_checkpoint.errors import CheckpointException
from tests.engine.reading.forging import Forger, read_manifest, write_manifest

root, folder = sys.argv[1:]
top, forger = read_manifest(folder), Forger(3)
trees = [["torch.dtype", "_inductor"], ["dc", "torch._inductor.config:x", ["a"], [1]], ["e", "torch:_inductor", "A", 1]]
forged = [{**top, "tree": tree} for tree in trees] + [forger.forge(top) for _ in range(500)]
unwanted = {"torch._inductor", "jax", "jaxlib", "tensorflow", "keras"}
before = unwanted & set(sys.modules)
for one in forged:
    write_manifest(folder, one)
    try:
        mc.load(root)
    except CheckpointException:
        pass
print(sorted(before), sorted(unwanted & set(sys.modules)))
"""


@pytest.mark.slow
def test_forgeries_bring_no_compiler_and_no_other_framework_into_a_program_that_has_torch(tmp_path):
    """Whoever asks torch for an attribute that it does not have yet may wake hundreds of modules."""
    folder = mc.save(tmp_path, state(), step=1).path

    assert run_apart(TORCH_CHILD, tmp_path, folder) == ["[] []"]


def test_a_load_names_the_framework_to_import_instead_of_importing_it(tmp_path):
    mc.save(tmp_path, {"w": torch.ones(2), "kind": torch.float16}, step=1)
    script = """
import sys
import model_checkpoint as mc

for options in ({}, {"parts": "kind"}):
    try:
        mc.load(sys.argv[1], **options)
    except TypeError as error:
        print(error)
print(mc.load(sys.argv[1], parts="w", framework="numpy")["w"].tolist(), "torch" in sys.modules)
print(type(mc.load(sys.argv[1], parts="w", framework="torch")["w"]).__name__)
"""

    told = run_apart(script, tmp_path)

    assert told == [
        "w: saved from torch, which is not imported, and a load imports nothing by itself. Import torch first, or load "
        'with framework="torch" or framework="numpy".',
        "kind: a torch.dtype, and torch is not imported; a load imports nothing by itself. Import torch first, or load "
        "without it (parts=).",
        "[1.0, 1.0] False",
        "Tensor",
    ]


def run_apart(script, *arguments):
    """Run ``script`` in a process of its own; return the lines it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_module_that_waits_to_be_loaded_is_not_loaded_by_a_forged_class(tmp_path):
    """An attribute of a lazy module, even __dict__, would run its code."""
    root = forge(tmp_path, ["dc", "lazy_for_forgery:Zen", ["a"], [1]])
    ran = []

    class Lazy(type(sys)):
        def __getattribute__(self, name):
            ran.append(name)
            return super().__getattribute__(name)

    sys.modules["lazy_for_forgery"] = Lazy("lazy_for_forgery")
    try:
        with pytest.raises(ClassUnavailable, match="lazy_for_forgery"):
            mc.load(root)
    finally:
        del sys.modules["lazy_for_forgery"]
    assert ran == []


def test_a_forged_attribute_of_an_array_is_refused(tmp_path):
    folder = mc.save(tmp_path, {"i": np.arange(6)}, step=1).path
    top = read_manifest(folder)
    top["entries"][0][10:] = [nested(300, lambda inner: [inner])]
    write_manifest(folder, top)

    with pytest.raises(LimitExceeded, match="arrays inside each other"):
        mc.load(tmp_path)
