"""Resident memory of a whole process, whose worker runs ahead or writes to disk for real."""

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

AHEAD = """
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(16)])
x = torch.randn(2048, 512)
auto_checkpoint(model, 0.4, x, loss=loss, prefetch=True)
limit, plain = model.plan.budget_bytes, model.plan.plain_bytes
"""
TO_DISK = """
import dataclasses
from model_checkpoint.recompute.auto.planning.schedule import Keep
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(8)])
x = torch.randn(1024, 512)
auto_checkpoint(model, 1.0, x, loss=loss, offload="disk", spill_dir=sys.argv[1])
schedule = tuple(Keep(stage=i, mode="disk") for i in range(8))
limit, plain = model.plan.profile.calibration._measure(schedule), model.plan.plain_bytes
auto_checkpoint(model, plan=dataclasses.replace(model.plan, schedule=schedule), spill_dir=sys.argv[1])
"""


def measured(script, *arguments):
    """By how much one step grows the memory of a process of its own, and what ``script`` says of limit and plain."""
    begin = """
import gc, sys, torch
from torch import nn
from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
torch.set_num_threads(1)
loss = lambda y: y.pow(2).mean()
"""
    end = """
def reset(): open("/proc/self/clear_refs", "w").write("5")
def status(key): return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(key))
for _ in range(2): loss(model(x)).backward()
gc.collect()
base = status("VmRSS"); reset()
loss(model(x)).backward()
print(status("VmHWM") - base, limit, plain)
"""
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", begin + script + end, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return map(int, out.stdout.split())


def test_resident_memory_with_prefetch_stays_within_the_budget():
    grown, budget, plain = measured(AHEAD)

    assert grown <= 1.02 * budget, (grown, budget)
    assert grown < 0.5 * plain


def test_resident_memory_with_a_real_worker_is_no_more_than_what_was_measured(tmp_path):
    grown, peak, plain = measured(TO_DISK, str(tmp_path))

    assert grown <= 1.05 * peak, (grown, peak)
    assert grown < 0.6 * plain
