"""Repair, the making of parity, and a mirror may die or fail at any storage call: nothing healthy is ever lost."""

import errno
import hashlib
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.engine.faults.fault_ground import name_of
from tests.engine.repairing.repair_ground import CHUNK, NOW_BUT_KEEP_TRASH, content, data_files, flip, save, state
from tests.ground.scenes import link_tree
from tests.ground.stored.stored_files import flip as flip_in_place
from tests.ground.stored.stored_files import folder

import model_checkpoint as mc
from model_checkpoint.engine.repairing.mirror import copy_checkpoint
from model_checkpoint.engine.repairing.parity_writer import make_parity
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import Fault, Kind, each_call, flushes_retried, run_here, run_in_child
from model_checkpoint.testing.blobs import AT_ONCE
from model_checkpoint.testing.faults import KILLS

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.usefixtures("small_chunks")]

FAULTS = [
    Fault(kind=Kind.KILL_BEFORE, at=0),
    Fault(kind=Kind.FAIL, at=0, code=errno.EIO),
    Fault(kind=Kind.FAIL, at=0, code=errno.ENOSPC, lasting=True),
    Fault(kind=Kind.LOSE_REPLY, at=0, code=errno.ESTALE),
]
_IDS = re.compile("[0-9a-f]{32}")
_TOKEN = re.compile("~[0-9]+~[0-9a-f.~]+")


def small_state(step):
    """Files of one chunk or two; what is frozen is one copy for both steps."""
    frozen = {f"f{i}": array for i, array in enumerate(state(5, parts=3, size=CHUNK).values())}
    return {**frozen, "x": np.full(1000, step)}


class Ground:
    """A root whose steps share files, damaged in some way and put back so before each run."""

    def __init__(self, base, damage):
        self.pristine, self.root, self.seen = base / "pristine", base / "root", set()
        for step in (1, 2):
            save(self.pristine, small_state(step), step, parity="pq", incremental=True)
        self.right = {step: content(self.pristine, step) for step in (1, 2)}
        damage(self.pristine)
        self.hurt = {step: content(self.pristine, step) for step in (1, 2)}
        self.known = {*_IDS.findall(" ".join(name for step in (1, 2) for name in self.right[step]))}
        self.reset()

    def reset(self):
        link_tree(self.pristine, self.root)

    def check_unharmed(self):
        """Every file is as it was or right; none that was right is gone."""
        for step in (1, 2):
            now, right, hurt = content(self.root, step), self.right[step], self.hurt[step]
            assert now.keys() <= right.keys()
            for name in right:
                assert now.get(name) in (right[name], hurt.get(name)), name

    def is_new(self):
        """Whether a kill left something that was not looked at before; most calls only read."""
        picture = frozenset((self._blurred(path), _content(path)) for path in self.root.rglob("*"))
        new = picture not in self.seen
        self.seen.add(picture)
        return new

    def _blurred(self, path):
        text = _TOKEN.sub("~", str(path.relative_to(self.root)))
        return _IDS.sub(lambda found: found[0] if found[0] in self.known else "*", text)

    def check_recovered(self):
        """Recovery harms nothing, another repair finishes it, and nothing is left behind."""
        mc.collect_garbage(self.root, graces=NOW_BUT_KEEP_TRASH)
        self.check_unharmed()
        assert mc.repair(self.root).ok
        mc.collect_garbage(self.root, graces=AT_ONCE)
        assert {step: content(self.root, step) for step in (1, 2)} == self.right
        assert list((self.root / ".staging").iterdir()) == []
        assert list((self.root / ".trash").iterdir()) == []


def _content(path):
    if not path.is_file():
        return "folder"
    return "lock" if path.suffix == ".lock" else hashlib.sha256(path.read_bytes()).hexdigest()


def damaged_copy(root):
    """A copy that both steps share, and a file of the newer one."""
    shared = next(path for path in folder(root, 2).glob("*.safetensors") if path.stat().st_nlink == 2)
    flip_in_place(shared, 5000)
    (folder(root, 2) / data_files(root, 2)[-1]).unlink()


def damaged_manifest(root):
    flip(folder(root, 2) / "manifest.json", 300)


def no_parity(root):
    for path in folder(root, 2).glob("*.parity"):
        path.unlink()


def repair(store):
    return mc.repair(store).ok


def parity(store):
    return bool(make_parity(store, "step-00000002"))


WORKS = [(damaged_copy, repair, 250), (damaged_manifest, repair, 150), (no_parity, parity, 40)]
READING = {"close", "preadv", "lstat", "fstat", "filesystem", "stat", "listdir", "now", "resident", "mmap", "flock"}
STRIDE = 11  # a kill before a call that only reads leaves what a kill before the next one leaves


def points_of(ground, work):
    """The calls at which something changes, those before and after them, and some that only read."""
    ground.reset()
    trace = run_here(lambda calls: work(LocalStore(ground.root, calls=calls))).trace
    changing = {call.index for call in trace if call.name not in READING and not is_reading(call)}
    near = {index + step for index in changing for step in (0, 1)}
    return len(trace), sorted(near | set(range(1, len(trace) + 1, STRIDE)))


def is_reading(call):
    return call.name == "open" and "/.staging/" not in call.path


@pytest.fixture
def ground(quick_folder, request, small_chunks):
    return Ground(quick_folder, request.param)


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
@pytest.mark.parametrize(
    ("ground", "work", "least"), WORKS, indirect=["ground"], ids=lambda one: getattr(one, "__name__", "")
)
def test_no_fault_at_any_call_of_a_repair_loses_anything(ground, work, least, fault):
    calls, points = points_of(ground, work)
    run = run_in_child if fault.kind in KILLS else run_here
    for at in points:
        ground.reset()
        outcome = run(lambda calls: work(LocalStore(ground.root, calls=calls)), replace(fault, at=at))
        ground.check_unharmed()
        assert flushes_retried(outcome.trace) == []
        if ground.is_new():
            ground.check_recovered()

    assert calls > least
    assert len(ground.seen) > (5 if fault.kind in KILLS else 2)  # there really are many things a kill can leave


def is_whole(root, right):
    """Whether a copy has every byte; a parity file that could not be read may be missing."""
    now = content(root)
    missing = right.keys() - now.keys()
    return now.items() <= right.items() and all(name.endswith(".parity") for name in missing)


@pytest.mark.parametrize("fault", FAULTS[:2], ids=name_of)
def test_no_fault_at_any_call_of_a_mirror_shows_half_a_copy(quick_folder, fault):
    here, there = quick_folder / "a", quick_folder / "b"
    save(here, small_state(1), 1, parity="xor")
    right, points, whole = content(here), 0, 0
    there.mkdir()

    def work(calls):
        mirror = LocalStore(there, calls=calls)
        return copy_checkpoint(LocalStore(here, calls=calls), "step-00000001", mirror)

    for at, _ in each_call(work, fault, prepare=lambda: shutil.rmtree(there) or there.mkdir()):
        points = at
        assert content(here) == right
        seen = mc.list_checkpoints(there)
        whole += bool(seen)
        assert not seen or is_whole(there, right)
        if at % 7 == 0:
            mc.collect_garbage(there, graces=AT_ONCE)
            copy_checkpoint(LocalStore(here), "step-00000001", LocalStore(there))
            assert is_whole(there, right)
            assert list((there / ".staging").iterdir()) == []

    assert points > 60
    assert whole
