"""Data whose order is what it was, and whose content is not, is named; what stands elsewhere or was read is not."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.integrations.feeding_trials import seen_in
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from model_checkpoint.integrations.feeding.data_content import content_of


class Files(Dataset):
    def __init__(self, folder, kind=str):
        self.paths = [kind(one) for one in sorted(folder.iterdir())]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor(float(Path(self.paths[index]).read_text()))


class Lines(IterableDataset):
    def __init__(self, words):
        self.words = words

    def __iter__(self):
        return iter(torch.tensor([float(len(one)) for one in self.words]))


@dataclass(slots=True)
class Slotted:
    values: list = field(default_factory=list)

    def __iter__(self):
        return iter([torch.tensor(one) for one in self.values])


class Remembering(Dataset):
    """Keeps what it has read."""

    def __init__(self):
        self.values, self.cached = np.arange(8.0), {}

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.cached.setdefault(index, torch.tensor(self.values[index]))


def edited(count=8, at=None):
    values = torch.arange(float(count))
    if at is not None:
        values[at] = -1.0
    return values


def joined(samples):
    return torch.stack([one[0] for one in samples])


def wrapped(values):
    return Subset(ConcatDataset([TensorDataset(edited()), TensorDataset(values)]), range(4, 16))


KINDS = {
    "a tensor": lambda values: DataLoader(values, 2),
    "a dataset of tensors": lambda values: DataLoader(Subset(TensorDataset(values), range(8)), 2, collate_fn=joined),
    "a wrapped dataset": lambda values: DataLoader(wrapped(values), 2, collate_fn=joined),
    "a list of arrays": lambda values: DataLoader([one.numpy() for one in values], 2),
    "a list": lambda values: [one for one in values],
    "an object with slots": lambda values: Slotted(values.tolist()),
    "a stream": lambda values: DataLoader(Lines(["a" * (2 + int(one)) for one in values]), 2),
    "an array of strings": lambda values: DataLoader(Lines(np.array([f"{one}" for one in values], object)), 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_another_content_in_the_same_order_is_named(tmp_path, kind):
    seen_in(tmp_path, KINDS[kind](edited()), stop=3)
    _, exact = seen_in(tmp_path, KINDS[kind](edited(at=6)))

    assert "the content of" in exact[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_content_is_no_reason(tmp_path, kind):
    seen_in(tmp_path, KINDS[kind](edited()), stop=3)

    assert seen_in(tmp_path, KINDS[kind](edited()))[1] is True


@pytest.mark.parametrize("kind", [str, Path])
def test_files_with_another_content_are_named_and_files_elsewhere_are_not(tmp_path, kind):
    for number in range(8):
        for folder in ("here", "there"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{number}.txt").write_text(str(number))
    seen_in(tmp_path / "run", DataLoader(Files(tmp_path / "here", kind), 2), stop=3)

    assert seen_in(tmp_path / "run", DataLoader(Files(tmp_path / "there", kind), 2))[1] is True

    (tmp_path / "there" / "6.txt").write_text("9")
    seen_in(tmp_path / "again", DataLoader(Files(tmp_path / "here", kind), 2), stop=3)
    assert "the content of Files" in seen_in(tmp_path / "again", DataLoader(Files(tmp_path / "there", kind), 2))[1][0]


def test_what_a_dataset_keeps_of_what_it_has_read_is_no_content(tmp_path):
    data = Remembering()
    seen_in(tmp_path, DataLoader(data, 2), stop=5)

    assert seen_in(tmp_path, DataLoader(data, 2))[1] is True


def test_arrays_on_disk_and_large_ones_are_sampled(tmp_path):
    large = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.uint8, (1 << 27,))
    before = content_of([large, large.T, large[::2], torch.from_numpy(large)[::3]])
    large[-1] = 1

    assert content_of([large]) != content_of([np.zeros_like(large)])
    assert content_of([large, large.T, large[::2], torch.from_numpy(large)[::3]]) != before
