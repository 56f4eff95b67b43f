"""What ranks do under mc.Run in tests: each function runs in every process of a group."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
from tests.distributed.scenes import join
from tests.integrations.loop.loop_training import Augmented, digest
from torch.utils.data import DataLoader, DistributedSampler

import model_checkpoint as mc

EPOCHS = 3


def train(rank, world, folder, *, root, every=3, pause=0.0, end=None, at=5, workers=0):
    """Train a model that all ranks share, each on its part of the data, with randomness of its own.

    Rank ``end`` gets a SIGTERM in the body of step ``at``, from itself. Workers live on from one epoch to the next.
    """
    ranks = join()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
    model = torch.nn.parallel.DistributedDataParallel(net)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(rank)
    data = Augmented()
    sampler = DistributedSampler(data, world, rank, seed=5)
    loader = DataLoader(data, 4, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
    run = mc.Run(
        root, data=loader, epochs=EPOCHS, every=every,
        coordinator=ranks, model=model, optimizer=optimizer, schedule=schedule, average=average,
    )  # fmt: skip
    Path(folder, f"from-{rank}").write_text(str(run.resumed_from or 0))
    try:
        for batch in run:
            with model.no_sync() if run.step % 2 == 0 else torch.enable_grad():
                (model(batch).square().mean() / 2).backward()
            if run.step % 2:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            average.update_parameters(net)
            run.log(loss=float(rank))
            if rank == end and run.step == at:
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(pause)
    except SystemExit as error:
        return {"code": error.code, "step": run.step}
    return {"step": run.step, "exact": run.exact, "digest": digest(net, average, optimizer, schedule)}
