"""The ways to save and the operations that may die or fail, and what must hold after each: one table, one check."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from tests.ground.scenes import link_tree

import model_checkpoint as mc
from model_checkpoint import CompressionLevel
from model_checkpoint.engine.background.save_async import save_async
from model_checkpoint.engine.root import recover
from model_checkpoint.errors import DurabilityUnknown, StorageFailure
from model_checkpoint.manifest import decode
from model_checkpoint.options import Graces, LayoutLimits
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import Ended, Fault, Kind, run_here, run_in_child
from model_checkpoint.testing.blobs import AT_ONCE

NOW_BUT_KEEP_TRASH = Graces(local=0.0, foreign=0.0)
SMALL = LayoutLimits(chunk_bytes=1 << 14, file_bytes=1 << 16)  # several files and chunks of a state that costs little

CODES = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE]
KILLS = [Fault(kind=Kind.KILL_BEFORE, at=0), Fault(kind=Kind.KILL_AFTER, at=0)]
FAILURES = [
    *[
        Fault(kind=kind, at=0, code=c, lasting=lasting)
        for kind in (Kind.FAIL, Kind.LOSE_REPLY)
        for c in CODES
        for lasting in (False, True)
    ],
    Fault(kind=Kind.SHORT_WRITE, at=0),
    Fault(kind=Kind.SHORT_WRITE, at=0, lasting=True),
]


def name_of(fault):
    return f"{fault.kind.value}-{errno.errorcode.get(fault.code, '')}{'-lasting' if fault.lasting else ''}"


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to save."""

    name: str
    options: dict = field(default_factory=dict)
    background: bool = False

    def __str__(self):
        return self.name

    def save(self, store, epoch, *, step, overwrite=False):
        """Save and return once it is durable."""
        if self.background:
            return save_async(store, state(epoch), step=step, overwrite=overwrite, **self.options).result()
        return mc.save(store, state(epoch), step=step, overwrite=overwrite, **self.options)


WAYS = [
    Way(name="plain"),
    Way(name="async", background=True),
    Way(name="incremental", options={"incremental": True}),
    Way(name="compressed", options={"compression": CompressionLevel.FAST}),
    Way(name="all", options={"incremental": True, "compression": CompressionLevel.FAST}, background=True),
]


def state(epoch):
    """Two tensors that never change, in files of their own, and two that do; of several chunks each; one is noise."""
    return {
        "frozen": np.arange(10_000, dtype=np.float32) % 9,
        "still": np.arange(10_000, dtype=np.float32) % 7,
        "moving": np.full(2000, float(epoch)),
        "noise": np.random.default_rng(epoch).integers(0, 256, 5000, dtype=np.uint8),
        "epoch": epoch,
    }


