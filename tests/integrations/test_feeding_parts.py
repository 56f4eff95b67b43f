"""Generators wherever a dataset keeps them, streams read apart, and orders cut into batches."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
)

import model_checkpoint as mc
from model_checkpoint.integrations.feeding.generators.held_generators import own_generators
from model_checkpoint.integrations.feeding.index_stream import IndexStream
from model_checkpoint.integrations.feeding.replayed_data import Isolated
from tests.integrations.feeding_trials import seen_in, whole_and_rest


class Noise:
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def __call__(self, x):
        return x + float(self.rng.random())


class Compose:
    def __init__(self, parts):
        self.parts = parts

    def __call__(self, x):
        for part in self.parts.values() if isinstance(self.parts, dict) else self.parts:
            x = part(x)
        return x


class Transformed(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(torch.tensor(float(index)))


BY_DEFAULT = np.random.default_rng(6)


def shaken(x, rng):
    return x + float(rng.random())


def shaking(rng):
    return lambda x: x + float(rng.random())


def by_default(x, rng=BY_DEFAULT):
    return x + float(rng.random())


OF_THE_MODULE = np.random.default_rng(8)


def by_name(x):
    return x + float(OF_THE_MODULE.random())


class ByName(Noise):
    def __init__(self):
        pass

    def __call__(self, x):
        return by_name(x)


class DefaultOfMethod:
    def __call__(self, x, rng=BY_DEFAULT):
        return x + float(rng.random())


class CallsOne:
    def __call__(self, x):
        return by_default(x)


def around(rng):
    return lambda self, x: x + float(rng.random())


class Around:
    __call__ = around(BY_DEFAULT)


class Slotted:
    __slots__ = ("__rng",)

    def __init__(self):
        self.__rng = random.Random(5)

    def __call__(self, x):
        return x + self.__rng.random()


class OfTheClass:
    rng = np.random.default_rng(6)

    def __call__(self, x):
        return x + float(self.rng.random())


class Bare(Noise):
    def __init__(self):
        pass

    @staticmethod
    def shake(x):
        return by_name(x)

    def __call__(self, x):
        return self.shake(x)


WHEN_NEEDED = None


def when_needed(x):
    global WHEN_NEEDED
    if WHEN_NEEDED is None:
        WHEN_NEEDED = np.random.default_rng(6)
    return x + float(WHEN_NEEDED.random())


class Endless(Sampler):
    """Draws from a generator of its own and from the program's, only when it is asked."""

    def __init__(self):
        self.rng = np.random.default_rng(7)

    def __iter__(self):
        while True:
            yield (random.randrange(8) + int(self.rng.integers(8))) % 8


class Collator(Noise):
    def __call__(self, samples):
        return torch.stack(samples) + float(self.rng.random())


def plain(x):
    return x


KINDS = {
    "in a list of transforms": lambda: Transformed(Compose([Noise(), Noise()])),
    "by name": lambda: Transformed(Compose({"a": Compose({"b": Noise()}), "c": Noise()})),
    "under datasets": lambda: ConcatDataset([Subset(Transformed(Compose([Compose([Noise()]), Noise()])), range(8))]),
    "a partial": lambda: Transformed(partial(shaken, rng=np.random.default_rng(3))),
    "a bound method": lambda: Transformed(Noise().__call__),
    "a closure": lambda: Transformed(shaking(np.random.default_rng(3))),
    "a default": lambda: Transformed(by_default),
    "a default of a method": lambda: Transformed(DefaultOfMethod()),
    "a default of a function that a method calls": lambda: Transformed(CallsOne()),
    "a method made around it": lambda: Transformed(Around()),
    "a name of the module": lambda: Transformed(by_name),
    "a name in a method": lambda: Transformed(ByName()),
    "in a slot": lambda: Transformed(Slotted()),
    "in a class": lambda: Transformed(OfTheClass()),
    "a name in a static method": lambda: Transformed(Bare()),
    "a collator": lambda: (Transformed(plain), Collator()),
}


def loader_of(kind, **options):
    """A loader whose dataset, or what makes batches of it, holds a generator in its own way."""
    for one in (OF_THE_MODULE, BY_DEFAULT, OfTheClass.rng):
        one.bit_generator.state = np.random.default_rng(6).bit_generator.state  # as in a new process
    made = KINDS[kind]()
    dataset, collate = made if isinstance(made, tuple) else (made, None)
    return DataLoader(dataset, 2, collate_fn=collate, **options)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_that_a_transform_keeps_goes_on_where_it_was(tmp_path, kind, workers):
    whole, rest = whole_and_rest(lambda: loader_of(kind, num_workers=workers), tmp_path)

    assert rest == (whole[0][3:], True)
    assert whole[1] is True


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(8.0))


class Lazy:
    """Makes its generator when it is called for the first time, as collators of transformers do."""

    rng = None

    def __call__(self, samples):
        if self.rng is None:
            self.rng = np.random.default_rng(3)
        return torch.stack(samples) + float(self.rng.random())


def lazily(*, workers, dataset=None, **options):
    return DataLoader(dataset or Transformed(plain), 2, collate_fn=Lazy(), num_workers=workers, **options)


