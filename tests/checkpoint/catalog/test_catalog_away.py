"""Many savers at once, and a database that dies: nothing acknowledged is lost or there twice, training goes on."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.database import EnhancedDatabaseConnection, Experiment, register_connection
from model_checkpoint.database.errors import DatabaseUnreachable
from model_checkpoint.tracking import TrackerOptions

ROOT = Path(__file__).parents[3]
CROWD, SAVES = 8, 64
STATE = {"w": np.ones(3)}


def savers(url, folder, *, crowd, saves, kept=()):
    module = "tests.checkpoint.catalog.crowd_of_savers"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", module, url, folder, "shared", str(number), str(saves), *map(str, kept)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(crowd)
    ]


@pytest.mark.slow
def test_eight_processes_of_sixty_four_saves_lose_nothing(database_url, tmp_path):
    with EnhancedDatabaseConnection(database_url) as db:
        db.save_experiment(Experiment(id="shared", name="shared"))
        ends = [one.communicate(timeout=280) for one in savers(database_url, f"{tmp_path}/r", crowd=CROWD, saves=SAVES)]
        rows = db.get_checkpoints_by_experiment("shared")
        audits = [one.subject for page in pages(db) for one in page]

    acknowledged = [id for out, _ in ends for id in out.split()]
    assert [error for _, error in ends] == [""] * CROWD
    assert len(set(acknowledged)) == CROWD * SAVES
    assert sorted(row.id for row in rows) == sorted(acknowledged) == sorted(audits)
    assert {info.id for info in mc.list_checkpoints(f"{tmp_path}/r")} == set(acknowledged)
    assert [row.val_loss for row in rows if row.is_best_val_loss] == [0.0]


def pages(db, action="save"):
    page = db.audit(action=action, limit=500)
    yield page.items
    while page.next:
        page = db.audit(action=action, limit=500, after=page.next)
        yield page.items


@pytest.mark.slow
def test_a_crowd_that_makes_room_for_itself_drops_each_once_and_never_the_best(database_url, tmp_path):
    """Every saver prunes the run that all of them save to."""
    crowd, saves = (CROWD, 34) if database_url.startswith("sqlite") else (4, 34)  # servers share the processors with us
    with EnhancedDatabaseConnection(database_url) as db:
        db.save_experiment(Experiment(id="shared", name="shared"))
        works = savers(database_url, f"{tmp_path}/r", crowd=crowd, saves=saves, kept=[10])
        ends = [one.communicate(timeout=280) for one in works]
        rows = db.get_checkpoints_by_experiment("shared")
        gone = [row.id for row in db.get_checkpoints_by_experiment("shared", state="deleted")]
        dropped = [one.subject for page in pages(db, "retention") for one in page]
        open_intents = db.open_intents()

    acknowledged = [id for out, _ in ends for id in out.split()]
    assert [error for _, error in ends] == [""] * crowd
    assert sorted(acknowledged) == sorted([*gone, *(row.id for row in rows)])
    assert sorted(dropped) == sorted(gone)
    assert {info.id for info in mc.list_checkpoints(f"{tmp_path}/r")} == {row.id for row in rows}
    assert [row.val_loss for row in rows if row.is_best_val_loss] == [0.0]
    assert [row.step for row in rows][:crowd] == [saves - 1] * crowd
    assert (len(gone) >= crowd * (saves - 20), open_intents) == (True, [])


def said_by(process):
    with process:
        return process.stdout.read(), process.stderr.read()


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_a_database_killed_under_savers_costs_no_checkpoint_and_no_row(request, server, tmp_path):
    machine = request.getfixturevalue(server)
    url, folder = machine.new_database(), f"{tmp_path}/root"
    with EnhancedDatabaseConnection(url) as db:
        db.save_experiment(Experiment(id="shared", name="shared"))
    works = savers(url, folder, crowd=3, saves=12)
    first = [one.stdout.readline().strip() for one in works]
    machine.kill()
    # they end without it; not by communicate(), which would miss what was read ahead with the first line
    ends = [said_by(one) for one in works]
    machine.start()

    acknowledged = {*first, *(id for out, _ in ends for id in out.split())}
    assert [(one.returncode, error) for one, (_, error) in zip(works, ends, strict=True)] == [(0, "")] * 3
    assert {info.id for info in mc.list_checkpoints(folder)} == acknowledged
    with EnhancedCheckpointManager(None, folder, database_url=url, max_checkpoints=None) as manager:
        last = manager.save_checkpoint(STATE, step=99, experiment_id="shared")  # brings what waited along
        rows = manager.list_checkpoints("shared")
    assert sorted(row.id for row in rows) == sorted({*acknowledged, last})


class AwayConnection(EnhancedDatabaseConnection):
    """A catalog that can be taken away."""

    away, real = False, ""

    def __init__(self, database_url, auto_migrate=True, **options):
        super().__init__(type(self).real or str(database_url).replace("away:", "sqlite:"), auto_migrate, **options)

    def _write(self, work, *, durable=True):
        if type(self).away:
            raise DatabaseUnreachable("gone fishing")
        return super()._write(work, durable=durable)

    def _read(self, work):
        if type(self).away:
            raise DatabaseUnreachable("gone fishing")
        return super()._read(work)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Ask a database that was away again at once."""
    monkeypatch.setattr("model_checkpoint.checkpoint.catalog.checkpoint_index._PAUSE", 0.0)


