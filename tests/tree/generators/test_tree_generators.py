"""Generators, defaultdicts and the small classes of the standard library come back exactly, in place where they can."""

import collections
import decimal
import random
import uuid

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, stored, trip

from model_checkpoint.errors import CheckpointException, StructureMismatch, UnsupportedType
from model_checkpoint.tree import flatten, prepare, register_codec

BITS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


def torch_generator(seed):
    return torch.Generator().manual_seed(seed)


MAKERS = {
    "random": (random.Random, lambda g: [g.random(), g.gauss(0, 1), g.randrange(10**9)]),
    "RandomState": (np.random.RandomState, lambda g: g.standard_normal(3).tolist()),
    **{
        name: (
            lambda seed, name=name: np.random.Generator(getattr(np.random, name)(seed)),
            lambda g: [*g.standard_normal(3).tolist(), int(g.integers(1 << 60)), int(g.integers(9, dtype=np.int8))],
        )
        for name in BITS
    },
    "torch": (torch_generator, lambda g: torch.randn(5, generator=g).tolist()),
}  # fmt: skip


@pytest.mark.parametrize(("make", "draw"), MAKERS.values(), ids=MAKERS)
def test_a_generator_goes_on_where_it_stood(make, draw):
    generator = make(3)
    draw(generator)

    back = trip({"g": generator})["g"]

    assert type(back) is type(generator)
    assert back is not generator
    assert [draw(back) for _ in range(3)] == [draw(generator) for _ in range(3)]


@pytest.mark.parametrize(("make", "draw"), MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("atomic", [False, True])
def test_a_live_generator_is_set_in_its_place(make, draw, atomic):
    generator, live = make(3), make(4)
    draw(generator)
    holder = {"g": live}

    trip({"g": generator}, into=holder, atomic=atomic)

    assert holder["g"] is live
    assert draw(live) == draw(generator)


@pytest.mark.parametrize(("make", "draw"), MAKERS.values(), ids=MAKERS)
def test_a_generator_is_as_before_when_an_atomic_load_fails(make, draw):
    class Stubborn:
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state):
            if state != {"a": 1} or self.told:
                raise ValueError("no")
            self.told = True

        told = True

    live, twin = make(4), make(4)
    state = {"g": make(3), "s": Stubborn()}

    with pytest.raises(CheckpointException, match="load_state_dict failed"):
        trip(state, into={"g": live, "s": Stubborn()}, atomic=True)
    assert draw(live) == draw(twin)


def test_the_children_of_a_generator_are_those_it_would_have_had():
    generator = np.random.default_rng(7)
    generator.spawn(2)

    back = trip(generator)

    assert back.spawn(1)[0].integers(1 << 60) == generator.spawn(1)[0].integers(1 << 60)


def test_a_generator_takes_no_other_value():
    with pytest.raises(StructureMismatch, match="g: live it is a Random, saved was a plain value"):
        trip({"g": 3}, into={"g": random.Random(1)})
    with pytest.raises(StructureMismatch, match="g: live it is a Random, saved was a value of a codec"):
        trip({"g": np.random.default_rng(1)}, into={"g": random.Random(1)})


@pytest.mark.parametrize(
    ("state", "position"),
    [
        (["d", ["bit_generator", "MT19937", "state", ["d", ["key", ["a", 0], "pos", 10**9]]]], "1000000000"),
        (["d", ["bit_generator", "Philox", "state", ["d", []], "buffer_pos", -5]], "-5"),
    ],
)
def test_a_position_outside_a_generators_words_is_refused(state, position):
    """NumPy would read whatever lies there."""
    tree, entries, blobs, _ = stored({"k": np.zeros(624, np.uint32)})
    node = ["x", "numpy.random.Generator", ["d", ["state", state, "seed", None]]]

    with pytest.raises(CheckpointException, match=f"a generator at position {position} of its words"):
        fill(prepare(["d", ["g", node, "k", tree[1][1]]], entries), blobs)


