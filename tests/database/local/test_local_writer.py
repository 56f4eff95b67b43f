"""A catalog file written without the database library holds what a whole connection leaves in it."""

import inspect
import math
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.database.local.odd_catalog import ODD, checkpoint_row, copied, left_in, plain
from tests.database.local.test_local_catalog import QUESTIONS

import model_checkpoint as mc
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.checkpoint.catalog.removed_rows import mark_back, mark_gone
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, Metric
from model_checkpoint.database.errors import RowRefused
from model_checkpoint.database.event_records import IntegrityRecord
from model_checkpoint.database.local.catalog_writer import CatalogWriter
from model_checkpoint.database.local.local_writer import LocalCatalogWriter
from model_checkpoint.database.local.opened_writer import open_writer
from model_checkpoint.errors import WrongReference


def finding(n):
    return IntegrityRecord(id=f"i{n}", checkpoint_id="c3", outcome="healthy", method="repair", checked_at=n * 40.0)


def measured():
    """Points that are there, one that is not finite, one of a moment that has another value, a metric nobody named."""
    odd = [Metric("r1", "loss", value, step, 5.0 + step) for step, value in ((1, math.nan), (2, 9.0), (9, math.inf))]
    return [*odd, *(Metric("r3", "new ü", step / 7, step, 1.0) for step in range(300)), *odd]


MARKS = {"pinned": True, "tags": ["ü", "b"], "notes": "line\nline"}
TOLD = {
    "update_checkpoint": lambda one: one.update_checkpoint("c2", **MARKS),
    "mark_deleted": lambda one: [one.mark_deleted("c4", at=7.5), one.mark_deleted("c4"), one.mark_deleted("nothing")],
    "undelete_checkpoint": lambda one: [one.undelete_checkpoint("c3"), one.undelete_checkpoint("c2")],
    "flag_best": lambda one: [one.flag_best("r1", "metric", ["c6"]), one.flag_best("r2", "loss", [])],
    "record_integrity": lambda one: [one.record_integrity(finding(n)) for n in (2, 1, 1)],
    "record_audit": lambda one: [
        one.record_audit("pin", "c2", outcome="failed", details={"odd": ODD}) and None,
        one.record_audit("pin") and None,
    ],
    "together": lambda one: one.together(lambda: [mark_gone(one, "c4"), mark_gone(one, "c2"), mark_back(one, "c3")]),
    "get_checkpoint": lambda one: [one.get_checkpoint("c3"), one.get_checkpoint("nothing")],
    "best": lambda one: [one.best(*of, k=k) for of in BY for k in (1, 9)],
    "get_checkpoints": QUESTIONS["get_checkpoints"],
    "names_in": lambda one: [sorted(one.names_in("here")), len(one.names_in("big")), one.names_in("nowhere")],
    "latest": lambda one: [one.latest("r1"), one.latest("r3"), one.latest("nobody")],
    "get_experiment": lambda one: [one.get_experiment(run) for run in ("r1", "r2", "r3", "nobody")],
    "save_experiment": lambda one: [
        one.save_experiment(Experiment(id=id, name="ü", tags=("x",), config=ODD, start_time=3, end_time=4.5))
        for id in ("r2", "r9")
    ],
    "update_experiment": lambda one: one.update_experiment("r1", start_time=2.5, step=71),
    "heartbeat": lambda one: [
        one.heartbeat("r1", step=70, at=200.0),
        one.heartbeat("r2", step=5, at=201.0),
        one.heartbeat("r3", at=202.0),
    ],
    "write_metrics": lambda one: [one.write_metrics(measured()), one.write_metrics(measured()), one.write_metrics([])],
    "save_checkpoints": lambda one: [
        one.save_checkpoints([checkpoint_row(n, id) for n, id in enumerate(["c4", "c3", "c1", "fresh", "c4"])]),
        one.save_checkpoints(
            [Checkpoint(id=f"many{n}", experiment_id="r3", loss=n, created_at=1.0) for n in range(600, 1300)]
        ),
        one.best("r3", "loss", "max"),
    ],
    "page": lambda one: [
        (first := one.page("r3", limit=700)),
        one.page("r3", limit=700, after=first.next),
        one.page("r1", limit=9),
    ],
}
BY = [("r1", "acc", "max"), ("r1", "loss", "min"), ("r2", "loss", "max"), ("r2", "odd", "min"), ("r1", "none", "min")]
ASKING = {"get_checkpoint", "get_checkpoints", "names_in", "latest", "get_experiment", "best", "page"}


