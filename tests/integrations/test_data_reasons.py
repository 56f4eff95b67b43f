"""Whatever data keeps that nobody saves is named, so that no resume is called exact which is not."""

import random
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import model_checkpoint as mc
from tests.integrations.feeding_trials import seen_in, whole_and_rest


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(float(index))


class Drawing(Numbers):
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def __getitem__(self, index):
        return super().__getitem__(index) + float(self.rng.random())


class Calls(Numbers):
    calls = 0

    def __getitem__(self, index):
        self.calls += 1
        return super().__getitem__(index) + self.calls


class Epochs(IterableDataset):
    epoch = 0

    def __init__(self, size=8):
        self.size = size

    def __iter__(self):
        draws = random.Random(self.epoch)
        self.epoch += 1
        return iter([torch.tensor(draws.random()) for _ in range(self.size)])


class CountingSampler(Sampler):
    epoch = 0

    def __len__(self):
        return 8

    def __iter__(self):
        self.epoch += 1
        return iter(np.random.default_rng(self.epoch).permutation(8).tolist())


class Told(CountingSampler):
    """The same, if it is told."""

    def set_epoch(self, epoch):
        self.epoch = epoch


class LateSampler(CountingSampler):
    rng = None

    def __iter__(self):
        self.rng = self.rng or np.random.default_rng(3)
        return iter(self.rng.permutation(8).tolist())


class OwnSampler(LateSampler):
    def __init__(self):
        self.rng = np.random.default_rng(3)


class Shuffling(BatchSampler):
    """Shuffles what it shuffled before."""

    def __init__(self):
        super().__init__(SequentialSampler(range(8)), 2, drop_last=False)
        self.batches = [[0, 1], [2, 3], [4, 5], [6, 7]]

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(list(self.batches))


class Dropping(DataLoader):
    def __iter__(self):
        return (batch for number, batch in enumerate(super().__iter__()) if number != 1)


def stateful(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls what torch has deprecated
        return StatefulDataLoader(*args, **options)


LIVE_ON = {"num_workers": 1, "persistent_workers": True}
KINDS = {
    "samples are counted": lambda: DataLoader(Calls(), 2),
    "samples are counted in a worker": lambda: DataLoader(Calls(), 2, num_workers=1),
    "epochs are counted": lambda: DataLoader(Epochs(), 2),
    "epochs are counted in a worker": lambda: DataLoader(Epochs(), 2, **LIVE_ON),
    "epochs are counted by any data": lambda: Epochs(4),
    "epochs are counted by a sampler": lambda: DataLoader(Numbers(), 2, sampler=CountingSampler()),
    "a sampler makes a generator": lambda: DataLoader(Numbers(), 2, sampler=LateSampler()),
    "an order is shuffled on": lambda: DataLoader(Numbers(), batch_sampler=Shuffling()),
    "a loader leaves batches out": lambda: Dropping(Numbers(), 2, shuffle=True),
    "a loader with a state, a sampler without": lambda: stateful(Numbers(), 2, sampler=OwnSampler()),
}


def rest_after(make, folder, stop):
    """What is seen of an unbroken run after a step, and what a run that was left in the next step gives then."""
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    whole, _ = seen_in(folder / "whole", make())
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    seen_in(folder / "cut", make(), stop=stop)
    rest, exact = seen_in(folder / "cut", make())
    return whole[-len(rest) :], rest, exact


@pytest.mark.parametrize("kind", KINDS)
def test_no_resume_is_called_exact_that_is_not(tmp_path, kind):
    whole, rest, exact = rest_after(KINDS[kind], tmp_path, stop=7)

    assert rest != whole
    assert exact is not True


def test_what_was_counted_is_told_with_both_numbers(tmp_path):
    _, _, exact = rest_after(KINDS["epochs are counted by a sampler"], tmp_path, stop=7)

    assert "CountingSampler.epoch was 1, is 0" in exact[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Numbers(), 2, sampler=Told()),
        lambda: stateful(Drawing(), 2, shuffle=True, generator=torch.Generator().manual_seed(3)),
        lambda: stateful(Drawing(), 2, shuffle=True),
    ],
)
def test_what_is_told_the_epoch_or_holds_its_generators_goes_on_where_it_was(tmp_path, make):
    whole, rest = whole_and_rest(make, tmp_path)

    assert rest == (whole[0][3:], True)
    assert whole[1] is True


STREAM = Epochs(16)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (lambda: DataLoader(STREAM, 2), lambda: DataLoader(STREAM, 4), "batch_size was 2, is 4"),
        (lambda: DataLoader(STREAM, 2, **LIVE_ON), lambda: DataLoader(STREAM, 2), "num_workers was 1, is 0"),
        (lambda: stateful(STREAM, 2), lambda: stateful(STREAM, 4), "batch_size was 2, is 4"),
        (lambda: DataLoader(Numbers(), 2), lambda: DataLoader(Numbers(), 2, num_workers=1), "for each batch was False"),
        (lambda: DataLoader(Numbers(), 2), lambda: DataLoader([*map(float, range(9))], 2), "len(dataset) was 8, is 9"),
    ],
)
def test_a_loader_that_was_made_otherwise_is_a_reason(tmp_path, before, after, said):
    seen_in(tmp_path, before(), stop=3)

    assert said in " ".join(seen_in(tmp_path, after())[1])


def test_the_number_of_workers_may_change_where_each_batch_has_a_seed(tmp_path):
    def make(workers):
        return DataLoader(Drawing(), 2, shuffle=True, num_workers=workers)

    torch.manual_seed(0)
    whole, _ = seen_in(tmp_path / "whole", make(2))
    torch.manual_seed(0)
    seen_in(tmp_path / "cut", make(1), stop=5)

    assert seen_in(tmp_path / "cut", make(2)) == (whole[3:], True)


def test_an_order_that_changed_is_seen_before_its_first_batch(tmp_path):
    """A metric that is judged by asks for a save where an epoch begins."""

    def go(stop=None):
        random.seed(0)
        data = DataLoader(Numbers(), batch_sampler=Shuffling())
        run = mc.Run(tmp_path, data=data, epochs=2, every=100, keep=[mc.best("score", 1)], a={})
        for batches in run.epochs():
            for _ in batches:
                if run.step == stop:
                    mc.finish_saves(tmp_path)
                    return run
            run.log(score=1.0)
        return run

    go(stop=5)
    run = go()
    assert run.resumed_from == 4
    assert "the order of the data is another" in run.exact[0]


@pytest.mark.parametrize(("generator", "exact"), [(None, False), (torch.Generator(), True)])
def test_an_evaluation_whose_workers_live_on_draws_their_seed_once_more_which_is_told(tmp_path, generator, exact):
    check = DataLoader(Numbers(), 4, generator=generator, **LIVE_ON)
    run = mc.Run(tmp_path, data=DataLoader(Numbers(), 2), every=1, a={})
    for _ in run:
        list(check)

    assert exact is (run.exact is True)
    assert exact or "a loader beside the run keeps its workers" in run.exact[0]
