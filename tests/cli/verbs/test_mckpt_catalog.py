"""The verbs that ask a catalog, and what reaches it when a root is changed."""

import json
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.cli.errors import QueryInvalidSQL, QueryRefused
from model_checkpoint.cli.finding.family_tree import family_of
from model_checkpoint.cli.finding.read_only_query import run_query
from model_checkpoint.database import Experiment, LineageEdge, Metric, open_catalog

RUNS = ("first", "second")


def fill(url):
    with open_catalog(url) as db:
        for number, name in enumerate(RUNS):
            db.save_experiment(
                Experiment(id=f"{name}-id", name=name, start_time=1000.0 + number, step=9, status="completed")
            )
            db.write_metrics([Metric(f"{name}-id", "loss", 1.0 / (step + 1), step) for step in range(10)])
        db.add_edge(LineageEdge(parent="first-id", child="c1", kind="saved", step=5))
        db.add_edge(LineageEdge(parent="c1", child="second-id", kind="resumed", step=5))


@pytest.fixture
def catalog(tmp_path):
    fill(f"sqlite:///{tmp_path}/experiments.db")
    return tmp_path / "experiments.db"


def test_runs_are_listed_with_state_and_metrics(catalog, mckpt):
    shown = mckpt("experiments", catalog.parent).out

    assert [line.split()[0] for line in shown.splitlines()[2:4]] == ["second", "first"]
    assert "completed" in shown
    assert "loss=0.1" in shown
    assert json.loads(mckpt("experiments", catalog, "--query", "status:running", "--json").out) == []
    assert "1 of 2 runs; --limit 2 shows all" in mckpt("experiments", catalog, "--limit", "1").out


def test_a_run_that_logs_no_step_is_as_far_as_what_it_saved(tmp_path, mckpt):
    with (
        mc.ExperimentTracker("quiet", database_url=f"sqlite:///{tmp_path}/experiments.db") as run,
        mc.EnhancedCheckpointManager(run, tmp_path / "root") as manager,
    ):
        manager.save_checkpoint({"w": np.ones(2)}, step=70)

    (told,) = json.loads(mckpt("experiments", tmp_path, "--query", "step > 60", "--json").out)
    assert told["step"] == 70
    assert re.search(r"^quiet .*\b70\b", mckpt("experiments", tmp_path).out, re.MULTILINE)
    for verb in ("metrics", "lineage"):
        assert "step 70" in mckpt(verb, tmp_path).out, verb


def test_a_search_chooses_runs_and_checkpoints(catalog, tmp_path, mckpt):
    for step in (1, 2, 3):
        mc.save(tmp_path / "run", {"a": 1}, step=step, metrics={"val/loss": 1 / step}, metadata={"opt": {"lr": 0.1}})
    mc.tag(tmp_path / "run@2", "paper")

    def found(*words):
        return [row.get("step") or row["name"] for row in json.loads(mckpt(*words, "--json").out)]

    assert found("ls", tmp_path / "run", "-q", "`val/loss` < 0.6") == [3, 2]
    assert found("ls", tmp_path / "run", "-q", "-tag:paper opt.lr = 0.1 step < 3") == [1]
    assert "the search fits no checkpoint" in mckpt("ls", tmp_path / "run", "-q", "step > 7").out
    assert found("experiments", catalog, "-q", "best.loss <= 0.1 first") == [9]
    wrong = mckpt("ls", tmp_path / "run", "-q", "step < 3 stpe > 1")
    assert wrong.code == 2
    assert wrong.err.splitlines()[1:] == ["  step < 3 stpe > 1", "           ^^^^"]
    assert "Did you mean 'step'?" in wrong.err


def test_metrics_of_a_run_are_listed_and_drawn(catalog, mckpt):
    assert "loss" in mckpt("metrics", catalog).out
    assert "loss, by step" in mckpt("metrics", catalog, "first", "loss").out
    (series,) = json.loads(mckpt("metrics", catalog, "first-id", "loss", "--json").out)
    assert series["values"][:2] == [1.0, 0.5]
    assert "Did you mean 'loss'?" in mckpt("metrics", catalog, "first", "los").err
    assert "Did you mean 'first'?" in mckpt("metrics", catalog, "frst").err