@pytest.fixture
def away(tmp_path, request, monkeypatch):
    """A manager of a run whose registered connection class can be told to be away."""
    register_connection("away", AwayConnection)
    AwayConnection.away = False
    if "database_url" in request.fixturenames:
        monkeypatch.setattr(AwayConnection, "real", request.getfixturevalue("database_url"))
    run = ExperimentTracker("baseline", database_url=f"away:///{tmp_path}/c.db")
    with EnhancedCheckpointManager(run, f"{tmp_path}/root", max_checkpoints=2, save_best=False) as manager:
        yield manager
        AwayConnection.away = False
        run.close()
        run.connection.close()


@pytest.mark.usefixtures("database_url")
def test_a_database_that_is_away_costs_nothing_and_rows_follow_when_it_is_back(away):
    kept = away.save_checkpoint(STATE, step=0, val_loss=0.9)
    AwayConnection.away = True

    ids = [away.save_checkpoint(STATE, step=step, val_loss=1 / step) for step in (1, 2, 3)]

    assert {info.id for info in mc.list_checkpoints(away.root)} == {kept, *ids}
    assert away.load_checkpoint(checkpoint_type="best_val_loss")["step"] == 3  # the manifests answer
    assert away.load_checkpoint(ids[0])["step"] == 1
    assert away.resume({"w": np.zeros(3)}).step == 3
    assert away.get_performance_statistics()["troubles"]["database"] > 3

    AwayConnection.away = False
    last = away.save_checkpoint(STATE, step=9, val_loss=5.0)

    assert {row.id for row in away.list_checkpoints()} == {ids[-1], last}  # and retention had its turn
    late = [one.subject for one in away.audit(action="load").items if one.details.get("late")]
    assert len(late) == 3


@pytest.mark.usefixtures("database_url")
def test_marks_made_while_the_database_is_away_are_in_the_root_and_follow(away):
    id = away.save_checkpoint(STATE, step=1, tags=["given"])
    AwayConnection.away = True

    assert away.pin(id).pinned
    away.tag(id, "paper")
    away.untag(id, "given")
    away.note(id, "look")
    name = mc.list_checkpoints(away.root)[0].prefix
    assert [one.pinned for one in mc.list_checkpoints(away.root)] == [True]

    AwayConnection.away = False
    mc.pin(away.root, name=name)  # others mark meanwhile, too
    away.connection.update_checkpoint(id, tags=["given", "theirs"])
    away.save_checkpoint(STATE, step=2)

    row = away.get_checkpoint(id)
    assert (row.pinned, list(row.tags), row.notes) == (True, ["theirs", "paper"], "look")
    late = [one.action for one in away.audit(id).items if one.details.get("late")][::-1]
    assert late == ["pin", "tag", "untag", "note"]


