"""What is asked often walks an index and sorts nothing, on every database: the plans are read, not guessed."""

import json

import pytest
from sqlalchemy import event, insert

from model_checkpoint.database import Checkpoint, EnhancedDatabaseConnection, Experiment, Metric
from model_checkpoint.database.models import AuditRow, EdgeRow, IntegrityRow, IntentRow, table_of

CHECKPOINTS, POINTS = 1500, 3000


@pytest.fixture
def full(db):
    """Enough rows for a planner to care, and its statistics up to date."""
    for number in range(100):
        run = f"x{number:03}"
        db.save_experiment(Experiment(id=run, name="x", project_name=f"p{number % 20}", start_time=float(number)))
    rows = [
        Checkpoint(
            id=f"c{n:05}",
            experiment_id="r1" if n % 2 else f"x{n % 100:03}",
            step=n,
            checkpoint_type=f"t{n % 20}",
            verified_at=float(n),
            metrics={"acc": n / 7, "loss": -n},
        )
        for n in range(CHECKPOINTS)
    ]
    db.save_checkpoints(rows)
    db.flag_best("r1", "loss", ["c00777"])
    db.write_metrics([Metric("r1", f"m{n % 5}", float(n), n, 1.0) for n in range(POINTS)])
    times = {"created_at": 1.0, "checked_at": 1.0, "seconds": 1.0, "finished_at": 1.0, "at": 1.0}
    texts = {"outcome": "ok", "method": "x", "kind": "x", "actor": "x", "action": "save", "plan_id": ""}
    with db._pool.engine().begin() as connection:
        for model in (EdgeRow, AuditRow, IntegrityRow, IntentRow):
            rows = [
                {**times, **texts, "bytes_read": 0, "details": {}, "step": n, "id": f"i{n}", "subject": f"c{n}"}
                | {"parent": f"a{n}", "child": f"a{n + 1}", "checkpoint_id": f"c{n:05}"}
                for n in range(600)
            ]
            names = {column.name for column in table_of(model).columns}
            connection.execute(insert(table_of(model)), [{k: v for k, v in r.items() if k in names} for r in rows])
    with db._pool.engine().connect() as connection:
        kind = connection.dialect.name
        tables = "checkpoints, checkpoint_metrics, experiments, experiment_metrics, audit_log, integrity_records, "
        tables += "deletion_intents, lineage_edges, metric_summaries, metric_keys"
        if kind == "mysql":
            connection.exec_driver_sql(f"ANALYZE TABLE {tables}").all()
        else:
            connection.exec_driver_sql("ANALYZE")
        connection.commit()
    return db


BEATS = dict.fromkeys(("loss", "val_loss", "metric"), lambda old, new: old is new)  # measured, and no better
QUESTIONS = {
    "a run": lambda db: db.get_experiment("r1"),
    "runs": lambda db: db.list_experiments(limit=5),
    "runs of a project": lambda db: db.list_experiments(project_name="p3", limit=3),
    "a checkpoint": lambda db: db.get_checkpoint("c00001"),
    "latest": lambda db: db.latest("r1"),
    "latest of a type": lambda db: db.latest("r1", "t1"),
    "a page": lambda db: db.page("r1", limit=5),
    "the page after": lambda db: db.page("r1", limit=5, after=db.page("r1", limit=5).next),
    "a crowd": lambda db: db.crowd("x002", "", beyond=3),
    "a save": lambda db: db.record_saved(Checkpoint(id="c00001", experiment_id="r1", step=1), beats=BEATS),
    "best": lambda db: db.best("r1", "acc", "max", 3),
    "worst": lambda db: db.best("r1", "acc", "min", 3),
    "flagged": lambda db: db.get_checkpoints_by_experiment("r1", best_only=True),
    "a series": lambda db: db.series("r1", "m1"),
    "the tail of a series": lambda db: db.series("r1", "m1", since=POINTS - 50),
    "the end of a series": lambda db: db.series("r1", "m1", buckets=5),
    "points": lambda db: db.get_metrics("r1", "m1", (10, 20)),
    "summaries": lambda db: db.summaries("r1"),
    "audit": lambda db: db.audit(limit=5),
    "audit of a subject": lambda db: db.audit(subject="c5", limit=5),
    "integrity": lambda db: db.integrity(limit=5),
    "integrity of one": lambda db: db.integrity("c00100", limit=5),
    "due": lambda db: db.due_for_verification(limit=5),
    "open intents": lambda db: db.open_intents(),
    "intents of one": lambda db: db.intents("c00100"),
    "removed": lambda db: db.removed(["c00100", "c00101"]),
    "edges": lambda db: db.edges("a100"),
    "lineage": lambda db: db.lineage("a3"),
}
SMALL = {"metric_keys", "experiments", "heartbeats", "above"}  # a planner may rightly read these whole