def test_lineage_shows_what_came_out_of_what(catalog, mckpt):
    lines = mckpt("lineage", catalog, "second").out.splitlines()

    assert lines[0].startswith("first (first-id")
    assert lines[1].startswith("`- from step 5 (c1): second (second-i")
    assert lines[1].endswith("<- this run")


def test_a_circle_of_runs_ends():
    edges = [
        LineageEdge(parent="a", child="ca", kind="saved"),
        LineageEdge(parent="b", child="cb", kind="saved"),
        LineageEdge(parent="ca", child="b", kind="resumed"),
        LineageEdge(parent="cb", child="a", kind="resumed"),
        LineageEdge(parent="ca", child="a", kind="resumed"),
    ]

    assert {one.run for one in family_of("a", edges, {}, lambda ids: [])} == {"a", "b"}


WRITES = [
    "delete from experiments",
    "update experiments set name = 'x'",
    "insert into experiments (id) values ('x')",
    "drop table experiments",
    "create table x (a int)",
    "pragma journal_mode = delete",
    "pragma writable_schema = on",
    "attach database '{folder}/other.db' as other",
    "vacuum into '{folder}/copy.db'",
    "begin exclusive",
    "select load_extension('x')",
    "reindex",
    "select 1; delete from experiments",
]


@pytest.mark.parametrize("sql", WRITES)
def test_a_query_cannot_change_the_catalog_nor_reach_outside_it(catalog, sql, mckpt):
    before = sqlite3.connect(catalog).execute("select * from experiments").fetchall()

    done = mckpt("sql", catalog, sql.format(folder=catalog.parent))

    assert (done.code, done.out) == (4, ""), done
    assert sqlite3.connect(catalog).execute("select * from experiments").fetchall() == before
    assert not list(catalog.parent.glob("o*.db"))
    assert not list(catalog.parent.glob("copy.db"))


def test_a_query_is_limited_and_says_so(catalog, mckpt):
    done = mckpt("sql", catalog, "select step from experiment_metrics order by step;", "--limit", "3")

    assert "3 rows; there are more" in done.out
    assert json.loads(mckpt("sql", catalog, "select 1 as one", "--json").out) == {
        "columns": ["one"],
        "rows": [[1]],
        "more": False,
    }
    assert mckpt("sql", catalog).code == 2
    assert mckpt("sql", catalog, "select nothing").code == 2
    assert "experiment_metrics" in mckpt("sql", catalog, "--tables").out


ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
HUGE = "select count(*) from {0} a, {0} b, {0} c, {0} d".format("information_schema.columns")


def test_a_query_without_an_end_is_ended(catalog):
    with pytest.raises(QueryRefused, match=r"took longer than 0\.05 s and was ended"):
        run_query(f"sqlite:///{catalog}", ENDLESS, limit=1, seconds=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["postgres_url", "mariadb_url"])
def test_a_query_without_an_end_is_ended_on_servers_too(server, request):
    with pytest.raises(QueryRefused, match=r"took longer than 0\.2 s and was ended"):
        run_query(request.getfixturevalue(server), HUGE, limit=1, seconds=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["postgres_url", "mariadb_url"])
def test_a_query_only_reads_on_servers_too(server, request):
    url = request.getfixturevalue(server)
    fill(url)

    found = run_query(url, "select name from experiments order by name;", limit=1)

    assert (found.rows, found.more) == ([("first",)], True)
    with pytest.raises(QueryInvalidSQL, match="nothing"):
        run_query(url, "select nothing", limit=1)
    for sql, error in (
        ("delete from experiments", QueryRefused),
        ("with gone as (delete from experiments returning id) select * from gone", (QueryRefused, QueryInvalidSQL)),
        ("select 1; commit; delete from experiments", QueryInvalidSQL),
        ("select 1) as x; delete from experiments; select (1", QueryInvalidSQL),
        ("select 1 into outfile '/tmp/mckpt-outfile'", QueryInvalidSQL),
        ("select nextval('experiments_number_seq')", (QueryRefused, QueryInvalidSQL)),
    ):
        with pytest.raises(error, match=r"\w"):
            run_query(url, sql, limit=5)
    with open_catalog(url) as db:
        assert len(db.list_experiments().items) == 2
    assert not Path("/tmp/mckpt-outfile").exists()


