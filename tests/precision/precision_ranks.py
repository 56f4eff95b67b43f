"""Real processes joined by gloo, for tests of several ranks: no ports, and nobody leaves before all are done."""

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.multiprocessing as mp


def run_ranks(work, folder, *args, world=2):
    """What ``work(rank, world, *args)`` returned in each process; the first rank's error if it raised."""
    mp.start_processes(_run_one, args=(work, str(folder), world, args), nprocs=world, start_method="spawn")
    outcomes = [pickle.loads(_outcome(folder, rank).read_bytes()) for rank in range(world)]
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def _run_one(rank, work, folder, world, args):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    try:
        outcome = work(rank, world, *args)
    except Exception as error:  # noqa: BLE001 - handed to the parent, which raises it
        outcome = error
    written = _outcome(folder, rank).with_suffix(".part")
    written.write_bytes(pickle.dumps(outcome))
    written.rename(_outcome(folder, rank))
    while not all(_outcome(folder, other).exists() for other in range(world)):
        time.sleep(0.01)  # a rank that leaves first takes the others' connections with it
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it


def _outcome(folder, rank):
    return Path(folder) / f"rank{rank}.outcome"


def run_threads(work, *, world=2):
    """What ``work(rank, group)`` returned in each thread; the threads talk as processes would, but start at once.

    torch must be initialized, with any group.
    """
    store = torch.distributed.HashStore()

    def join(rank):
        group = torch.distributed.ProcessGroup(store, rank, world)
        backend = torch.distributed.ProcessGroupGloo(store, rank, world)
        group._register_backend(torch.device("cpu"), torch.distributed.ProcessGroup.BackendType.GLOO, backend)
        return work(rank, group)

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(join, range(world)))