def test_generators_load_whatever_the_framework():
    state = {name: make(3) for name, (make, _) in MAKERS.items()}
    tree, entries, blobs, _ = stored(state)

    for framework in ("numpy", "torch"):
        back = fill(prepare(tree, entries, framework=framework), blobs)
        for name, (_, draw) in MAKERS.items():
            assert draw(back[name]) == draw(MAKERS[name][0](3))


def test_a_codec_of_the_users_may_fill_a_live_value():
    class Meter:
        def __init__(self, count):
            self.count = count

    register_codec(Meter, lambda m: m.count, Meter, fill=lambda m, count: setattr(m, "count", count), name="test.Meter")
    live = Meter(0)

    trip([Meter(5)], into=[live])

    assert live.count == 5


@pytest.mark.parametrize("factory", [None, int, float, list, dict, set, collections.Counter, collections.deque])
def test_a_defaultdict_keeps_its_factory(factory):
    value = collections.defaultdict(factory, {"a": 1, 2: np.arange(3)})

    back = trip({"d": value})["d"]

    assert type(back) is collections.defaultdict
    assert back.default_factory is factory
    assert list(back) == ["a", 2]
    assert back[2].tolist() == [0, 1, 2]


def test_a_live_defaultdict_or_counter_is_filled_in_its_place():
    live = {
        "d": collections.defaultdict(list, a=np.zeros(3)),
        "c": collections.Counter("b"),
        "e": collections.defaultdict(int),
    }
    inner, count, empty = live["d"], live["c"], live["e"]

    ones = collections.defaultdict(list, a=np.ones(3))
    saved = {"d": ones, "c": collections.Counter("bb"), "e": collections.defaultdict(int, x=1)}
    trip(saved, into=live)

    assert live["d"] is inner
    assert inner["a"].tolist() == [1, 1, 1]
    assert live["c"] is count
    assert count == {"b": 2}
    assert live["e"] is empty
    assert empty == {"x": 1}


def test_a_factory_that_is_no_builtin_is_refused_with_its_path():
    with pytest.raises(
        UnsupportedType, match=r"^a\.d: cannot save a defaultdict that makes its values by <function.*dict\("
    ):
        flatten({"a": {"d": collections.defaultdict(lambda: 1)}})


VALUES = [
    decimal.Decimal("1.10"), decimal.Decimal("-0"), decimal.Decimal("sNaN12"), decimal.Decimal("-Infinity"),
    decimal.Decimal("1E+999999"), uuid.UUID(int=5), uuid.UUID(int=1 << 127), range(3),
    range(9, -3, -2), range(1 << 70), range(0),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_small_values_of_the_standard_library_come_back_exactly(value):
    back = trip({"v": value})["v"]

    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_small_values_may_be_keys_and_members():
    state = {uuid.UUID(int=5): 1, decimal.Decimal("1.5"): {range(3), uuid.UUID(int=6)}}

    assert trip(state) == state


class Sampler:
    """A stateful sampler as data libraries have them: a generator, a position, a cache."""

    def __init__(self, seed):
        self.generator, self.position, self.seen = torch_generator(seed), 0, collections.defaultdict(int)

    def draw(self):
        self.position += 1
        self.seen[self.position] += 1
        return int(torch.randint(1 << 30, (1,), generator=self.generator))

    def state_dict(self):
        return {"generator": self.generator, "position": self.position, "seen": self.seen}

    def load_state_dict(self, state):
        self.__dict__.update(state)


class Loader:
    def __init__(self, seed):
        self.sampler = Sampler(seed)

    def state_dict(self):
        return {"sampler": self.sampler.state_dict(), "epoch": range(2)}

    def load_state_dict(self, state):
        self.sampler.load_state_dict(state["sampler"])


def test_samplers_and_loaders_go_on_where_they_stood():
    loader, other = Loader(1), Loader(2)
    loader.sampler.draw()

    trip({"data": loader}, into={"data": other})

    assert other.sampler.seen == {1: 1}
    assert [other.sampler.draw() for _ in range(3)] == [loader.sampler.draw() for _ in range(3)]
