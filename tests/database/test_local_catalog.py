"""A catalog file asked without the database library answers what a whole connection answers, and is told the same."""

import dataclasses
import inspect
import math
import shutil
import sqlite3
from contextlib import closing

import pytest

import model_checkpoint as mc
from model_checkpoint.api.library.served_places import discover
from model_checkpoint.checkpoint.catalog.catalog_place import default_url
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.checkpoint.catalog.removed_rows import mark_back, mark_gone
from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, LineageEdge, Metric
from model_checkpoint.database.errors import DatabaseUnreachable, RowRefused, SchemaOutdated
from model_checkpoint.database.local.catalog_reader import CatalogReader
from model_checkpoint.database.local.catalog_teller import CatalogTeller
from model_checkpoint.database.local.local_catalog import LocalCatalog
from model_checkpoint.database.local.local_teller import LocalTeller
from model_checkpoint.database.local.opened_reader import open_reader
from model_checkpoint.database.local.opened_teller import open_teller
from model_checkpoint.database.records import IntegrityRecord, Series
from model_checkpoint.database.schema.revisions import VERSION_TABLE
from model_checkpoint.errors import OptionInvalid, WrongReference
from model_checkpoint.storage.locate import open_store

RUNS = ["r1", "r2", "r3"]
IDS = [f"c{n}" for n in range(9)]
SERIES = [("r1", "loss"), ("r1", "long"), ("r2", "acc/ü"), ("r2", "none")]
ODD = {"lr": math.inf, "big": 1 << 80, "$float": "x", "deep": [{"a": None}], "ü": "\u2028"}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Runs that were heard of and not, odd numbers and words, checkpoints of every state, more than one list holds."""
    where = f"sqlite:///{tmp_path_factory.mktemp('local')}/a b.db"
    with EnhancedDatabaseConnection(where) as db:
        for n, run in enumerate(RUNS):
            db.save_experiment(
                Experiment(id=run, name=f"run ü {n}", tags=["a", "b"][:n], config=ODD, start_time=9.5, step=n)
            )
        db.heartbeat("r1", step=70, at=100.0)
        db.heartbeat("r2", at=101.0)
        for n, id in enumerate(IDS):
            db.save_checkpoint(_checkpoint(n, id))
        db.save_checkpoints([Checkpoint(id=f"many{n}", experiment_id="r3", step=n, root="big") for n in range(1200)])
        db.delete_checkpoint("c3")
        db.flag_best("r1", "metric", ["c4"])
        values = [0.5, math.nan, math.inf, -math.inf, 0.25]
        db.write_metrics([Metric("r1", "loss", value, step, 5.0 + step) for step, value in enumerate(values)])
        db.write_metrics([Metric("r2", "acc/ü", math.nan, step, 1.0) for step in range(3)])
        db.write_metrics([Metric("r1", "long", math.sin(step), step, 1.0) for step in range(25_000)])
        db.add_edge(LineageEdge(parent="r1", child="c1", kind="saved", step=1, created_at=1.0))
        db.add_edge(LineageEdge(parent="c1", child="r2", kind="resumed", step=1, created_at=2.0))
        for n in range(5):
            db.record_audit("policy", "r1", details={"root": "here", "keep": [f"last:{n}"], "odd": ODD})
        db.record_audit("save", "c1", actor="ann@lab:7")
    return where


def _checkpoint(n, id):
    odd = [math.nan, math.inf, -math.inf, 0.5, None][n % 5]
    return Checkpoint(
        id=id,
        experiment_id=RUNS[n % 2],
        epoch=n if n % 3 else None,
        step=n // 2,
        loss=odd,
        val_loss=None if n % 2 else 0.25,
        metrics={"acc": 0.5, "odd": math.nan},
        metadata=ODD,
        root="here" if n % 2 else "there",
        parts=["model"],
        tags=["ü"] * (n % 3),
        pinned=n % 4 == 0,
        unique_bytes=None if n % 2 else 7,
        file_size=10,
        health=["unknown", "damaged", "healthy"][n % 3],
        verified_at=50.0 if n % 2 else None,
        created_at=float(n),
    )


QUESTIONS = {
    "overviews": lambda one: one.overviews(),
    "run_heads": lambda one: one.run_heads([*RUNS, "nobody"]),
    "summaries": lambda one: [one.summaries("r1"), one.summaries([*RUNS, "nobody"]), one.summaries([])],
    "metric_names": lambda one: one.metric_names(),
    "series": lambda one: [one.series(*of, buckets=n) for of in SERIES for n in (None, 7)],
    "get_checkpoints": lambda one: [
        one.get_checkpoints(["nothing", *reversed(IDS)]),
        len(one.get_checkpoints([f"many{n}" for n in range(1200)])),
    ],
    "crowd": lambda one: [
        one.crowd("r1", "there"),
        one.crowd("r3", "big", most=1199),
        len(one.crowd("r3", "big", most=1200)),
    ],
    "edges": lambda one: one.edges(),
    "beginnings": lambda one: [one.beginnings(IDS), one.beginnings([])],
    "savers": lambda one: one.savers(IDS),
    "audit": lambda one: [
        (first := one.audit(subject="r1", action="policy", limit=3)),
        one.audit(subject="r1", action="policy", limit=3, after=first.next),
        one.audit(),
    ],
}


def plain(value):
    """Comparable: NaN equals itself, and arrays are their bytes."""
    if isinstance(value, Series):
        return [column.tobytes() for column in (value.steps, value.timestamps, value.values)]
    if dataclasses.is_dataclass(value):
        return type(value).__name__, {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(one) for one in value]
    return (type(value).__name__, repr(value))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_file_answers_what_a_connection_answers_types_included(url, question):
    with open_reader(url) as local, EnhancedDatabaseConnection(url) as whole:
        assert isinstance(local, LocalCatalog)
        ask = QUESTIONS[question]

        assert plain(ask(local)) == plain(ask(whole))


def test_every_question_of_a_reader_is_compared(url):
    """One that is added must be answered alike, too."""
    asked = {name for name, _ in inspect.getmembers(CatalogReader, inspect.isfunction) if not name.startswith("_")}

    assert asked == {*QUESTIONS, "now"}
    with open_reader(url) as local, EnhancedDatabaseConnection(url) as whole:
        assert abs(local.now() - whole.now()) < 60


@pytest.mark.parametrize(
    ("ask", "wrong"),
    [
        (lambda one: one.series("nobody", "loss"), pytest.raises(WrongReference, match="'nobody' is not in")),
        (lambda one: one.series("r1", "loss", buckets=0), pytest.raises(OptionInvalid, match=r"buckets: .* got 0")),
        (lambda one: one.audit(limit=0), pytest.raises(OptionInvalid, match="limit: must be from 1 to 10000, got 0")),
        (lambda one: one.audit(after="?!"), pytest.raises(OptionInvalid, match="is no cursor of this list")),
    ],
)
def test_both_refuse_with_the_same_words(url, ask, wrong):
    with open_reader(url) as local, EnhancedDatabaseConnection(url) as whole:
        told = []
        for one in (local, whole):
            with wrong as caught:
                ask(one)
            told.append(str(caught.value))

    assert told[0] == told[1]


def copied(url, tmp_path):
    """The same in a file of its own."""
    shutil.copy(url.removeprefix("sqlite:///"), tmp_path / "copy.db")
    return f"sqlite:///{tmp_path}/copy.db"


def with_revision(url, revision):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (revision,))


def test_a_file_of_a_later_version_is_read_by_a_connection_which_says_so(url, tmp_path, caplog):
    later = copied(url, tmp_path)
    with_revision(later, "9999")

    with open_reader(later) as reader:
        assert isinstance(reader, EnhancedDatabaseConnection)
        assert len(reader.overviews()) == len(RUNS)

    assert "revision 9999 of its schema is of a newer version" in caplog.text


def test_a_file_of_an_earlier_version_is_told_and_not_changed(url, tmp_path):
    earlier = copied(url, tmp_path)
    with_revision(earlier, "0001")

    with pytest.raises(SchemaOutdated, match=r"of an earlier version \(revision 0001"), open_reader(earlier):
        pass


def test_what_is_no_database_is_told_as_a_connection_tells_it(tmp_path):
    (tmp_path / "words.db").write_text("no database at all, but long enough to be looked at as one")

    with (
        pytest.raises(DatabaseUnreachable, match=r"words\.db: cannot be used \(file is not a database\)"),
        open_reader(f"sqlite:///{tmp_path}/words.db"),
    ):
        pass


def test_damage_that_shows_only_when_asked_is_told_as_a_connection_tells_it(url, tmp_path):
    damaged = copied(url, tmp_path)
    with closing(sqlite3.connect(damaged.removeprefix("sqlite:///"))) as file, file:
        file.execute("DROP TABLE metric_keys")

    with (
        open_reader(damaged) as reader,
        pytest.raises(DatabaseUnreachable, match=r"copy\.db: cannot be used \(no such table: metric_keys\)"),
    ):
        reader.metric_names()


def test_a_reader_writes_nothing(url, tmp_path):
    """Not even where SQL would: the file is opened to be read."""
    kept = copied(url, tmp_path)

    with (
        open_reader(kept) as reader,
        pytest.raises(DatabaseUnreachable, match="attempt to write a readonly database"),
    ):
        reader._file.rows("DELETE FROM audit_log RETURNING id")


def finding(n):
    return IntegrityRecord(id=f"i{n}", checkpoint_id="c3", outcome="healthy", method="repair", checked_at=n * 40.0)


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
    "page": lambda one: [
        (first := one.page("r3", limit=700)),
        one.page("r3", limit=700, after=first.next),
        one.page("r1", limit=9),
    ],
}
BY = [("r1", "acc", "max"), ("r1", "loss", "min"), ("r2", "loss", "max"), ("r2", "odd", "min"), ("r1", "none", "min")]
GIVEN = {"audit_log": {"id", "at"}, "checkpoints": {"deleted_at"}}  # by a clock or at random


def left_in(url):
    """All rows of a file, but for what nobody can tell beforehand."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        file.row_factory = sqlite3.Row
        tables = [row[0] for row in file.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {
            table: sorted(
                repr([(key, row[key] is None if key in GIVEN.get(table, ()) else row[key]) for key in row.keys()])  # noqa: SIM118
                for row in file.execute(f'SELECT * FROM "{table}"')
            )
            for table in tables
        }


@pytest.mark.parametrize("told", TOLD)
def test_a_file_is_told_as_a_connection_is_told_and_both_leave_the_same_rows(url, tmp_path, told):
    """Rows, flags, audit entries and the index the best are found by."""
    both = []
    for place, suffix in (("file", ""), ("connection", "?timeout=30")):
        (tmp_path / place).mkdir()
        mine = copied(url, tmp_path / place)
        with open_teller(mine + suffix) as one:
            assert isinstance(one, LocalTeller) == (place == "file")
            said = plain(TOLD[told](one)) if told != "together" else TOLD[told](one) and None
        both.append((said, left_in(mine)))

    assert both[0] == both[1]
    asking = told in ("get_checkpoint", "best", "page")
    assert (both[0][1] == left_in(url)) == asking


def test_all_that_a_teller_can_be_told_is_compared():
    """What is added must be told alike, too."""
    known = {name for name, _ in inspect.getmembers(CatalogTeller, inspect.isfunction) if not name.startswith("_")}

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
def test_what_cannot_be_told_is_refused_and_leaves_nothing(url, tmp_path, suffix, tell, wrong):
    """Nor does what was told before it in the same transaction."""
    mine = copied(url, tmp_path)
    before = left_in(mine)

    with open_teller(mine + suffix) as one, wrong:
        one.together(lambda: [one.record_audit("pin", "c1"), one.mark_deleted("c4"), tell(one)])

    assert left_in(mine) == before


def test_a_teller_waits_for_whoever_writes_and_then_says_who_is_in_the_way(url, tmp_path, monkeypatch):
    mine = copied(url, tmp_path)
    monkeypatch.setattr("model_checkpoint.database.local.local_file.BUSY_SECONDS", 0.1)

    with closing(sqlite3.connect(mine.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with open_teller(mine) as one, pytest.raises(TimeoutError, match="others held it for too long"):
            one.update_checkpoint("c2", **MARKS)


def test_a_root_of_any_name_has_its_catalog_where_it_is(tmp_path):
    """In a URL some characters mean more than themselves; in a path they do not."""
    root = tmp_path / "50%20 what?" / "ü#1"
    mc.save(root, {"a": 1}, step=1)
    url = default_url(open_store(root))

    with EnhancedDatabaseConnection(url) as whole:
        reindex(root, whole)
    with open_reader(url) as reader:
        assert isinstance(reader, LocalCatalog)
        assert [run.checkpoints for run in reader.overviews()] == [1]

    assert (root / "catalog.db").is_file()
    assert [place.name for place in tmp_path.iterdir()] == ["50%20 what?"]
    assert discover([str(tmp_path / "50%20 what?")]).databases == (url,)
