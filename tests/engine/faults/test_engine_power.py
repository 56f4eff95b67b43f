"""Power is cut while the engine saves without pause: every acknowledged checkpoint loads bit for bit afterwards."""

import contextlib
import os
import random
import signal
import time

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.options import Graces
from model_checkpoint.testing.blobs import AT_ONCE

pytestmark = [pytest.mark.slow, pytest.mark.fault]
CUTS = 50


WAYS = {
    "plain": lambda root, step: mc.save(root, state(step), step=step),
    "background, incremental and compressed": lambda root, step: mc.save_async(
        root, state(step), step=step, incremental=True, compression=mc.CompressionLevel.FAST
    ).result(),
}
FROZEN = np.random.default_rng(0).standard_normal(100_000)


def state(step):
    draw = np.random.default_rng(step)
    return {
        "frozen": FROZEN,
        "big": draw.standard_normal(700_000 + step),
        "small": [draw.standard_normal(7) for _ in range(20)],
        "step": step,
    }


def equal(a, b):
    return (
        a["step"] == b["step"]
        and np.array_equal(a["frozen"], b["frozen"])
        and np.array_equal(a["big"], b["big"])
        and all(map(np.array_equal, a["small"], b["small"]))
    )


def save_on_and_on(save, root, first, writer):
    """Save and delete, telling of each acknowledged save through a pipe that outlives the disk."""
    for step in range(first, first + 1000):
        save(root, step)
        os.write(writer, step.to_bytes(4, "little"))
        if step >= first + 2:
            mc.delete(root, step=step - 2)
            mc.collect_garbage(root, graces=Graces(trash=0.0))


def cut_once(disk, save, root, first, *, acks, pause):
    """Let the saver acknowledge a few saves and begin the next, cut, mount again; return what it acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            save_on_and_on(save, root, first, writer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read(4 * acks)
        time.sleep(pause)
        disk.cut()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        data += stream.read()
    disk.unmount()
    disk.mount()
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


@pytest.mark.parametrize("way", WAYS)
def test_no_acknowledged_checkpoint_is_lost_when_power_goes(disk, way):
    root, draw, acknowledged, shared = disk.mount_point / "runs", random.Random(7), 0, 0
    for turn in range(CUTS):
        told = cut_once(disk, WAYS[way], root, turn * 1000, acks=draw.randrange(5), pause=draw.uniform(0.0, 0.1))
        acknowledged += len(told)
        if told:
            assert equal(mc.load(root, step=told[-1]), state(told[-1]))
        for info in mc.list_checkpoints(root) if root.exists() else []:
            assert equal(mc.load(root, step=info.step), state(info.step))
            shared += len(info.shared_with)
            mc.delete(root, step=info.step)
        if root.exists():
            mc.collect_garbage(root, graces=AT_ONCE)

    assert acknowledged > CUTS
    assert (shared > 5) == ("incremental" in way)  # files of which power loss could take all links at once