@pytest.mark.parametrize("told", TOLD)
def test_a_file_is_told_as_a_connection_is_told_and_both_leave_the_same_rows(odd_url, tmp_path, told):
    """Rows, flags, audit entries and the index the best are found by."""
    both = []
    for place, suffix in (("file", ""), ("connection", "?timeout=30")):
        (tmp_path / place).mkdir()
        mine = copied(odd_url, tmp_path / place)
        with open_writer(mine + suffix) as one:
            assert isinstance(one, LocalCatalogWriter) == (place == "file")
            said = plain(TOLD[told](one)) if told != "together" else TOLD[told](one) and None
        both.append((said, left_in(mine)))

    assert both[0] == both[1]
    assert (both[0][1] == left_in(odd_url)) == (told in ASKING)


def test_all_that_a_writer_can_write_is_compared():
    """What is added must be told alike, too."""
    known = {name for name, _ in inspect.getmembers(CatalogWriter, inspect.isfunction) if not name.startswith("_")}

    assert known == TOLD.keys()


@pytest.mark.parametrize("suffix", ["", "?timeout=30"], ids=["file", "connection"])
@pytest.mark.parametrize(
    ("tell", "wrong"),
    [
        (
            lambda one: one.update_checkpoint("no", **MARKS),
            pytest.raises(WrongReference, match="checkpoint 'no' is not"),
        ),
        (lambda one: one.undelete_checkpoint("no"), pytest.raises(WrongReference, match="checkpoint 'no' is not in")),
        (lambda one: mark_gone(one, "no"), pytest.raises(WrongReference, match="checkpoint 'no' is not in")),
        (lambda one: one.flag_best("r1", "loss", ["c1"]), pytest.raises(RowRefused, match="'r1' has no checkpoint c1")),
        (
            lambda one: one.record_integrity(IntegrityRecord(checkpoint_id="no", outcome="healthy")),
            pytest.raises(RowRefused, match="FOREIGN KEY"),
        ),
    ],
    ids=["marks", "back", "gone", "flag", "integrity"],
)
def test_what_cannot_be_told_is_refused_and_leaves_nothing(odd_url, tmp_path, suffix, tell, wrong):
    """Nor does what was told before it in the same transaction."""
    mine = copied(odd_url, tmp_path)
    before = left_in(mine)

    with open_writer(mine + suffix) as one, wrong:
        one.together(lambda: [one.record_audit("pin", "c1"), one.mark_deleted("c4"), tell(one)])

    assert left_in(mine) == before


