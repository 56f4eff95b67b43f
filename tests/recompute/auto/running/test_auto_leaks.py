"""Nothing is left of a step, however many there were: tensors, storages, finalizers, threads, files, descriptors."""

import gc
import os
import threading
import weakref

import pytest
import torch
from test_auto_every_mode import CASES, fail, failing
from tests.recompute.auto.auto_models import EVERY_MODE, runtime_in, spill_files
from torch import nn

from model_checkpoint.recompute.auto.saving import drop

pytestmark = pytest.mark.slow


def settle(runtime):
    """Wait until the workers have let go of what they ran last; first the one that gives work to the other."""
    for pool in (
        runtime.resources.prefetcher and runtime.resources.prefetcher._pool,
        runtime.resources.offloader._pool,
    ):
        if pool is not None:
            pool.submit(int).result(60)


def census(runtime, folder):
    """How many there are of everything a step makes, and of all Python objects."""
    settle(runtime)
    runtime.statistics.reset()  # keeps a log of fixed length
    gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    counts = {
        "tensors": sum(issubclass(kind, torch.Tensor) for kind in kinds),
        "storages": sum(issubclass(kind, torch.UntypedStorage) for kind in kinds),
        "finalizers": len(weakref.finalize._registry),
        "recipes": len(drop._known),
        "threads": threading.active_count(),
        "files": len(spill_files(folder)),
        "descriptors": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
    }
    return counts, len(kinds)


class Small(nn.Module):
    """Something for every mode: a cheap result, a mask, a view."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.2)

    def forward(self, x):
        return self.drop(self.norm(self.linear(x).tanh()).t().t())


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_nothing_leaks_over_a_thousand_steps(mode, tmp_path):
    model, x = nn.Sequential(*[Small() for _ in range(3)]), torch.randn(2, 4)
    if "prefetch" in mode:  # what draws is never run ahead
        model.eval()
    with runtime_in(model, mode, tmp_path) as runtime:
        for _ in range(20):
            model(x).sum().backward()
        before, objects = census(runtime, tmp_path)
        for _ in range(1000):
            model(x).sum().backward()
        after, more = census(runtime, tmp_path)

    assert after == before
    assert more - objects < 200


@pytest.mark.parametrize(("mode", "when"), CASES)
def test_nothing_leaks_over_a_hundred_steps_that_fail(mode, when, tmp_path):
    model, x = failing()
    with runtime_in(model, mode, tmp_path) as runtime:
        for _ in range(5):
            fail(model, x, when)
        before, objects = census(runtime, tmp_path)
        for _ in range(100):
            fail(model, x, when)
        after, more = census(runtime, tmp_path)

    assert after == before
    assert more - objects < 50
