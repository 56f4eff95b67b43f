"""A catalog file asked without the database library answers what a whole connection answers."""

import inspect
import sqlite3
from contextlib import closing

import pytest
from tests.database.local.odd_catalog import IDS, RUNS, copied, plain

import model_checkpoint as mc
from model_checkpoint.api.library.served_places import discover
from model_checkpoint.checkpoint.catalog.catalog_place import default_url
from model_checkpoint.checkpoint.catalog.reindexing import reindex
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.database.errors import DatabaseUnreachable, SchemaOutdated
from model_checkpoint.database.local.catalog_reader import CatalogReader
from model_checkpoint.database.local.local_catalog import LocalCatalog
from model_checkpoint.database.local.opened_reader import open_reader
from model_checkpoint.database.schema.revisions import VERSION_TABLE
from model_checkpoint.errors import OptionInvalid, WrongReference
from model_checkpoint.storage.locate import open_store

SERIES = [("r1", "loss"), ("r1", "long"), ("r2", "acc/ü"), ("r2", "none")]
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


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_file_answers_what_a_connection_answers_types_included(odd_url, question):
    with open_reader(odd_url) as local, EnhancedDatabaseConnection(odd_url) as whole:
        assert isinstance(local, LocalCatalog)
        ask = QUESTIONS[question]

        assert plain(ask(local)) == plain(ask(whole))


def test_every_question_of_a_reader_is_compared(odd_url):
    """One that is added must be answered alike, too."""
    asked = {name for name, _ in inspect.getmembers(CatalogReader, inspect.isfunction) if not name.startswith("_")}

    assert asked == {*QUESTIONS, "now"}
    with open_reader(odd_url) as local, EnhancedDatabaseConnection(odd_url) as whole:
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
def test_both_refuse_with_the_same_words(odd_url, ask, wrong):
    with open_reader(odd_url) as local, EnhancedDatabaseConnection(odd_url) as whole:
        told = []
        for one in (local, whole):
            with wrong as caught:
                ask(one)
            told.append(str(caught.value))

    assert told[0] == told[1]


def with_revision(url, revision):
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (revision,))


def test_a_file_of_a_later_version_is_read_by_a_connection_which_says_so(odd_url, tmp_path, caplog):
    later = copied(odd_url, tmp_path)
    with_revision(later, "9999")

    with open_reader(later) as reader:
        assert isinstance(reader, EnhancedDatabaseConnection)
        assert len(reader.overviews()) == len(RUNS)

    assert "revision 9999 of its schema is of a newer version" in caplog.text


def test_a_file_of_an_earlier_version_is_told_and_not_changed(odd_url, tmp_path):
    earlier = copied(odd_url, tmp_path)
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


def test_damage_that_shows_only_when_asked_is_told_as_a_connection_tells_it(odd_url, tmp_path):
    damaged = copied(odd_url, tmp_path)
    with closing(sqlite3.connect(damaged.removeprefix("sqlite:///"))) as file, file:
        file.execute("DROP TABLE metric_keys")

    with (
        open_reader(damaged) as reader,
        pytest.raises(DatabaseUnreachable, match=r"copy\.db: cannot be used \(no such table: metric_keys\)"),
    ):
        reader.metric_names()


def test_a_reader_writes_nothing(odd_url, tmp_path):
    """Not even where SQL would: the file is opened to be read."""
    kept = copied(odd_url, tmp_path)

    with (
        open_reader(kept) as reader,
        pytest.raises(DatabaseUnreachable, match="attempt to write a readonly database"),
    ):
        reader._file.rows("DELETE FROM audit_log RETURNING id")


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
