"""What fails is one entry of the audit trail with outcome "failed", and one event, as what succeeds is one entry."""

import os
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.backend import BaseStorageBackend
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.database import Experiment, MigrationFailed, MigrationManager
from model_checkpoint.errors import StorageFailure
from model_checkpoint.hooks import HookEvent, HookManager
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.tracking import TrackerOptions

STATE = {"w": np.ones(2)}


class BrokenStore(LocalStore):
    """A root on a medium that refuses some calls."""

    refused = ""

    def _require(self, name):
        if self.refused == name:
            raise StorageFailure(f"{self.url}: the medium refused to {name}")

    def discard(self, name):
        self._require("discard")
        return super().discard(name)

    def bring_back(self, token):
        self._require("bring back")
        return super().bring_back(token)

    def files(self, name):
        self._require("list")
        return super().files(name)

    def write_sidecar(self, key, data):
        self._require("write marks")
        return super().write_sidecar(key, data)

    def remove_sidecar(self, key):
        self._require("remove marks")
        return super().remove_sidecar(key)


@pytest.fixture
def broken(tmp_path):
    """A manager on such a root, and what ON_ERROR told."""
    store, heard = BrokenStore(tmp_path / "root"), []
    url = f"sqlite:///{tmp_path}/catalog.db"
    with EnhancedCheckpointManager(None, store, database_url=url, max_checkpoints=None) as manager:
        manager.connection.save_experiment(Experiment(id="r", name="r"))
        manager.register_hook(
            "hear", lambda context: heard.append(context.get("operation")), events=[HookEvent.ON_ERROR]
        )
        yield manager, store, heard


def save(manager, step=1):
    return manager.save_checkpoint(STATE, step=step, experiment_id="r")


def told(manager, action):
    return [(one.subject, one.outcome) for one in manager.audit(action=action).items]


def test_a_delete_and_a_restore_that_fail_are_told(broken):
    manager, store, heard = broken
    id = save(manager)

    store.refused = "discard"
    with pytest.raises(StorageFailure, match="refused to discard"):
        manager.delete_checkpoint(id)
    store.refused = ""
    manager.delete_checkpoint(id)
    store.refused = "bring back"
    with pytest.raises(StorageFailure, match="refused to bring back"):
        manager.restore_checkpoint(id)

    assert (told(manager, "delete"), told(manager, "restore")) == ([(id, "ok"), (id, "failed")], [(id, "failed")])
    assert heard == ["delete", "restore"]
    (entry,) = manager.audit(action="restore").items
    assert entry.details["error"].startswith("StorageFailure: ")


def test_a_save_that_could_not_be_looked_at_is_told_and_its_files_stay(broken):
    """A medium that does not answer proves no damage."""
    manager, store, heard = broken

    store.refused = "list"
    with pytest.raises(StorageFailure, match="refused to list") as caught:
        save(manager)
    store.refused = ""

    (info,) = mc.list_checkpoints(store)
    assert "`mckpt reindex` takes it into the catalog" in caught.value.__notes__[0]
    assert (told(manager, "save"), heard) == ([(info.id, "failed")], ["save"])
    assert reindex(store, manager.connection).checkpoints == 1


@pytest.mark.parametrize(
    ("action", "do", "refused"),
    [
        ("pin", lambda manager, id: manager.pin(id), "write marks"),
        ("unpin", lambda manager, id: manager.unpin(id), "remove marks"),
        ("tag", lambda manager, id: manager.tag(id, "paper"), "write marks"),
        ("untag", lambda manager, id: manager.untag(id, "paper"), "remove marks"),
        ("note", lambda manager, id: manager.note(id, "look at this"), "write marks"),
    ],
)
def test_a_mark_that_cannot_be_made_is_told_and_not_in_the_catalog(broken, action, do, refused):
    manager, store, heard = broken
    id = save(manager)

    store.refused = refused
    with pytest.raises(StorageFailure, match=f"refused to {refused}"):
        do(manager, id)

    assert (told(manager, action), heard) == ([(id, "failed")], [action])
    row = manager.get_checkpoint(id)
    assert (row.pinned, list(row.tags), row.notes) == (False, [], "")


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.usefixtures("database_url")
def test_what_a_hook_forbids_is_one_entry_that_says_whose_word_it_was(manager, blocking):
    id = manager.save_checkpoint(STATE, step=1)
    events = ("SAVE", "LOAD", "DELETE")
    no = [HookEvent[f"BEFORE_CHECKPOINT_{one}"] for one in events]
    manager.register_hook("guard", lambda context: False, events=no)

    for do in (
        lambda: manager.save_checkpoint(STATE, step=2, blocking=blocking),
        lambda: manager.load_checkpoint(id),
        lambda: manager.delete_checkpoint(id),
    ):
        with pytest.raises(RuntimeError, match="hook 'guard' said no"):
            do()

    found = [(one.action, one.outcome, one.details.get("hook")) for one in manager.audit().items][::-1]
    assert found[1:] == [(one.lower(), "vetoed", "guard") for one in events]
    assert [one.subject for one in manager.audit().items][:2] == [id, id]


