"""The limit a process has of its own (``ulimit -v``) is a ceiling too, and what the system refuses is told."""

import subprocess
import sys

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.engine.background.staging_pool import StagingPool
from model_checkpoint.errors import MemoryRefused

MIB = 1 << 20

SCRIPT = """
import resource, sys
import numpy as np
import model_checkpoint as mc
from model_checkpoint.engine.background.staging_pool import POOL
from model_checkpoint.performance.available_memory import available_bytes

mc.save("memory://before", {"a": 1}, step=1)  # brings the modules of a save, which take room of their own
state = {"w": np.arange(32 << 20, dtype=np.float64)}
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (160 << 20),) * 2)
room = available_bytes()
mc.save_async(sys.argv[1], state, step=1).result()
print(room >> 20, POOL.peak <= room // 2)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much address space is used")
def test_a_save_in_a_small_address_space_goes_in_waves(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )

    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["True"]), done.stderr
    assert 100 < int(done.stdout.split()[0]) <= 160
    assert np.array_equal(mc.load(tmp_path)["w"], np.arange(32 << 20, dtype=np.float64))


def test_memory_the_system_refuses_is_told_with_what_is_held():
    pool = StagingPool()
    slab = pool.take(4096, limit=1 << 62, stopped=lambda: False)

    with pytest.raises(
        MemoryRefused, match=r"the system refused 4611686018427387904 bytes more .*, 4096 are held. Pass"
    ):
        pool.take(1 << 62, limit=1 << 63, stopped=lambda: False)

    pool.give(slab)
    assert pool.total == 4096


def test_memory_the_system_refuses_is_waited_for_while_slabs_return():
    pool = StagingPool()
    slab, asked = pool.take(8192, limit=1 << 62, stopped=lambda: False), []

    def give_back_once():
        asked.append(1)
        if len(asked) == 2:
            pool._idle.append(slab)
        return len(asked) > 50

    with pytest.raises(MemoryRefused, match="0 are held"):  # nothing is left that could return
        pool.take(1 << 62, limit=1 << 63, stopped=give_back_once, returning=True)

    assert len(asked) == 2
