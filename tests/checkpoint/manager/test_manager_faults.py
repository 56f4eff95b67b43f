"""A manager that is killed anywhere, whose power goes or whose helpers are dead: nothing healthy is lost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager
from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, MigrationManager
from model_checkpoint.hooks import HookEvent, HookVetoed, WebhookNotifierHook
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import Fault, Kind, each_call

STATE = {"w": np.arange(4.0)}


def managed(root, calls=None, **options):
    """A manager that keeps the newest two, on a catalog beside the root."""
    store = LocalStore(root) if calls is None else LocalStore(root, calls=calls)
    url = f"sqlite:///{root}/catalog.db"
    return EnhancedCheckpointManager(None, store, database_url=url, **{"max_checkpoints": 2, **options})


def save(manager, step):
    return manager.save_checkpoint(STATE, step=step, experiment_id="r", save_rng=False)


@pytest.fixture
def steps(tmp_path):
    """A root with four checkpoints that a manager which keeps two will drop or delete; the ids by step."""
    root = tmp_path / "root"
    with managed(root, max_checkpoints=None) as manager:
        manager.connection.save_experiment(Experiment(id="r", name="r"))
        ids = {step: save(manager, step) for step in range(4)}
    shutil.copytree(root, tmp_path / "before")
    return ids


@pytest.mark.slow
@pytest.mark.fault
def test_killed_before_any_call_of_a_save_a_retention_and_a_deletion_nothing_is_lost(tmp_path, steps):
    root, killed = tmp_path / "root", 0

    def prepare():
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root)

    def work(calls):
        manager = managed(root, calls)
        save(manager, 9)  # the newest two are 9 and 3 now
        manager.delete_checkpoint(steps[3])

    for _, outcome in each_call(work, Fault(kind=Kind.KILL_BEFORE, at=0), prepare=prepare):
        killed += not outcome.acknowledged
        with managed(root) as manager:
            begun = {info.id for info in mc.list_checkpoints(manager.root)} - set(steps.values())
            save(manager, 10)
            rows = {row.id for row in manager.list_checkpoints("r")}
            files = {info.id for info in mc.list_checkpoints(manager.root)}
            assert rows <= files
            assert files - rows <= begun  # published, but never acknowledged: `mckpt reindex` takes it in
            assert manager.connection.open_intents() == []
            for row in manager.connection.get_checkpoints_by_experiment("r", state="deleted"):
                manager.restore_checkpoint(row.id)
            for id in steps.values():
                assert np.array_equal(manager.load_checkpoint(id)["model_state_dict"]["w"], STATE["w"])
    assert killed > 50


SAVER = """
import sys
from tests.checkpoint.manager.test_manager_faults import managed, save
manager = managed(sys.argv[1])
for step in range(10_000):
    print(save(manager, step), flush=True)
"""


@pytest.mark.slow
@pytest.mark.fault
def test_an_acknowledged_save_is_on_record_when_power_is_back_and_dropped_ones_are_dropped(disk):
    """What closes a retention is not flushed: the intent is, and is found open."""
    root = f"{disk.mount_point}/root"
    with managed(root) as manager:
        manager.connection.save_experiment(Experiment(id="r", name="r"))
    project = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{project}/src:{project}"}
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVER, root], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    acknowledged = [saver.stdout.readline().decode().strip() for _ in range(6)]
    disk.cut()
    saver.kill()
    late, _ = saver.communicate()
    acknowledged += late.decode().split()
    disk.unmount()
    disk.mount()

    with EnhancedDatabaseConnection(f"sqlite:///{root}/catalog.db") as db:
        known = {row.id: row.state for state in ("committed", "deleted") for row in rows_of(db, state)}
    stored = {info.id for info in mc.list_checkpoints(root)}
    assert set(acknowledged[:6]) <= known.keys()
    # who met the cut between a checkpoint and its row has the checkpoint: `mckpt reindex` takes it in
    assert set(acknowledged) - known.keys() <= stored
    assert known.get(acknowledged[-1], "committed") == "committed"
    with managed(root) as manager:
        save(manager, 99_999)
        found = {row.id for row in manager.list_checkpoints("r")}
        assert found <= {info.id for info in mc.list_checkpoints(root)}
        assert (len(found), manager.connection.open_intents()) == (2, [])
        assert all(health.ok for health in mc.verify(root))


def rows_of(db, state):
    return db.get_checkpoints_by_experiment("r", state=state)


@pytest.fixture
def outdated(tmp_path):
    """The root of a manager whose catalog is as the first revision left it."""
    with managed(tmp_path / "root") as manager:
        manager.connection.save_experiment(Experiment(id="r", name="r"))
        save(manager, 1)
    with MigrationManager(f"sqlite:///{tmp_path}/root/catalog.db") as migrations:
        migrations.rollback("0001", backup=False)
    return tmp_path / "root"


def test_hooks_hear_of_the_migration_of_a_catalog_and_it_is_in_the_audit_trail(outdated):
    heard = []
    with managed(outdated) as manager:
        events = [HookEvent.BEFORE_MIGRATION, HookEvent.AFTER_MIGRATION]
        manager.register_hook("hear", lambda context: heard.append(context.event), events=events)
        assert [row.step for row in manager.list_checkpoints("r")] == [1]
        (entry,) = manager.audit(action="migrate").items

    assert heard == events
    assert (entry.outcome, entry.subject, entry.details["from"]) == ("ok", "schema", "0001")
    assert os.path.exists(entry.details["backup"])


def test_a_hook_may_prevent_the_migration_of_a_catalog(outdated):
    with managed(outdated) as manager:
        manager.register_hook("no", lambda context: False, events=[HookEvent.BEFORE_MIGRATION])
        with pytest.raises(HookVetoed, match="no"):
            manager.list_checkpoints("r")

    with MigrationManager(f"sqlite:///{outdated}/catalog.db") as migrations:
        assert migrations.get_current_version() == "0001"


def test_dead_helpers_are_logged_and_counted_and_the_save_succeeds(manager, monkeypatch, caplog):
    """A cache, a hook manager, a notifier and a hook that fail are no reason to lose a checkpoint."""

    def fail(*args, **options):
        raise OSError("dead")

    manager.register_hook("broken", fail, events=[HookEvent.AFTER_CHECKPOINT_SAVE])
    nobody = WebhookNotifierHook("http://127.0.0.1:9/nobody", max_attempts=1, private_network=True)
    manager.register_hook(nobody)
    monkeypatch.setattr(type(manager._services.caches.checkpoints), "set_metadata", fail)

    id = manager.save_checkpoint(STATE, step=1)

    monkeypatch.setattr(type(manager.hook_manager), "fire_hook", fail)
    other = manager.save_checkpoint(STATE, step=2)
    troubles = manager.get_performance_statistics()["troubles"]
    assert [row.id for row in manager.list_checkpoints()] == [other, id]
    assert troubles["hook broken"] == 1
    assert "the cache failed, going on without it: dead" in caplog.text
    assert "the hook broken failed, going on without it: dead" in caplog.text
    manager.close()
    assert nobody.statistics()["failed"] == 1
    assert troubles["cache"] >= 2
    assert troubles["hook manager"] == 1  # it is asked only where a hook would hear
