"""Workers of a run know what those of a plain loop know: the caller's dataset, a seed, and whose turn it is."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from tests.integrations.feeding_trials import whole_and_rest


class Ranged(IterableDataset):
    """A stream that its workers are to share."""

    def __init__(self):
        self.start, self.end = 0, 16

    def __iter__(self):
        return iter(torch.arange(float(self.start), float(self.end)))


def share(worker):
    """Give each worker its part, as the pages of torch have it."""
    info = get_worker_info()
    dataset, size = info.dataset, (info.dataset.end - info.dataset.start) // info.num_workers
    dataset.start, dataset.end = dataset.start + worker * size, dataset.start + (worker + 1) * size


class Opened(Dataset):
    """Opened by each worker for itself."""

    file = rng = None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.file[index] + float(self.rng.random())


def open_it(worker):
    info = get_worker_info()
    info.dataset.file = torch.arange(8.0)
    info.dataset.rng = np.random.default_rng(info.seed)


class Told(Dataset):
    """Samples that are what a worker is told."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        info = get_worker_info()
        return torch.tensor([index, info.id, info.seed])


class ToldStream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        draws = np.random.default_rng(info.seed)
        return iter([torch.tensor([info.id, draws.random()]) for _ in range(8)])


KINDS = {
    "a stream that is shared": lambda **options: DataLoader(Ranged(), 2, worker_init_fn=share, **options),
    "opened": lambda **options: DataLoader(Opened(), 2, worker_init_fn=open_it, **options),
    "told": lambda **options: DataLoader(Told(), 2, shuffle=True, **options),
    "told one by one": lambda **options: DataLoader(Told(), None, shuffle=True, **options),
    "a stream that is told": lambda **options: DataLoader(ToldStream(), 2, **options),
}


@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_comes_from_the_worker_it_came_from_and_that_is_told_the_same(tmp_path, kind, persistent_workers):
    options = {"num_workers": 2, "persistent_workers": persistent_workers}
    whole, rest = whole_and_rest(lambda: KINDS[kind](**options), tmp_path)

    assert rest == (whole[0][3:], True)
    assert whole[1] is True


def test_a_shared_stream_gives_each_sample_once(tmp_path):
    (whole, _), _ = whole_and_rest(lambda: KINDS["a stream that is shared"](num_workers=2), tmp_path)

    assert sorted(one for batch in whole[: len(whole) // 2] for one in batch) == list(range(16))


def test_workers_are_told_other_seeds_in_another_epoch(tmp_path):
    (whole, _), _ = whole_and_rest(lambda: KINDS["told one by one"](num_workers=2), tmp_path)
    seeds = [seed for _, _, seed in whole]

    assert len(set(seeds[:16])) == len(set(seeds[16:])) == 2
    assert set(seeds[:16]).isdisjoint(seeds[16:])
