"""Power is cut under a store that saves, replaces and deletes without pause: nothing acknowledged may be missing.

A file system in a loop-mounted file is shut down with all its unflushed state (the ioctl of ext4 and XFS), then mounted
again as after a power loss.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import time

import pytest

from model_checkpoint.errors import CheckpointException
from model_checkpoint.storage import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs

CUTS = 50
KEPT = 6

pytestmark = [pytest.mark.slow, pytest.mark.fault]


def content(name, version):
    """The files of one version of one checkpoint; anybody can compute them again."""
    draw = random.Random(f"{name}/{version}")
    return {f"r0-{i}-{version}.bin": draw.randbytes(draw.randrange(60_000)) for i in range(draw.randrange(1, 4))}


class Model:
    """What must be there, told by the messages of the saver; the operation under way may or may not have happened."""

    def __init__(self):
        self.sure = {}  # name -> version
        self.pending = None  # (name, version or None)

    def hear(self, line):
        word, name, version = json.loads(line)
        self.pending = (name, version) if word == "begin" else None
        if word == "done" and version is None:
            del self.sure[name]
        elif word == "done":
            self.sure[name] = version

    def check(self, store):
        """Compare with what came back; adopt what the cut decided."""
        found = {}
        for name in store.names():
            files = load_blobs(store, name)
            found[name] = next(iter(files)).split("-")[2].removesuffix(".bin")
            assert files == content(name, found[name])
        wanted = dict(self.sure)
        if self.pending is not None:
            name, version = self.pending
            if found.get(name) == version:
                wanted.pop(name, None) if version is None else wanted.update({name: version})
        assert found == wanted
        self.sure, self.pending = found, None


def saver(root, calls, seed, sure, tell):
    """Save new steps, replace and delete old ones, until the disk is gone."""
    store, draw, names = LocalStore(root, calls=calls), random.Random(seed), dict(sure)
    for turn in range(100_000):
        version = hashlib.sha256(f"{seed}/{turn}".encode()).hexdigest()[:16]
        name = draw.choice(sorted(names)) if names and draw.random() < 0.4 else f"step-{seed:03d}{turn:05d}"
        if len(names) > KEPT:
            name, version = min(names), None
        tell("begin", name, version)
        if version is None:
            store.discard(name)
            store.sweep(AT_ONCE)
            del names[name]
        else:
            obsolete = list(content(name, names[name])) if name in names else []
            save_blobs(store, name, content(name, version), attempt=version, replace=True, obsolete=obsolete)
            names[name] = version
        tell("done", name, version)


def start_saver(root, calls, seed, model):
    """Fork the saver; return its pid and the stream of its messages, which live outside the doomed disk."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, os.fdopen(reader, "rb")
    try:
        with contextlib.suppress(CheckpointException):
            saver(root, calls, seed, model.sure, lambda *words: os.write(writer, json.dumps(words).encode() + b"\n"))
    finally:
        os._exit(0)


def cut_power_once(disk, calls, seed, model):
    """Let the saver do a few things and a bit of the next, cut, mount again; return how much it acknowledged."""
    root, draw = disk.mount_point / "runs", random.Random(seed)
    child, stream = start_saver(root, calls, seed, model)
    lines = [stream.readline() for _ in range(draw.randrange(1, 24))]
    time.sleep(draw.uniform(0.0, 0.02))
    disk.cut()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with stream:
        lines += stream.read().splitlines()
    for line in lines:
        model.hear(line)
    disk.unmount()
    disk.mount()
    return sum(b'"done"' in line for line in lines)


def test_no_acknowledged_save_is_lost_when_power_goes(disk):
    model, acknowledged = Model(), 0

    for seed in range(CUTS):
        acknowledged += cut_power_once(disk, Syscalls(), seed, model)
        store = LocalStore(disk.mount_point / "runs")
        model.check(store)
        store.sweep(AT_ONCE)
        model.check(store)
        remains = [*disk.mount_point.glob("runs/.staging/*"), *disk.mount_point.glob("runs/.trash/*")]
        assert remains == []
        assert all(set(store.files(n)) == {*load_blobs(store, n), "manifest.json"} for n in store.names())

    assert acknowledged >= 4 * CUTS


class WithoutFolderFlush(Syscalls):
    """A system whose folder flushes do nothing."""

    def fsync_dir(self, path):
        pass


class WithoutFileFlush(Syscalls):
    """A system whose file flushes do nothing."""

    def fsync(self, fd):
        pass


@pytest.mark.parametrize("calls", [WithoutFolderFlush(), WithoutFileFlush()], ids=lambda c: type(c).__name__)
def test_the_harness_sees_what_a_missing_flush_loses(disk, calls):
    """Or the test above would prove nothing."""

    def lose():
        model = Model()
        for seed in range(CUTS):
            cut_power_once(disk, calls, seed, model)
            model.check(LocalStore(disk.mount_point / "runs"))

    with pytest.raises((AssertionError, CheckpointException), match=r"assert |the manifest cannot be used"):
        lose()
