"""What one coordinator, or one after the other, leaves of threads, files and words, and keeps of them."""

import gc
import os
import threading

import numpy as np
import torch.distributed as dist
from tests.distributed.scenes import join

import model_checkpoint as mc
from model_checkpoint.distributed import TorchCoordinator
from model_checkpoint.engine.ranks.rank_agreement import agree
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls


class HeldDisk(Syscalls):
    """Takes no array before it is let."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()

    def pwrite(self, fd, data, offset):
        assert len(data) < 4096 or self.go_on.wait(60)
        return super().pwrite(fd, data, offset)


def one_coordinator_a_save(rank, world, folder, *, root, saves):
    """Threads, open files and words in the store after each save, all of which have a coordinator of their own."""
    join()
    counts = []
    for step in range(saves):
        mc.save(root, {"at": rank}, step=step, coordinator=TorchCoordinator(patience=60.0))
        gc.collect()
        dist.barrier()
        store = dist.group.WORLD.get_group_store()
        counts.append([threading.active_count(), len(os.listdir("/proc/self/fd")), store.num_keys()])
        dist.barrier()
    return counts


def beside_many_calls(rank, world, folder, *, root, calls):
    """A background save whose rank 0 writes when the others have voted and all have made many other calls."""
    ranks, disk = join(), HeldDisk()
    if rank:
        disk.go_on.set()
    state = {"own": np.full(100_000, rank)}
    job = mc.save_async(LocalStore(root, calls=disk), state, step=1, coordinator=ranks)
    for number in range(calls):
        agree(ranks, "step", lambda: {}, lambda words, number=number: {"n": number})
    disk.go_on.set()
    return job.result(timeout=60).step
