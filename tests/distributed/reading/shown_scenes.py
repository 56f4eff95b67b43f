"""Ranks that show chunks to each other, of which one stops in the middle of taking one."""

import itertools
import os
import signal
from pathlib import Path

import numpy as np
from tests.distributed.reading.cold_reads import MIB, ColdReads
from tests.distributed.scenes import join

import model_checkpoint as mc
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.storage.local.store import LocalStore

TABLE = 1 + np.arange(24 * MIB, dtype=np.int32)  # no two chunks have a number in common


def stopped_while_taking(rank, world, folder, *, root):
    """What a load of all of it came to, and what is in the table then; rank 1 stops before it copies a shown chunk."""
    coordinator = join(patience=3.0)
    look, looks, table = ChunkReader.is_healthy, itertools.count(1), np.zeros_like(TABLE)

    def stop_at_third(reader, read, data):
        healthy = look(reader, read, data)
        if rank == 1 and len(data) >= MIB and next(looks) == 3:
            (Path(folder) / "midway").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return healthy

    ChunkReader.is_healthy = stop_at_third
    made = {"error": "", "ranks": []}
    try:
        mc.load(LocalStore(root, calls=ColdReads()), into={"w": table}, coordinator=coordinator)
    except mc.CheckpointException as error:
        made = {"error": type(error).__name__, "ranks": list(error.ranks)}
    right, empty = int((table == TABLE).sum()), int((table == 0).sum())
    return made | {"right": right, "wrong": table.size - right - empty}
