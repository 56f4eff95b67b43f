"""Trainings in children of a warm process: started, killed in random batches, started again until they end."""

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


def until(pid, ready):
    """Wait until something is so; the exit code of the child if that ends first, else None."""
    while not ready():
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def batches_done(out):
    """How many batches were trained on so far, in all processes together."""
    counted = Path(f"{out}.batches")
    return counted.stat().st_size if counted.exists() else 0


def starts_of(out):
    """The steps that the processes of a training went on from, one after the other."""
    return [int(step) for step in Path(f"{out}.from").read_text().split()]


def unbroken(train, folder, **options):
    """What the whole training ends with, and how many batches that takes."""
    out = folder / "whole.out"
    assert ended(start(train, folder / "whole", out, **options)) == 0
    return out.read_text(), batches_done(out)


def killed_in(train, root, out, *, batch, saved, **options):
    """Kill a training ``batch`` batches after its start, once ``saved()``; its exit code if it was over by then."""
    before, pid = batches_done(out), start(train, root, out, **options)
    code = until(pid, lambda: saved() and batches_done(out) - before >= batch)
    if code is not None:
        return code
    time.sleep(batch % 1 * options["pause"])  # anywhere in the batch
    os.killpg(pid, signal.SIGKILL)
    code = ended(pid)
    return None if code == -signal.SIGKILL else code


def killed_until_done(train, root, out, *, kills, batches, seed, **options):
    """Kill the training in random batches, start it again each time; returns the steps it resumed from.

    The first kill and every other one come after a new save: before the first they would prove nothing.
    """
    chance = random.Random(seed)
    moments, last = sorted(chance.uniform(0.1, 0.75) * batches for _ in range(kills)), 0.0
    for number, moment in enumerate(moments):
        known = checkpoints(root) if number % 2 == 0 else None
        code = killed_in(
            train, root, out, batch=moment - last, saved=lambda known=known: checkpoints(root) != known, **options
        )
        assert code is None, f"it ended by itself with code {code}, before it was killed for time {number + 1}"
        last = moment
    assert ended(start(train, root, out, **options)) == 0
    starts = starts_of(out)
    assert len(starts) == kills + 1
    assert starts[0] == 0 < starts[1]
    return starts


def whole_and_killed(train, folder, *, kills, seed, **options):
    """What the training ends with unbroken, what it ends with when it is killed, and the steps it resumed from."""
    whole, batches = unbroken(train, folder, **options)
    out = folder / "killed.out"
    starts = killed_until_done(train, folder / "killed", out, kills=kills, batches=batches, seed=seed, **options)
    return whole, out.read_text(), starts


def whole_and_lengthened(train, folder, lengths, **options):
    """What the training ends with, the same when it had ended before, and the steps that this one went on from."""
    whole, _ = unbroken(train, folder, **options)
    out = folder / "longer.out"
    for length in lengths:
        out.unlink(missing_ok=True)
        assert ended(start(train, folder / "longer", out, **length, **options)) == 0
    return whole, out.read_text(), starts_of(out)


def told_to_end(train, root, out, *, number, batches, send=os.killpg, **options):
    """Send a signal to a training that has trained on so many batches; returns its exit code."""
    pid = start(train, root, out, **options)
    assert until(pid, lambda: batches_done(out) >= batches) is None
    send(pid, number)
    return ended(pid)


def checkpoints(root):
    """The names of those that are whole."""
    return {path.name for path in Path(root).glob("checkpoints/*")}
