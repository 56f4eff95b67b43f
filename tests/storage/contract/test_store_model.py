"""Any sequence of operations leaves every store in the state a plain dictionary would be in."""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from model_checkpoint.errors import CheckpointNotFound, StepExists
from model_checkpoint.options import Graces
from model_checkpoint.storage import InMemoryStore, LocalStore
from model_checkpoint.testing.blobs import blob_manifest, load_blobs, save_blobs, stage_blobs

NAMES = st.sampled_from(["step-1", "step-2", "other"])


class StoreMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = self.make_store()
        self.published = {}
        self.trashed = {}
        self.staged = []
        self.count = 0

    def fresh(self, data):
        self.count += 1
        return f"a{self.count:04d}", {f"x-a{self.count:04d}": data}

    @rule(name=NAMES, data=st.binary(max_size=9000))
    def save(self, name, data):
        attempt, files = self.fresh(data)
        if name in self.published:
            with pytest.raises(StepExists, match=r"a checkpoint of that name exists"):
                save_blobs(self.store, name, files, attempt=attempt)
        else:
            save_blobs(self.store, name, files, attempt=attempt)
            self.published[name] = files

    @rule(name=NAMES, data=st.binary(max_size=9000))
    def replace(self, name, data):
        attempt, files = self.fresh(data)
        old = self.published.get(name)
        save_blobs(self.store, name, files, attempt=attempt, replace=True, obsolete=[*(old or ())])
        self.published[name] = files
        if old is not None:
            [token] = {item.token for item in self.store.trash()} - {*self.trashed}
            self.trashed[token] = name, old

    @rule(name=NAMES, data=st.binary(max_size=100))
    def begin(self, name, data):
        attempt, files = self.fresh(data)
        self.staged.append((name, attempt, files, stage_blobs(self.store, name, files, attempt=attempt)))

    @precondition(lambda self: self.staged)
    @rule(publish=st.booleans())
    def end(self, publish):
        name, attempt, files, stage = self.staged.pop(0)
        if not publish:
            stage.abort()
        elif name in self.published:
            with pytest.raises(StepExists, match=r"a checkpoint of that name exists"):
                stage.publish(blob_manifest(name, attempt, files))
            stage.abort()
        else:
            stage.publish(blob_manifest(name, attempt, files))
            self.published[name] = files

    @rule(name=NAMES)
    def discard(self, name):
        if name in self.published:
            self.trashed[self.store.discard(name).token] = name, self.published.pop(name)
        else:
            with pytest.raises(CheckpointNotFound, match=r"no such checkpoint"):
                self.store.discard(name)

    @precondition(lambda self: self.trashed)
    @rule(which=st.integers(0, 99))
    def bring_back(self, which):
        token = sorted(self.trashed)[which % len(self.trashed)]
        name, files = self.trashed[token]
        if name in self.published:
            with pytest.raises(StepExists, match=r"a checkpoint of that name exists"):
                self.store.bring_back(token)
        else:
            assert self.store.bring_back(token) == name
            self.published[name] = files
            del self.trashed[token]

    @rule(purge=st.booleans())
    def sweep(self, purge):
        swept = self.store.sweep(Graces(local=0.0, foreign=0.0, trash=0.0 if purge else 3600.0))
        assert sorted(swept.alive) == sorted(attempt for _, attempt, _, _ in self.staged)
        assert list(swept.attempts) == []
        if purge:
            assert set(swept.trashed) >= set(self.trashed)
            self.trashed.clear()

    @invariant()
    def same_as_the_model(self):
        assert sorted(self.store.names()) == sorted(self.published)
        for name, files in self.published.items():
            assert load_blobs(self.store, name) == files
            assert set(self.store.files(name)) == {*files, "manifest.json"}
        assert {item.token: item.name for item in self.store.trash()} == {t: n for t, (n, _) in self.trashed.items()}

    def teardown(self):
        for *_, stage in self.staged:
            stage.abort()


class LocalMachine(StoreMachine):
    def make_store(self):
        quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of flushes, no power loss here
        self.folder = Path(tempfile.mkdtemp(dir=quick))
        return LocalStore(self.folder / "runs")

    def teardown(self):
        super().teardown()
        shutil.rmtree(self.folder)


class MemoryMachine(StoreMachine):
    def make_store(self):
        return InMemoryStore(f"memory://{uuid.uuid4().hex}")


EFFORT = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestLocalMachine = LocalMachine.TestCase
TestLocalMachine.settings = EFFORT
TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = EFFORT
