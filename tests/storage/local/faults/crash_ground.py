"""The operations of a local store that may die or fail, and a root on which what each leaves is examined."""

import os
import shutil
from dataclasses import dataclass

from model_checkpoint.errors import DurabilityUnknown
from model_checkpoint.options import Graces
from model_checkpoint.storage import LocalStore
from model_checkpoint.testing import Ended, Fault, Kind, run_in_child
from model_checkpoint.testing.blobs import load_blobs, save_blobs

DEAD = Graces(local=0.0, trash=0.0)  # the foreign grace stays: a process of this host must be known as such
DEAD_BUT_KEEP_TRASH = Graces(local=0.0)
OLD = {"x-a1": b"old" * 2000, "y-a1": b"o"}
NEW = {"x-a2": b"new" * 3000, "y-a2": b"n" * 4096, "z-a2": b""}
OTHER = {"x-a0": b"other"}


@dataclass(frozen=True)
class Operation:
    """One thing done to a root that holds OTHER as step-0 and, if ``held``, OLD as step-1."""

    name: str
    held: bool
    work: object
    before: tuple  # what step-1 may be if the operation was not acknowledged: OLD, NEW or None
    after: object  # what step-1 must be if it was

    def __str__(self):
        return self.name


def save_new(store):
    save_blobs(store, "step-1", NEW, attempt="a2")


def save_over(store):
    save_blobs(store, "step-1", NEW, attempt="a2", replace=True, obsolete=list(OLD))


def discard(store):
    store.discard("step-1")


def bring_back(store):
    store.bring_back(store.trash()[0].token)


def recover(store):
    store.sweep(DEAD)


SAVE_NEW = Operation("save_new", False, save_new, (None, NEW), NEW)
SAVE_OVER = Operation("save_over", True, save_over, (OLD, NEW), NEW)
DISCARD = Operation("discard", True, discard, (OLD, None), None)
BRING_BACK = Operation("bring_back", True, bring_back, (None, OLD), OLD)
RECOVER = Operation("recover", True, recover, (OLD,), OLD)
OPERATIONS = [SAVE_NEW, SAVE_OVER, DISCARD, BRING_BACK, RECOVER]


class Ground:
    """A root that can be put back as it was, and examined."""

    def __init__(self, folder, operation):
        self.template, self.root, self.snapshot = folder / "template", folder / "root", folder / "snapshot"
        self.operation = operation
        store = LocalStore(self.template)
        save_blobs(store, "step-0", OTHER, attempt="a0")
        if operation.held:
            save_blobs(store, "step-1", OLD, attempt="a1")
        if operation is BRING_BACK:
            store.discard("step-1")
        if operation is RECOVER:
            self._leave_remains()

    def _leave_remains(self):
        """What a kill just before and just after the switch of a replacement leaves, and deleted checkpoints."""
        store = LocalStore(self.template)
        save_blobs(store, "step-2", OLD, attempt="a1")
        save_blobs(store, "step-3", OLD, attempt="a1")
        store.discard("step-3")
        names = [call.name for call in run_in_child(self._over(self._copy(self.template, self.root))).trace]
        switch = [index for index, name in enumerate(names, 1) if name == "rename"][1]
        for name, kind in (("step-1", Kind.KILL_BEFORE), ("step-2", Kind.KILL_AFTER)):
            run_in_child(self._over(self.template, name), Fault(kind=kind, at=switch))
        assert len(list((self.template / ".staging").iterdir())) == 4  # two locks, two stages

    @staticmethod
    def _over(root, name="step-1"):
        def work(calls):
            attempt = f"{name}-a2"
            files = {f"x-{attempt}": NEW["x-a2"]}
            save_blobs(LocalStore(root, calls=calls), name, files, attempt=attempt, replace=True, obsolete=[*OLD])

        return work

    @staticmethod
    def _copy(source, target):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)
        return target

    def prepare(self):
        self._copy(self.template, self.root)

    def keep(self):
        self._copy(self.root, self.snapshot)

    def restore(self):
        self._copy(self.snapshot, self.root)

    def work(self, calls):
        """Do the operation, and lose no descriptor whatever happens."""
        before = os.listdir("/proc/self/fd")
        try:
            self.operation.work(LocalStore(self.root, calls=calls))
        finally:
            assert len(os.listdir("/proc/self/fd")) == len(before)

    def recover(self, calls):
        LocalStore(self.root, calls=calls).sweep(DEAD_BUT_KEEP_TRASH)

    def verify(self, outcome):
        """Recover, then demand: acknowledged is complete, failed is gone, the rest is as it was, nothing is left."""
        store = LocalStore(self.root)
        store.sweep(DEAD_BUT_KEEP_TRASH)
        now = load_blobs(store, "step-1") if "step-1" in store.names() else None
        if outcome is not None and outcome.acknowledged:
            assert now == self.operation.after
        elif outcome is not None and outcome.ended is Ended.RAISED and not isinstance(outcome.error, DurabilityUnknown):
            assert now == self.operation.before[0]
        else:
            assert now in self.operation.before
        assert load_blobs(store, "step-0") == OTHER
        self._verify_trash(store, now)
        self._verify_nothing_left(store)

    def _verify_trash(self, store, now):
        """A checkpoint that is not in place any more can be brought back with every byte."""
        if self.operation in (DISCARD, BRING_BACK):
            tokens = [item.token for item in store.trash()]
            assert len(tokens) == (1 if now is None else 0)
        for item in store.trash():
            if item.name in store.names():  # it was replaced
                store.discard(item.name)
            assert load_blobs(store, store.bring_back(item.token)) == OLD

    def _verify_nothing_left(self, store):
        store.sweep(DEAD)
        assert list((self.root / ".staging").iterdir()) == []
        assert not (self.root / ".trash").exists() or list((self.root / ".trash").iterdir()) == []
        for name in store.names():
            assert set(store.files(name)) == {*load_blobs(store, name), "manifest.json"}
