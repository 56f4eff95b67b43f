"""Generators that a program shares by name: in objects, containers, caches and modules, found or said to be lost."""

import random
import threading
from collections import deque
from contextvars import ContextVar
from functools import lru_cache
from itertools import cycle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import model_checkpoint as mc
from tests.integrations import shaking
from tests.integrations.feeding_trials import seen_in, whole_and_rest
from tests.integrations.shaking import shake


class Held:
    def __init__(self, rng):
        self.rng = rng

    def __call__(self, x):
        return x + float(self.rng.random())


class Transformed(Dataset):
    def __init__(self, transform, **kept):
        self.transform = transform
        self.__dict__.update(kept)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(torch.tensor(float(index)))


OBJECT = Held(np.random.default_rng(1))
BY_KEY = {"a": Held(np.random.default_rng(2))}
LOCAL = threading.local()
WHERE = ContextVar("where")


class Shared:
    rng = np.random.default_rng(3)
    held = Held(np.random.default_rng(4))

    def __call__(self, x):
        return self.held(x)


@lru_cache
def only_one():
    return Held(np.random.default_rng(6))


def by_object(x):
    return OBJECT(x)


def by_key(x):
    return BY_KEY["a"](x)


def by_class(x):
    return x + float(Shared.rng.random())


def by_cache(x):
    return only_one()(x)


def by_module(x):
    return shaking.shake(x) + float(shaking.SHAKER.random())


def by_import(x):
    return shake(x)


def by_context(x):
    return WHERE.get()(x)


def by_thread(x):
    return LOCAL.held(x)


def in_worker(worker):
    """Make what nothing had a name for."""
    global MADE_IN_WORKER
    MADE_IN_WORKER = np.random.default_rng(worker)


def by_worker(x):
    return x + float(MADE_IN_WORKER.random())


class InAll(Held):
    """One of many."""

    def __init__(self):
        self.all = [np.random.default_rng(seed) for seed in range(100)]

    def __call__(self, x):
        return x + float(self.all[7].random())


class Bare(Held):
    def __call__(self, x):
        return x + float(np.random.Generator(self.rng).random())


class First(Held):
    def __call__(self, x):
        return x + float(self.rng[0].random())


KINDS = {
    "an object": lambda: by_object,
    "a container": lambda: by_key,
    "a class": lambda: by_class,
    "an object of a class": Shared,
    "a cache": lambda: by_cache,
    "a module": lambda: by_module,
    "a function of a module": lambda: by_import,
    "a context": lambda: by_context,
    "a thread": lambda: by_thread,
    "one of many": InAll,
    "bits alone": lambda: Bare(np.random.PCG64(3)),
    "a queue": lambda: First(deque([np.random.default_rng(3)])),
}


def transforming(kind, **options):
    """A loader as in a new process."""
    only_one.cache_clear()
    LOCAL.held, _ = Held(np.random.default_rng(7)), WHERE.set(Held(np.random.default_rng(8)))
    for one in (OBJECT.rng, BY_KEY["a"].rng, Shared.rng, Shared.held.rng, only_one().rng, shaking.SHAKER):
        one.bit_generator.state = np.random.default_rng(9).bit_generator.state
    return DataLoader(Transformed(KINDS[kind]()), 2, **options)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_that_a_program_shares_goes_on_where_it_was(tmp_path, kind, workers):
    whole, rest = whole_and_rest(lambda: transforming(kind, num_workers=workers), tmp_path)

    assert rest == (whole[0][3:], True)
    assert whole[1] is True


def test_a_generator_that_a_worker_makes_when_it_begins_is_seeded_with_each_batch(tmp_path):
    whole, rest = whole_and_rest(
        lambda: DataLoader(Transformed(by_worker), 2, num_workers=1, worker_init_fn=in_worker), tmp_path
    )

    assert rest == (whole[0][3:], True)


def test_a_cached_generator_that_is_made_as_the_program_reads_is_a_reason(tmp_path):
    only_one.cache_clear()
    _, exact = seen_in(tmp_path, DataLoader(Transformed(by_cache), 2))

    assert "make it before the run" in exact[0]


def plain(x):
    return x


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (cycle([1, 2]), "holds an iterator"),
        ((number for number in range(9)), "holds an iterator"),
        (random.SystemRandom(), "draws from a random.SystemRandom"),
        (np.random.SeedSequence(3), "holds a SeedSequence"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_can_neither_be_seeded_nor_put_back_is_a_reason(tmp_path, kept, said, workers):
    """Only the fork of a worker shares an iterator with it."""
    data = DataLoader(Transformed(plain, kept=[kept]), 2, num_workers=workers)

    run = mc.Run(tmp_path, data=data, a={})
    assert said in run.exact[0]