def test_a_check_that_a_hook_forbids_is_left_out_and_told(manager):
    """As in a verification, where the checkpoint then counts as unchecked."""
    heard = []
    manager.register_hook("guard", lambda context: False, events=[HookEvent.BEFORE_INTEGRITY_CHECK])
    manager.register_hook("hear", lambda context: heard.append(1), events=[HookEvent.AFTER_INTEGRITY_CHECK])

    id = manager.save_checkpoint(STATE, step=1)

    assert manager.get_checkpoint(id).checksum == ""
    assert (told(manager, "check"), heard) == ([(id, "vetoed")], [])
    assert manager.load_checkpoint(id)["step"] == 1
    assert [one.outcome.value for one in manager.verify_experiment_integrity().verdicts] == ["unchecked"]


class ForgetfulBackend(BaseStorageBackend):
    """A backend that cannot read what it wrote."""

    def save_checkpoint(self, data, path):
        Path(path).write_text("x")

    def load_checkpoint(self, path, device=None):
        raise KeyError("what was it?")


@pytest.mark.usefixtures("database_url")
def test_a_load_that_fails_by_any_error_is_told(make):
    manager, heard = make(storage_backend=ForgetfulBackend), []
    manager.register_hook("hear", lambda context: heard.append(context.get("error")), events=[HookEvent.ON_ERROR])
    id = manager.save_checkpoint(STATE, step=1)

    with pytest.raises(KeyError, match="what was it") as caught:
        manager.load_checkpoint(id)

    assert next((one.action, one.outcome) for one in manager.audit(id).items) == ("load", "failed")
    assert heard == [caught.value]


@pytest.mark.usefixtures("database_url")
def test_a_repair_that_mends_nothing_is_told(manager):
    id = manager.save_checkpoint(STATE, step=1)
    (path,) = Path(manager.get_checkpoint(id).file_path).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])

    assert not manager.verify_experiment_integrity(repair=True).ok

    assert told(manager, "repair") == [(id, "failed")]


@pytest.mark.usefixtures("database_url")
def test_a_reindex_that_fails_is_told(manager, tmp_path):
    gone = str(tmp_path / "nothing")

    with pytest.raises(mc.CheckpointNotFound, match="nothing"):
        reindex(gone, manager.connection)

    assert told(manager, "reindex") == [(gone, "failed")]


@pytest.fixture
def outdated(tmp_path):
    """A catalog as an earlier revision left it, which has an audit trail already."""
    url = f"sqlite:///{tmp_path}/old.db"
    with MigrationManager(url) as migrations:
        migrations.migrate()
        migrations.rollback("0003", backup=False)
    return url


def test_a_migration_that_fails_is_told(outdated, monkeypatch):
    def fail(*args):
        raise ValueError("old data")

    with monkeypatch.context() as patched:
        patched.setattr("model_checkpoint.database.schema.migration._run", fail)
        with pytest.raises(MigrationFailed, match="old data"):
            ExperimentTracker("new", database_url=outdated)
    with ExperimentTracker("new", database_url=outdated) as tracker:
        found = [(one.outcome, one.details["to"]) for one in tracker.connection.audit(action="migrate").items]

    assert [outcome for outcome, _ in found][:2] == ["ok", "failed"]


def test_hooks_given_to_a_tracker_hear_of_the_migration_that_begins_with_its_run(outdated):
    """The tracker opens the database before any manager is there."""
    hooks, heard = HookManager(), []
    events = [HookEvent.BEFORE_MIGRATION, HookEvent.AFTER_MIGRATION]
    hooks.register_hook(
        "hear", lambda context: heard.append((context.event, context.get("from_revision"))), events=events
    )

    with ExperimentTracker("new", database_url=outdated, options=TrackerOptions(hooks=hooks)):
        pass

    assert heard == [(event, "0003") for event in events]


def test_hooks_of_a_manager_hear_of_a_migration_that_its_tracker_left_to_it(outdated, tmp_path):
    heard = []
    os.rename(f"{tmp_path}/old.db", f"{tmp_path}/kept.db")
    os.mkdir(f"{tmp_path}/old.db")  # a database that cannot be opened
    with ExperimentTracker("new", database_url=outdated) as tracker:
        manager = EnhancedCheckpointManager(tracker, f"{tmp_path}/root")
        manager.register_hook("hear", lambda context: heard.append(context.event), events=["after_migration"])
        os.rmdir(f"{tmp_path}/old.db")
        os.rename(f"{tmp_path}/kept.db", f"{tmp_path}/old.db")
        manager.list_checkpoints()
        manager.close()

    assert heard == [HookEvent.AFTER_MIGRATION]
