"""The ceiling of a background save counts what waits in memory for an object store."""

import os
import subprocess
import sys

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import MemoryRefused
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.writer import Buffers

pytestmark = pytest.mark.s3

MIB = 1 << 20
NOISE = 24 * MIB  # of the threads and the network, beside our own buffers
# by itself the allocator keeps more and more of what was freed: up to 30 MB that no buffer of ours holds
TELLING_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(MIB)}

SCRIPT = """
import sys, threading, time
import numpy as np
import model_checkpoint as mc

url, limit, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
state = {"w": np.random.default_rng(0).standard_normal(32 << 20)}
mc.save(url, {"w": np.ones(100)}, step=0)
peak, over = 0, threading.Event()


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096


def watch():
    global peak
    while not over.wait(0.005):
        peak = max(peak, resident())


before, watcher = resident(), threading.Thread(target=watch, daemon=True)
watcher.start()
mc.save_async(url, state, step=1, memory_limit=limit, compression=level).result()
over.set()
watcher.join()
print(max(0, peak - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "level"), [(1 / 8, "none"), (1 / 6, "fast"), (1 / 2, "none"), (1 / 2, "fast"), (2, "none"), (2, "fast")]
)
def test_peak_memory_of_an_upload_stays_below_the_ceiling(seaweed, tmp_path, share, level):
    url, limit = f"s3://bucket/memory/{tmp_path.name}", int(256 * MIB * share)
    environment = {**os.environ, **TELLING_ALLOCATOR, **seaweed.environment()}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, url, str(limit), level],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= limit + NOISE


def test_buffers_fit_what_they_are_given():
    for nbytes in range(Buffers.least(), 200 * MIB, MIB):
        buffers = Buffers.within(nbytes)

        assert buffers.nbytes <= nbytes
        assert buffers.part >= 5 * MIB
        assert buffers.at_once >= 1
        assert buffers.window >= buffers.part

    assert Buffers.within(0).nbytes == Buffers.least() <= 20 * MIB


def test_a_ceiling_too_low_for_one_upload_is_refused_with_the_least_that_works(moto, tmp_path):
    store = ObjectStore(f"s3://bucket/low/{tmp_path.name}", store=moto.client("bucket"))
    state = {"w": np.zeros(MIB)}

    with pytest.raises(
        MemoryRefused, match=r"memory_limit is 4194304 bytes, but its longest chunk needs \d+"
    ) as caught:
        mc.save_async(store, state, step=1, memory_limit=4 * MIB)
    least = int(str(caught.value).split("chunk needs ")[1].split(".")[0])

    assert mc.save_async(store, state, step=1, memory_limit=least).result(60).step == 1
