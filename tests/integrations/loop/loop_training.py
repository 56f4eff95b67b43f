"""A small training with everything a resume gets wrong: augmentation, dropout, accumulation, averages, evaluation."""

import hashlib
import random
import warnings
from pathlib import Path

import numpy as np
import torch
from tests.integrations import trainer_data
from tests.integrations.trainer_data import take_time, tell_start
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torchdata.stateful_dataloader import StatefulDataLoader

import model_checkpoint as mc

SAMPLES = 131
EPOCHS = 3


class Augmented(trainer_data.Augmented):
    """The same samples, without names."""

    def __init__(self):
        super().__init__(SAMPLES)

    def __getitem__(self, index):
        return super().__getitem__(index)["x"]


class Shuffled(IterableDataset):
    """A stream with a shuffle buffer."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, by = (worker.id, worker.num_workers) if worker else (0, 1)
        buffer = []
        for index in range(first, SAMPLES, by):
            buffer.append(index)
            if len(buffer) > 16:
                chosen = random.randrange(len(buffer))
                buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
                yield torch.full((6,), buffer.pop() / SAMPLES) + 0.1 * torch.rand(6)
        yield from (torch.full((6,), index / SAMPLES) for index in buffer)


class Late(Sampler):
    """Draws each index only when it is asked for, from a generator the model draws from too."""

    def __iter__(self):
        return (random.randrange(SAMPLES) for _ in range(SAMPLES))

    def __len__(self):
        return SAMPLES


class LateBatches(BatchSampler):
    """Shuffles each batch only when it is asked for, from a generator the model draws from too and from its own."""

    def __init__(self):
        super().__init__(SequentialSampler(range(SAMPLES)), 8, drop_last=False)
        self.rng = random.Random(3)

    def __iter__(self):
        for batch in super().__iter__():
            yield [batch[int(torch.randint(len(batch), ()))] for _ in batch] + [self.rng.randrange(SAMPLES)]


class Noisy:
    """No loader at all: draws in between, from the generators of the program."""

    def __iter__(self):
        for _ in range(17):
            yield torch.rand(8, 6) + float(np.random.rand())


class KnowsPlace:
    """What is saved of data that know their place."""

    at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Placed(KnowsPlace, IterableDataset):
    """A stream that knows its place in each worker, for a loader that asks for it."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        while self.at < SAMPLES // worker.num_workers:
            self.at += 1
            yield torch.full((6,), (self.at * worker.num_workers + worker.id) / SAMPLES)
        self.at = 0


class Counting(KnowsPlace):
    """Data that knows its place."""

    def __iter__(self):
        while self.at < 17:
            self.at += 1
            yield torch.full((8, 6), self.at / 17)
        self.at = 0


def seeded(seed):
    return torch.Generator().manual_seed(seed)


WORKERS = {"num_workers": 2, "prefetch_factor": 3}


def stateful():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls what torch has deprecated
        return StatefulDataLoader(Placed(), 8, **WORKERS)


