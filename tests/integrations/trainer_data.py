"""What trainers get wrong when they resume: samples, batches and evaluations that draw at random, from everywhere."""

import hashlib
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset

SAMPLES = 99


class Augmented(Dataset):
    """Draws from every generator there is, one of its own among them."""

    def __init__(self, samples=SAMPLES):
        self.samples, self.own = samples, np.random.default_rng(3)

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        noise = torch.rand(6) + float(np.random.rand()) + random.random() + float(self.own.random())
        return {"x": torch.full((6,), index / self.samples) + 0.1 * noise}


class Stream(IterableDataset):
    """The same, without indices."""

    def __iter__(self):
        samples = Augmented()
        worker = torch.utils.data.get_worker_info()
        first, by = (worker.id, worker.num_workers) if worker else (0, 1)
        yield from (samples[index] for index in range(first, SAMPLES, by))


def collate(samples):
    """Masks at random, as collators of language models do."""
    x = torch.stack([sample["x"] for sample in samples])
    return {"x": x * (torch.rand(x.shape) > 0.1)}


class Masking:
    """The same with a generator of its own, made when it is called for the first time, as one of transformers does."""

    def __init__(self, seed):
        self.seed, self.generator = seed, None

    def __call__(self, samples):
        if self.generator is None:
            worker = torch.utils.data.get_worker_info()
            self.generator = torch.Generator().manual_seed(self.seed + (worker.id if worker else 0))
        x = collate(samples)["x"]
        return {"x": x * (torch.rand(x.shape, generator=self.generator) > 0.1)}


def net():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))


def growing_scaler():
    """A scaler of gradients on its way to where they overflow: it grows, skips steps, and backs off."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**124, growth_interval=2)


def steps_taken(optimizer):
    """Steps that were not skipped."""
    return int(next(iter(optimizer.state.values()))["step"])


def weights(model):
    """A digest of the weights alone."""
    found = hashlib.sha256()
    for one in model.state_dict().values():
        found.update(one.numpy().tobytes())
    return found.hexdigest()


def tell_start(out, step):
    """Write down what this process went on from."""
    with Path(f"{out}.from").open("a") as file:
        file.write(f"{step or 0} ")


def take_time(out, pause):
    """Count one batch where others can see it, and take so long that a kill finds the training at work."""
    with Path(f"{out}.batches").open("ab", buffering=0) as file:
        file.write(b".")
    time.sleep(pause)


def digest(model, optimizer, scheduler, *more):
    """Weights, moments, schedule, every generator, and whatever else must be the same."""
    found = hashlib.sha256()
    moments = [value for state in optimizer.state.values() for value in state.values()]
    for one in [*model.state_dict().values(), *moments, torch.get_rng_state()]:
        found.update(one.numpy().tobytes())
    generators = random.getstate(), np.random.get_state()[1].tolist()
    found.update(repr((generators, scheduler.state_dict()["last_epoch"], more)).encode())
    return found.hexdigest()