def test_a_mark_whose_row_went_meanwhile_does_not_hold_up_the_others(away):
    id = away.save_checkpoint(STATE, step=1)
    AwayConnection.away = True
    away.pin(id)
    second = away.save_checkpoint(STATE, step=2)
    AwayConnection.away = False
    away.connection.forget_checkpoint(id)

    third = away.save_checkpoint(STATE, step=3)

    assert [row.id for row in away.list_checkpoints()] == [third, second]


def test_what_waited_is_recorded_as_of_its_own_moment_and_process(away, tmp_path):
    """The trail says when something was done and by whom, not when the database was back."""
    AwayConnection.away = True
    begun = time.time()
    id = away.save_checkpoint(STATE, step=1)
    away.load_checkpoint(id)
    ended = time.time()
    away._services.catalog._spool.close()  # as if its process had ended
    AwayConnection.away = False

    script = "import sys; from tests.checkpoint.catalog.test_catalog_away import *; replay(*sys.argv[1:])"
    arguments = [f"away:///{tmp_path}/c.db", away._tracker.spool_folder, away.root, away._tracker.experiment_id]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    subprocess.run([sys.executable, "-c", script, *arguments], cwd=ROOT, env=environment, check=True)

    entries = away.audit(id).items
    assert [(one.action, one.details["late"]) for one in entries] == [("load", True), ("save", True)]
    assert all(begun <= one.at <= ended and one.actor.endswith(f":{os.getpid()}") for one in entries)


def replay(url, spool_folder, root, run):
    """In another process: record what waits."""
    register_connection("away", AwayConnection)
    options = TrackerOptions(spool_folder=spool_folder)
    with ExperimentTracker.join(run, url, options=options) as tracker:
        EnhancedCheckpointManager(tracker, root).save_checkpoint(STATE, step=2)


def test_a_run_begun_without_its_database_is_recorded_with_its_first_checkpoint(tmp_path):
    register_connection("away", AwayConnection)
    AwayConnection.away = True
    try:
        run = ExperimentTracker("offline", database_url=f"away:///{tmp_path}/c.db")
        with run, EnhancedCheckpointManager(run, f"{tmp_path}/root") as manager:
            first = manager.save_checkpoint(STATE, step=1)
            AwayConnection.away = False
            second = manager.save_checkpoint(STATE, step=2)
            assert [row.id for row in manager.list_checkpoints()] == [second, first]
    finally:
        AwayConnection.away = False
    run.connection.close()


def test_rows_that_a_dead_process_left_behind_are_recorded_by_the_next_one(tmp_path, away):
    AwayConnection.away = True
    id = away.save_checkpoint(STATE, step=1)
    away._services.catalog._spool.close()  # as if its process had ended
    AwayConnection.away = False
    with EnhancedCheckpointManager(away._tracker, away.root) as other:
        other.save_checkpoint(STATE, step=2)

        assert id in {row.id for row in other.list_checkpoints()}


def test_a_spool_that_cannot_be_written_costs_no_checkpoint_and_no_row_while_the_process_lives(away, monkeypatch):
    def full(*args):
        raise mc.CheckpointException("the spool is full")

    monkeypatch.setattr(type(away._services.catalog._spool), "put", full)
    AwayConnection.away = True

    id = away.save_checkpoint(STATE, step=1)

    assert [info.id for info in mc.list_checkpoints(away.root)] == [id]
    assert away.get_performance_statistics()["troubles"]["spool"] == 1
    AwayConnection.away = False
    last = away.save_checkpoint(STATE, step=2)
    assert [row.id for row in away.list_checkpoints()] == [last, id]


def test_a_database_that_is_away_is_not_waited_for_at_every_save(away, monkeypatch):
    monkeypatch.setattr("model_checkpoint.checkpoint.catalog.checkpoint_index._PAUSE", 3600.0)
    asked = []
    for way in ("_read", "_write"):
        real = getattr(AwayConnection, way)
        counted = lambda *args, real=real, **options: asked.append(1) or real(*args, **options)  # noqa: E731
        monkeypatch.setattr(AwayConnection, way, counted)
    AwayConnection.away = True

    for step in range(5):
        away.save_checkpoint(STATE, step=step)

    assert len(asked) == 2  # by who looks for removals that were left open, and by the first save
    assert len(mc.list_checkpoints(away.root)) == 5