def epoch_of(found):
    """Which state it is, bit for bit."""
    expected = state(found["epoch"])
    assert found.keys() == expected.keys()
    for key in expected.keys() - {"epoch"}:
        assert found[key].dtype == expected[key].dtype
        assert np.array_equal(found[key], expected[key]), key
    return found["epoch"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing done to a root that holds steps 1 and 2; ``step`` becomes ``after`` and was ``before``."""

    name: str
    work: Callable
    step: int | None = None
    before: int | None = None
    after: int | None = None

    def __str__(self):
        return self.name


SAVE = Operation(name="save", work=lambda way, store: way.save(store, 3, step=3), step=3, after=3)
OVERWRITE = Operation(
    name="overwrite", work=lambda way, store: way.save(store, 3, step=2, overwrite=True), step=2, before=2, after=3
)
OVERWRITE_FIRST = Operation(name="overwrite", work=lambda way, store: way.save(store, 3, step=1, overwrite=True))
DELETE = Operation(name="delete", work=lambda way, store: mc.delete(store, step=2), step=2, before=2)
RECOVER = Operation(name="recover", work=lambda way, store: store.sweep(AT_ONCE))  # of what others left
OPERATIONS = [SAVE, OVERWRITE, DELETE, RECOVER]


class Ground:
    """A root with steps 1 and 2, which share a file where saves are incremental, put back as it was for each run."""

    def __init__(self, folder, way, operation):
        self.way, self.operation, self.folder = way, operation, folder
        self.pristine, self.root = folder / "pristine", folder / "root"
        for step in (1, 2):
            way.save(self.pristine, step, step=step)
        if operation is RECOVER:
            self.leave_remains()
        self.reset()
        self.untouched = {}
        self.epochs = self.seen()
        self.untouched = {step: stamps(self.root, step) for step in self.epochs}

    def leave_remains(self):
        """What kills leave just after and before the switch of an overwrite and before that of a save; and trash."""
        self.way.save(self.pristine, 4, step=4)
        mc.delete(self.pristine, step=4)
        for operation, kind in [(OVERWRITE_FIRST, KILLS[1]), (OVERWRITE, KILLS[0]), (SAVE, KILLS[0])]:
            link_tree(self.pristine, self.root)
            renames = [call.index for call in run_here(self.work(operation)).trace if call.name == "rename"]
            link_tree(self.pristine, self.root)
            run_in_child(self.work(operation), replace(kind, at=renames[1]))
            link_tree(self.root, self.pristine)
        assert len(list((self.pristine / ".staging").iterdir())) == 6  # three locks, three stages

    @cached_property
    def labels(self):
        """The attempts there were from the beginning, by their steps."""
        manifests = sorted(self.pristine.glob("checkpoints/*/manifest.json"))
        return {decode(path.read_bytes(), "").attempt: path.parent.name for path in manifests}

    def reset(self):
        link_tree(self.pristine, self.root)

    def store(self, calls):
        recover._done.clear()  # as a new process would
        return LocalStore(self.root, calls=calls)

    def work(self, operation=None):
        """The operation, to be done with faulty calls."""
        return lambda calls: bool((operation or self.operation).work(self.way, self.store(calls)))

    def seen(self):
        """What a reader sees: the epoch of each step, every one whole."""
        return {info.step: self.epoch(info.step) for info in mc.list_checkpoints(self.root)}

    def epoch(self, step):
        """Which state a step is; the very files of the beginning need no second look."""
        if self.untouched.get(step) == stamps(self.root, step):
            return self.epochs[step]
        return epoch_of(mc.load(self.root, step=step))

    def check(self, outcome):
        """Other steps are untouched; the one in question is new if acknowledged, old if it failed, else one of both."""
        seen, operation = self.seen(), self.operation
        now, others = seen.get(operation.step), {step: seen[step] for step in seen if step != operation.step}
        assert others == {step: epoch for step, epoch in self.epochs.items() if step != operation.step}
        if outcome.acknowledged:
            assert now == operation.after
        elif outcome.ended is Ended.RAISED and not isinstance(outcome.error, DurabilityUnknown):
            assert now == operation.before
            assert isinstance(outcome.error, StorageFailure), repr(outcome.error)
        else:
            assert now in (operation.before, operation.after)
        return seen

    def check_recovered(self):
        """Recovery changes nothing a reader sees, and loses no deletion before its grace; after it nothing is left."""
        seen = self.seen()
        mc.collect_garbage(self.root, graces=NOW_BUT_KEEP_TRASH)
        if 2 not in seen:
            mc.undelete(self.root, step=2)
            seen[2] = 2
        mc.collect_garbage(self.root, graces=AT_ONCE)
        assert self.seen() == seen
        folders = [path for path in self.root.glob("checkpoints/*") if (path / "manifest.json").exists()]
        kept = {str(folder / name) for folder in folders for name in listed(folder)}
        assert {os.path.join(top, name) for top, _, names in os.walk(self.root) for name in names} == kept
        assert os.listdir(self.root / ".staging") == []


def stamps(root, step):
    """What tells the files that a step goes by from any others."""
    folder = root / "checkpoints" / f"step-{step:08d}"
    infos = [(name, os.stat(folder / name)) for name in listed(folder)]
    return {(name, info.st_ino, info.st_mtime_ns, info.st_size) for name, info in infos}


def listed(folder):
    """The files of a checkpoint."""
    record = decode((folder / "manifest.json").read_bytes(), str(folder))
    return ["manifest.json", *(file.name for file in (*record.files, *record.extras))]