DATA = {
    "shuffled": lambda: DataLoader(Augmented(), 8, shuffle=True),
    "generator, last dropped": lambda: DataLoader(Augmented(), 8, shuffle=True, generator=seeded(1), drop_last=True),
    "workers": lambda: DataLoader(Augmented(), 8, shuffle=True, **WORKERS),
    "workers, generator": lambda: DataLoader(Augmented(), 8, shuffle=True, generator=seeded(1), **WORKERS),
    "persistent workers": lambda: DataLoader(Augmented(), 8, shuffle=True, persistent_workers=True, **WORKERS),
    "batch sampler": lambda: DataLoader(
        Augmented(), batch_sampler=BatchSampler(SubsetRandomSampler(range(9, SAMPLES)), 8, False), **WORKERS
    ),
    "distributed sampler": lambda: DataLoader(
        Augmented(), 8, sampler=DistributedSampler(Augmented(), 2, 1, seed=5), **WORKERS
    ),
    "weighted": lambda: DataLoader(
        Augmented(), 8, sampler=WeightedRandomSampler([1 + i % 5 for i in range(SAMPLES)], SAMPLES)
    ),
    "replacement": lambda: DataLoader(
        Augmented(), 8, sampler=RandomSampler(Augmented(), replacement=True, generator=seeded(4)), **WORKERS
    ),
    "no batches": lambda: DataLoader(Augmented(), None, shuffle=True, **WORKERS),
    "late sampler": lambda: DataLoader(Augmented(), 8, sampler=Late(), **WORKERS),
    "in order": lambda: DataLoader(Augmented(), 8, sampler=SequentialSampler(range(SAMPLES)), **WORKERS),
    "late batches": lambda: DataLoader(Augmented(), batch_sampler=LateBatches()),
    "late batches, workers": lambda: DataLoader(Augmented(), batch_sampler=LateBatches(), **WORKERS),
    "weighted, workers": lambda: DataLoader(
        Augmented(), 8, sampler=WeightedRandomSampler([1 + i % 5 for i in range(SAMPLES)], SAMPLES), **WORKERS
    ),
    "stream": lambda: DataLoader(Shuffled(), 8),
    "stream, workers": lambda: DataLoader(Shuffled(), 8, **WORKERS),
    "stream, persistent workers": lambda: DataLoader(Shuffled(), 8, persistent_workers=True, **WORKERS),
    "any iterable": Noisy,
    "data with a state": Counting,
    "StatefulDataLoader": stateful,
    "several loaders": lambda: {
        "first": DataLoader(Augmented(), 8, shuffle=True),
        "shorter": DataLoader(Augmented(), 40, shuffle=True, persistent_workers=True, **WORKERS),
        "longer": DataLoader(Augmented(), 5, shuffle=True, generator=seeded(2)),
    },
    "several kinds": lambda: {
        "stream": DataLoader(Shuffled(), 8, **WORKERS),
        "state": Counting(),
        "iterable": Noisy(),
        "late": DataLoader(Augmented(), 16, sampler=Late(), **WORKERS),
    },
}


def batches_in(data):
    """How many bodies an epoch has."""
    return sum(1 for _ in (next(iter(data.values())) if isinstance(data, dict) else data))


def train(root, out, *, make, pause=0.0, every=3, by_epochs=False, epochs=EPOCHS, accumulate=2, loop=mc.Run):
    """Train to the end, and write down the number of steps, whether it was exact, and a digest of everything."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    scaler = torch.amp.GradScaler("cpu", growth_interval=16)
    check = DataLoader(Augmented(), 16, shuffle=True)
    run = loop(
        root, data=make(), epochs=epochs, every=every, progress=False,
        model=model, optimizer=optimizer, schedule=schedule, average=average, scaler=scaler,
    )  # fmt: skip
    tell_start(out, run.resumed_from)

    def body(batch):
        parts = batch.values() if isinstance(batch, dict) else [batch]
        loss = model(torch.cat([one.view(-1, 6) for one in parts])).square().mean()
        scaler.scale(loss / 2).backward()
        if run.step % accumulate == accumulate - 1:  # gradients of two batches: no save in between
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()
        run.log(loss=loss)
        average.update_parameters(model)  # after log: a save in there would lose it
        if run.step % 11 == 10:
            evaluate()
        take_time(out, pause)

    def evaluate():
        model.eval()
        with torch.no_grad():
            run.log(val_loss=sum(model(x).mean() for x in check))
        model.train()

    if by_epochs:
        for batches in run.epochs():
            for batch in batches:
                body(batch)
            evaluate()
            with torch.no_grad():
                model[0].bias.add_(torch.rand(16) * 0.01)
    else:
        for batch in run:
            body(batch)
    told = f"{digest(model, average, optimizer, schedule)} {scaler.state_dict()} {run.metrics['loss']}"
    Path(out).write_text(f"{run.step} {run.exact} {told}")
    return model


def digest(model, average, optimizer, schedule):
    """Weights, averages, moments, schedule and every generator."""
    found = hashlib.sha256()
    moments = [value for state in optimizer.state.values() for value in state.values()]
    for one in [*model.state_dict().values(), *average.state_dict().values(), *moments, torch.get_rng_state()]:
        found.update(one.numpy().tobytes())
    found.update(repr((random.getstate(), np.random.get_state()[1].tolist(), schedule.last_epoch)).encode())
    return found.hexdigest()