@pytest.fixture
def root(tmp_path, mckpt):
    for step in (1, 2):
        mc.save(tmp_path / "run", {"w": np.zeros(3)}, step=step, metrics={"val_loss": 1 / step})
    assert mckpt("reindex", tmp_path / "run").code == 0
    return tmp_path / "run"


def row(root, step=1):
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        (run,) = db.list_experiments().items
        every = [*db.get_checkpoints_by_experiment(run.id), *db.get_checkpoints_by_experiment(run.id, state="deleted")]
        return next(one for one in every if one.step == step)


def test_marks_and_removals_reach_the_catalog_of_a_root(root, mckpt):
    for words in (["pin", f"{root}@1"], ["tag", f"{root}@1", "paper"], ["note", f"{root}@1", "before"]):
        assert (mckpt(*words).code, mckpt(*words).err) == (0, "")

    assert (row(root).pinned, list(row(root).tags), row(root).notes) == (True, ["paper"], "before")
    mckpt("unpin", f"{root}@1")
    mckpt("rm", f"{root}@1")
    assert (row(root).pinned, row(root).state) == (False, "deleted")
    mckpt("restore", f"{root}@1")
    assert row(root).state == "committed"
    assert "dropped 1" in mckpt("prune", root, "--keep", "last:1").out
    assert row(root).state == "deleted"


def test_the_best_that_is_removed_hands_its_flag_on_and_has_it_when_it_is_back(root, mckpt):
    for step in (5, 6, 7):
        mc.save(root, {"w": np.ones(3)}, step=step, metrics={"loss": step / 10})
    mckpt("reindex", root)

    def flagged():
        return [step for step in (5, 6, 7) if row(root, step).is_best_loss]

    mckpt("rm", f"{root}@5")
    assert flagged() == [6]
    mckpt("restore", f"{root}@5")
    assert flagged() == [5]
    mckpt("prune", root, "--keep", "last:1")
    assert flagged() == [7]


def trail(root):
    with open_catalog(f"sqlite:///{root}/catalog.db") as db:
        return [(one.action, one.outcome, one.details) for one in db.audit().items if one.details.get("by") == "mckpt"]


def test_a_prune_is_a_retention_in_the_audit_trail_with_its_plan(root, mckpt):
    told = json.loads(mckpt("prune", root, "--keep", "last:1", "--json").out)

    ((action, outcome, details),) = trail(root)
    assert (action, outcome, details["plan"]) == ("retention", "ok", told["plan"])


def test_a_repair_reaches_the_audit_trail_and_says_what_it_could_not_mend(root, mckpt):
    mc.save(root, {"w": np.ones(3)}, step=3, parity="xor")
    mc.save(root, {"w": np.full(3, 7.0)}, step=4)
    mc.finish_saves()
    mckpt("reindex", root)
    for step in (3, 4):
        (path,) = (root / f"checkpoints/step-{step:08d}").glob("r*.safetensors")
        path.write_bytes(path.read_bytes()[:-1] + b"\x01")

    assert mckpt("repair", root, "--dry-run").code == 1
    assert trail(root) == []
    assert mckpt("repair", root).code == 1

    said = {details["name"]: (action, outcome) for action, outcome, details in trail(root)}
    assert said == {"step-00000004": ("repair", "failed"), "step-00000003": ("repair", "ok")}
    assert row(root, 3).health == "healthy"


def test_a_catalog_that_cannot_be_told_is_remarked_on_and_the_root_is_right(root, mckpt, caplog):
    (root / "catalog.db").write_bytes(b"noise" * 1000)

    done = mckpt("pin", f"{root}@1")

    assert done.code == 0
    assert "could not be told" in caplog.text
    assert mc.list_checkpoints(root)[1].pinned