def statements_of(db, ask):
    """What a question really sends, with its parameters."""
    return [one for one in sent_by(db, ask) if one[0].lstrip().upper().startswith(("SELECT", "WITH"))]


def sent_by(db, ask):
    """Every statement that is sent; SQLite tells it itself: not all goes through an engine."""
    sent, engine = [], db._pool.engine()

    def note(connection, cursor, statement, parameters, context, executemany):
        sent.append((statement, parameters))

    def trace(driver, record, proxy):
        driver.set_trace_callback(lambda statement: sent.append((statement, ())))

    db._pool._idle.clear()  # what stays at hand is not checked out
    heard = ("checkout", trace) if engine.dialect.name == "sqlite" else ("before_cursor_execute", note)
    event.listen(engine, *heard)
    try:
        ask(db)
    finally:
        event.remove(engine, *heard)
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.connection.driver_connection.set_trace_callback(None)
    return sent


def test_every_question_walks_an_index(full):
    kind = full._pool.engine().dialect.name
    complaints = {}
    for name, ask in QUESTIONS.items():
        ask(full)  # names and numbers are looked up once
        sent = statements_of(full, ask)
        assert sent, name
        for statement, parameters in sent:
            found = COMPLAINTS[kind](full, statement, parameters)
            if found:
                complaints[name] = (statement, found)

    assert complaints == {}


def _sqlite(db, statement, parameters):
    with db._pool.engine().connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    lines = [row[3] for row in rows]
    scans = [line for line in lines if line.startswith("SCAN") and "USING" not in line and line.split()[1] not in SMALL]
    sorts = [line for line in lines if "TEMP B-TREE FOR ORDER BY" in line]
    walks = "LIMIT" in statement and not sorts  # in the order of the table itself, to the limit
    return sorts if walks else scans + sorts


def _postgresql(db, statement, parameters):
    with db._pool.engine().connect() as connection:
        for way in ("seqscan", "sort", "bitmapscan"):  # few rows: say whether an index serves, not whether it pays
            connection.exec_driver_sql(f"SET enable_{way} = off")
        plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return list(_bad_nodes(plan[0]["Plan"]))


def _bad_nodes(node):
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL:
        yield f"Seq Scan of {node['Relation Name']}"
    if node["Node Type"] in ("Sort", "Incremental Sort"):
        yield node["Node Type"]
    for child in node.get("Plans", ()):
        yield from _bad_nodes(child)


def _mysql(db, statement, parameters):
    with db._pool.engine().connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).mappings().all()
    real = [row for row in rows if row["table"] is not None and row["table"] not in SMALL and "<" not in row["table"]]
    return [
        f"{row['table']}: type {row['type']}, key {row['key']}, {row['Extra']}"
        for row in real
        if row["type"] == "ALL" or "filesort" in str(row["Extra"])
    ]


COMPLAINTS = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql, "mariadb": _mysql}


@pytest.mark.parametrize("question", ["a save", "flagged"])
def test_the_flagged_are_found_by_their_flags_also_without_statistics(tmp_path, question):
    """A catalog of SQLite has none, and by the state of its rows a whole run would be walked through each time."""
    with EnhancedDatabaseConnection(f"sqlite:///{tmp_path}/runs.db") as db:
        db.save_experiment(Experiment(id="r1", name="baseline"))
        sent = statements_of(db, QUESTIONS[question])
        with db._pool.engine().connect() as connection:
            plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}").all() for statement, _ in sent]

    searched = [row[3] for plan in plans for row in plan if row[3].startswith("SEARCH") and "(id=?)" not in row[3]]
    assert sorted(line.split()[4] for line in searched) == [
        f"ix_checkpoints_best_{kind}" for kind in ("loss", "metric", "val_loss")
    ]


def test_a_missing_index_would_be_noticed(full):
    """Otherwise the test above could pass whatever the plans say."""
    kind = full._pool.engine().dialect.name
    with full._pool.engine().begin() as connection:
        for name in ("newest", "type"):
            on = " ON checkpoints" if kind == "mysql" else ""
            if kind == "mysql" and name == "newest":  # the foreign key needs one
                connection.exec_driver_sql("CREATE INDEX ix_other ON checkpoints (experiment_id)")
            connection.exec_driver_sql(f"DROP INDEX ix_checkpoints_{name}{on}")

    ((statement, parameters),) = statements_of(full, QUESTIONS["latest"])
    assert COMPLAINTS[kind](full, statement, parameters)
