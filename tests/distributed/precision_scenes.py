"""Ranks that train in mixed precision under DDP."""

import math

import torch
from tests.distributed.scenes import batch, join, wrapped

import model_checkpoint as mc
from model_checkpoint.precision import MixedPrecisionOptimizer, MixedPrecisionOptions

OPTIONS = {"initial_loss_scale": 2.0**20, "enable_performance_monitoring": True}


def _begin(world, seed):
    model = wrapped("ddp", world, seed=seed)
    options = MixedPrecisionOptions.for_fp16(**OPTIONS)
    return model, MixedPrecisionOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1), options, model=model)


def _train(model, optimizer, steps):
    """Tell what must not depend on the number of ranks, and what each has measured."""
    losses = []
    for step in steps:
        inputs, wanted = batch(step)
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    stats = optimizer.get_stats()
    return {
        "losses": losses,
        "scale": math.log2(optimizer.scaler.current_scale),
        "skipped": stats.skipped_steps,
        "masters": {name: value.tolist() for name, value in optimizer.master_weights.items()},
        "timeline": optimizer.session.timeline.to_tree(),
        "measured": stats.performance_stats.total_time_seconds,
    }


def save_mixed(rank, world, folder, *, root):
    """Train until the first steps were skipped, save, train on."""
    coordinator = join()
    model, optimizer = _begin(world, seed=0)
    measured = _train(model, optimizer, range(3))["measured"]
    mc.save(root, {"model": model, "optimizer": optimizer}, step=3, coordinator=coordinator)
    return {**_train(model, optimizer, range(3, 6)), "measured": measured}


def resume_mixed(rank, world, folder, *, root):
    """Load into fresh objects and train on."""
    coordinator = join()
    model, optimizer = _begin(world, seed=7)
    mc.load(root, into={"model": model, "optimizer": optimizer}, coordinator=coordinator)
    return _train(model, optimizer, range(3, 6))