@pytest.mark.parametrize(
    "tell",
    [
        lambda one: one.save_experiment(Experiment(id="x", name="x" * 251)),
        lambda one: one.save_experiment(Experiment(id="x", name="a\0b")),
        lambda one: one.save_experiment(Experiment(id=7, name="x")),
        lambda one: one.save_experiment(Experiment(id="x", name="x", start_time=math.nan)),
        lambda one: one.save_experiment(Experiment(id="x", name="x", config={"f": print})),
        lambda one: one.save_checkpoints([Checkpoint(id="x", experiment_id="r1", step=1.5)]),
        lambda one: one.save_checkpoints([Checkpoint(id="x", experiment_id="r1", file_size=1 << 63)]),
        lambda one: one.save_checkpoints([Checkpoint(id="x", experiment_id="nobody")]),
        lambda one: one.save_checkpoints([Checkpoint(id="x", experiment_id="r1", metrics={"m" * 251: 1.0})]),
        lambda one: one.heartbeat("r1", step=1.5),
        lambda one: one.write_metrics([Metric("nobody", "loss", 1.0)]),
        lambda one: one.write_metrics([Metric("r1", "loss", 1.0, 1, math.inf)]),
        lambda one: one.record_audit("x" * 33),
    ],
)
def test_both_refuse_a_row_that_breaks_a_rule_with_the_same_words(odd_url, tmp_path, tell):
    mine = copied(odd_url, tmp_path)
    before, told = left_in(mine), []

    for suffix in ("", "?timeout=30"):
        with open_writer(mine + suffix) as one, pytest.raises(RowRefused, match=r".") as caught:
            tell(one)
        told.append(str(caught.value).replace(suffix, ""))

    assert told[0] == told[1]
    assert left_in(mine) == before


def test_numbers_given_in_a_transaction_that_is_undone_are_not_remembered(odd_url, tmp_path):
    """Else points of the next call would go to a run that is not there."""
    with open_writer(copied(odd_url, tmp_path)) as one:

        def begin():
            one.save_experiment(Experiment(id="r9", name="x"))
            one.write_metrics([Metric("r9", "brand new", 1.0, 1, 1.0)])
            raise OSError("no")

        with pytest.raises(OSError, match="no"):
            one.together(begin)
        assert one.write_metrics([Metric("r1", "brand new", 1.0, 1, 1.0)]) == 1
        assert one.series("r1", "brand new").values.tolist() == [1.0]
        with pytest.raises(RowRefused, match="'r9' is not in the catalog"):
            one.write_metrics([Metric("r9", "loss", 1.0)])


def test_both_say_alike_which_database_they_are(odd_url):
    with open_writer(odd_url) as local, EnhancedDatabaseConnection(odd_url) as whole:
        assert local.database_url == whole.database_url


def grown(root):
    """A root whose catalog is behind: of a run that nobody tracked, and of one whose checkpoints went and came."""
    for step in (1, 2, 3):
        mc.save(root, {"a": step}, step=step, metrics={"val_loss": 1 / step, "acc": math.nan if step == 2 else step})
    with EnhancedDatabaseConnection(f"sqlite:///{root}/catalog.db") as whole:
        reindex(root, whole)
    shutil.rmtree(root / "checkpoints" / "step-00000003")
    mc.save(root, {"a": 4}, step=4, metrics={"val_loss": 0.9, "f1": 0.5})
    mc.save(root, {"a": 5}, step=5)
    (root / "checkpoints" / "step-00000005" / "manifest.json").write_text("rubbish")
    mc.pin(f"{root}@1")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_root_is_reindexed_into_a_file_as_into_a_connection(tmp_path, dry_run):
    root, catalog = tmp_path / "run", tmp_path / "run" / "catalog.db"
    grown(root)
    before = catalog.read_bytes()
    both = []

    for suffix in ("", "?timeout=30"):
        catalog.write_bytes(before)
        with open_writer(f"sqlite:///{catalog}{suffix}") as one:
            assert isinstance(one, LocalCatalogWriter) == (not suffix)
            both.append((reindex(root, one, dry_run=dry_run), left_in(f"sqlite:///{catalog}")))

    report = both[0][0]
    assert (report.checkpoints, report.added, report.gone, len(report.unreadable)) == (3, 1, 1, 1)
    assert both[0] == both[1]


def test_a_writer_waits_for_whoever_writes_and_then_says_who_is_in_the_way(odd_url, tmp_path, monkeypatch):
    mine = copied(odd_url, tmp_path)
    monkeypatch.setattr("model_checkpoint.database.local.local_file.BUSY_SECONDS", 0.1)

    with closing(sqlite3.connect(mine.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with open_writer(mine) as one, pytest.raises(TimeoutError, match="others held it for too long"):
            one.update_checkpoint("c2", **MARKS)