def test_a_generator_that_is_made_in_a_worker_at_the_first_batch_is_seeded_for_that_batch_too(tmp_path):
    whole, rest = whole_and_rest(lambda: lazily(workers=1), tmp_path)

    assert whole[1] is True
    assert rest == (whole[0][3:], True)


def test_a_generator_that_is_made_as_the_program_reads_is_a_reason(tmp_path):
    _, cut = seen_in(tmp_path, lazily(workers=0), stop=7)  # the second epoch has it at its start
    _, rest = seen_in(tmp_path, lazily(workers=0))

    assert "make it before the run" in cut[0]
    assert "make it before the run" in rest[0]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_generator_that_is_made_as_a_worker_reads_a_stream_is_a_reason(tmp_path, start):
    """A worker that lives on seeds it in the next epoch, and a new one cannot, since it has none yet."""
    options = {"workers": 1, "dataset": Streamed(), "persistent_workers": True, "multiprocessing_context": start}

    assert "make it before the run" in seen_in(tmp_path, lazily(**options))[1][0]


def test_a_generator_that_plain_data_makes_as_it_is_read_is_a_reason(tmp_path):
    """In the second epoch it is there when the epoch begins, and after a resume in the second epoch it is not."""

    class Drawing:
        rng = None

        def __iter__(self):
            for _ in range(4):
                self.rng = self.rng or np.random.default_rng(3)
                yield self.rng.random()

    run = mc.Run(tmp_path, data=Drawing(), epochs=2, a={})
    assert run.exact is True

    list(run)
    assert "make it before the run" in run.exact[0]


def test_a_generator_that_a_module_makes_when_it_is_needed_is_seeded_for_that_batch_too(tmp_path):
    def make():
        global WHEN_NEEDED
        WHEN_NEEDED = None
        return DataLoader(Transformed(when_needed), 2, num_workers=1)

    (whole, _), (rest, _) = whole_and_rest(make, tmp_path)

    assert rest == whole[3:]


def test_generators_are_found_once_even_in_a_circle():
    dataset = KINDS["under datasets"]()
    dataset.again = dataset

    assert len(own_generators(dataset)) == 2


def test_a_dataset_of_too_many_parts_is_named(tmp_path):
    class Part:
        def __init__(self, parts):
            self.parts = parts

    dataset = Transformed(Noise())
    dataset.parts = [Part([Part([7]) for _ in range(60)]) for _ in range(60)]

    run = mc.Run(tmp_path, data=DataLoader(dataset), a={})
    assert run.exact == ("the dataset has too many parts to look for generators in all of them",)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("length", [None, 5])
def test_a_sampler_without_end_goes_on_where_it_was(tmp_path, workers, length):
    """Also if it says that it has one."""

    class Sized(Endless):
        def __len__(self):
            return length

    def go(root, stop):
        random.seed(0)
        data = DataLoader(
            Transformed(Noise()), 2, sampler=Endless() if length is None else Sized(), num_workers=workers
        )
        seen, run = [], mc.Run(root, data=data, every=3, a={})
        for batch in run:
            if run.step == stop:
                break
            seen.append([*batch.tolist(), random.random()])  # the body draws from what the sampler draws from
        mc.finish_saves(root)
        return seen, run.exact[1:] if run.exact is not True else ()

    torch.manual_seed(0)
    whole, _ = go(tmp_path / "whole", 11)
    torch.manual_seed(0)
    go(tmp_path / "cut", 5)

    assert go(tmp_path / "cut", 11) == (whole[3:], ())


def test_what_a_stream_draws_is_apart_from_the_program_in_both_directions():
    def noisy():
        while True:
            yield random.random(), np.random.randn(), torch.rand(1).item()

    def draws():
        return random.random(), np.random.randn(), torch.rand(1).item()

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    alone = [draws() for _ in range(4)]
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    stream, between, read = Isolated(noisy(), seed=3, owner=None), [], []
    for _ in range(4):
        read.append(next(stream))
        between.append(draws())

    assert between == alone
    assert next(Isolated(noisy(), seed=3, owner=None).skip(3)) == read[3]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("skip", [0, 1, 3, 6])
@pytest.mark.parametrize("kind", ["random", "words", "pairs"])
def test_an_order_is_cut_as_torch_cuts_it(skip, drop_last, kind):
    words = [chr(97 + number) for number in range(20)]
    order = {"words": words, "pairs": [(number, number) for number in range(20)]}.get(kind)

    def sampler():
        inner = RandomSampler(range(20), generator=torch.Generator().manual_seed(3)) if order is None else Words(order)
        return BatchSampler(inner, 3, drop_last)

    class Words(SequentialSampler):
        def __iter__(self):
            return iter(self.data_source)

    Words.__module__ = "torch.utils.data"  # one that draws nothing
    whole, stream, walked = list(sampler()), *(IndexStream(sampler(), batched=True, seeded=False) for _ in range(2))
    stream.begin(base=0, epoch=0, skip=skip)
    walked.begin(base=0, epoch=0, skip=0)
    for _ in range(skip):
        next(walked)
        walked.consumed()

    assert stream.order == walked.order
    assert list(stream) == list(walked) == whole[skip:]
