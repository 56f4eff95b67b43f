"""The program's generators, swapped as bytes: whatever both sides draw, as by the generators' own calls."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_checkpoint.integrations.feeding.generators import generator_memory
from model_checkpoint.integrations.feeding.generators.generator_memory import ByCalls, NumpyWords, PythonWords
from model_checkpoint.integrations.feeding.generators.global_generators import set_generators, take_generators
from model_checkpoint.integrations.feeding.generators.seeding import seed_all
from model_checkpoint.integrations.feeding.replayed_data import Apart, Isolated

DRAWS = {
    "random": random.random,
    "random.gauss": lambda: random.gauss(0, 1),  # makes two, and keeps one
    "random.shuffle": lambda: random.sample(range(1000), 700),
    "random.seed": lambda: random.seed(5),
    "numpy": np.random.random,
    "numpy.normal": np.random.normal,  # makes two, and keeps one
    "numpy.integers": lambda: np.random.randint(0, 7, 700).sum(),
    "numpy.binomial": lambda: np.random.binomial(50, 0.4),
    "numpy.seed": lambda: np.random.seed(5),
    "torch": lambda: torch.rand(()).item(),
    "torch.normal": lambda: torch.randn(()).item(),
    "torch.permutation": lambda: torch.randperm(700).sum().item(),
    "torch.seed": lambda: torch.default_generator.manual_seed(5).initial_seed(),
}


def by_calls():
    """The program's generators, each by the calls it has for that."""
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def set_by_calls(states):
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@settings(max_examples=150, deadline=None)
@given(turns=st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(DRAWS))), max_size=40))
def test_data_and_training_draw_as_if_each_were_alone(turns):
    """The reference never swaps: it goes through the draws of one side, then through those of the other."""
    before = by_calls()
    try:
        seed_all(1)
        data = Isolated((DRAWS[name]() for in_data, name in turns if in_data), seed=7, owner=None)
        seen = [(in_data, next(data) if in_data else DRAWS[name]()) for in_data, name in turns]
        end = by_calls()

        for side, seed in ((False, 1), (True, 7)):
            seed_all(seed)
            alone = [DRAWS[name]() for in_data, name in turns if in_data is side]
            assert [value for in_data, value in seen if in_data is side] == alone
            assert side or repr(by_calls()) == repr(end)
    finally:
        set_by_calls(before)


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(DRAWS)), max_size=12), then=st.sampled_from(sorted(DRAWS)))
def test_what_is_set_is_what_their_own_calls_see(names, then):
    before = by_calls()
    try:
        for name in names:
            DRAWS[name]()
        taken, known = take_generators(), by_calls()
        next(Apart(DRAWS[then]() for _ in range(1)))
        assert repr(by_calls()) == repr(known)
        DRAWS[then]()
        set_generators(taken)
        assert repr(by_calls()) == repr(known)
    finally:
        set_by_calls(before)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), before=st.sampled_from(sorted(DRAWS)))
def test_a_seed_sets_them_as_their_own_calls_do(seed, before):
    kept = by_calls()
    try:
        DRAWS[before]()
        seed_all(seed)
        seeded = by_calls()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed >> 1)
        assert repr(by_calls()) == repr(seeded)
    finally:
        set_by_calls(kept)


def test_words_are_copied_where_they_lie_in_this_python_and_this_numpy():
    assert isinstance(generator_memory.held_by_python(), PythonWords)
    assert isinstance(generator_memory.held_by_numpy(np.random.get_bit_generator()), NumpyWords)


def test_a_numpy_that_draws_from_other_bits_is_swapped_by_its_own_calls():
    bits = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        held = generator_memory.held_by_numpy(np.random.get_bit_generator())
        taken = take_generators()
        first = np.random.normal(), np.random.random()
        set_generators(taken)
        again = np.random.normal(), np.random.random()
    finally:
        np.random.set_bit_generator(bits)

    assert isinstance(held, ByCalls)
    assert again == first


def test_data_may_give_numpy_other_bits_and_the_training_keeps_its_own():
    def replacing():
        np.random.set_bit_generator(np.random.PCG64(3))
        while True:
            yield np.random.random()

    bits, before = np.random.get_bit_generator(), by_calls()
    data = Isolated(replacing(), seed=7, owner=None)
    drawn = [next(data), next(data)]

    alone = np.random.RandomState(np.random.PCG64(3))
    assert drawn == [alone.random_sample(), alone.random_sample()]
    assert np.random.get_bit_generator() is bits
    assert repr(by_calls()) == repr(before)


@pytest.mark.parametrize("known", ["is_where_python_keeps_it", "where_normals_wait"])
def test_another_python_is_asked_by_its_calls(monkeypatch, known):
    """There an id is no address: nothing may be looked for in memory."""
    looked_for = getattr(generator_memory, known)
    looked_for.cache_clear()
    monkeypatch.setattr(generator_memory.sys.implementation, "name", "pypy")
    monkeypatch.setattr(generator_memory, "memory", None)
    try:
        assert not looked_for()
        bits = np.random.get_bit_generator()
        held = generator_memory.held_by_python() if "python" in known else generator_memory.held_by_numpy(bits)
    finally:
        looked_for.cache_clear()

    taken, first = held.take(), (random.gauss(0, 1), np.random.normal())
    held.put(taken)
    assert (random.gauss(0, 1), np.random.normal())["python" not in known] == first["python" not in known]
