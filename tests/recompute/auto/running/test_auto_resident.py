"""Resident memory of a whole process whose worker writes to disk for real."""

import os
import subprocess
import sys

import pytest

CHILD = """
import sys, torch
from torch import nn
from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.planning.schedule import Keep
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(8)])
x = torch.randn(1024, 512)
loss = lambda y: y.pow(2).mean()
auto_checkpoint(model, 1.0, x, loss=loss, offload="disk", spill_dir=sys.argv[1])
profile = model.plan.profile
schedule = tuple(Keep(stage=i, mode="disk") for i in range(8))
peak = profile.calibration._measure(schedule)
import dataclasses
plan = dataclasses.replace(model.plan, schedule=schedule)
auto_checkpoint(model, plan=plan, spill_dir=sys.argv[1])
def reset(): open("/proc/self/clear_refs", "w").write("5")
def status(key): return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(key))
for _ in range(2): loss(model(x)).backward()
import gc; gc.collect()
base = status("VmRSS"); reset()
loss(model(x)).backward()
print(status("VmHWM") - base, peak, plan.plain_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_resident_memory_with_a_real_worker_is_no_more_than_what_was_measured(tmp_path):
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    grown, measured, plain = map(int, out.stdout.split())

    assert grown <= 1.05 * measured, (grown, measured)
    assert grown < 0.6 * plain
