"""Trainings in children of a warm process: started, killed at random moments, started again until they end."""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

import model_checkpoint as mc


def start(train, root, out, **options):
    """Run ``train(root, out, ...)`` in a child of this warm process, in a group of its own with its workers."""
    begun, begin = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begin)
        with os.fdopen(begun) as leader:
            leader.read()  # it leads its group from here on
        return pid
    code = 1
    try:
        os.setsid()
        os.close(begin)
        os.close(begun)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        torch.set_num_threads(1)
        train(root, out, **options)
        mc.finish_saves()
        code = 0
    except SystemExit as error:
        code = int(error.code)
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001  # a child must not come back into the tests
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def ended(pid):
    """The exit code of a child, once it is over."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def unbroken(train, folder, **options):
    """What the whole training ends with, and how long it takes."""
    began = time.monotonic()
    assert ended(start(train, folder / "whole", folder / "whole.out", **options)) == 0
    return (folder / "whole.out").read_text(), time.monotonic() - began


def killed_until_done(train, root, out, *, kills, seconds, seed, **options):
    """Kill the training at random moments, start it again each time; returns the steps it resumed from.

    The first kill and every other one come after a new save: before the first they would prove nothing.
    """
    chance, left = random.Random(seed), kills
    while not Path(out).exists():
        pid, saved = start(train, root, out, **options), checkpoints(root)
        if not left:
            assert ended(pid) == 0
            break
        while (kills - left) % 2 == 0 and checkpoints(root) == saved and not Path(out).exists():
            time.sleep(0.01)
        time.sleep(chance.uniform(0.02, seconds))
        if Path(out).exists():
            assert ended(pid) == 0
        else:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            left -= 1
    return [int(step) for step in Path(f"{out}.from").read_text().split()]


def checkpoints(root):
    return {path.name for path in Path(root).glob("checkpoints/*")}
