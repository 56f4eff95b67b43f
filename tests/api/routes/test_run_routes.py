"""Runs, their lines and their series."""

import json
import struct

import numpy as np
import pytest
from sqlalchemy import event

from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.api.reading.run_status import judge
from model_checkpoint.database import (
    Checkpoint,
    EnhancedDatabaseConnection,
    Experiment,
    LineageEdge,
    Metric,
    RunOverview,
)
from model_checkpoint.database.records import CheckpointMark


def unpacked(data):
    """The frames of the binary form, by run and metric."""
    assert data[:4] == b"MCS1"
    (length,) = struct.unpack("<I", data[4:8])
    header, start, found = json.loads(data[8 : 8 + length]), 8 + length, {}
    assert start % 8 == 0
    for one in header["series"]:
        columns = np.frombuffer(data, "<f8", 4 * one["n"], start).reshape(4, one["n"])
        found[one["run"], one["key"]] = (one, *columns)
        start += 32 * one["n"]
    assert start == len(data)
    return header, found


def test_every_state_of_a_run_is_told_with_its_evidence(reader, built):
    page = reader.get("/api/runs").json()
    rows = {row["id"]: row for row in page["rows"]}

    assert {name: rows[getattr(built, name)]["status"] for name in ("alive", "stalled", "dead")} == {
        "alive": "alive",
        "stalled": "stalled",
        "dead": "dead",
    }
    assert "no step for" in rows[built.stalled]["evidence"]
    assert "still marked as running" in rows[built.dead]["evidence"]
    assert sum(page["counts"].values()) == built.runs == len(rows)


@pytest.mark.parametrize(
    ("status", "end", "seconds", "steps"),
    [("running", None, 100.0, 30), ("completed", 1000.0, None, None), ("failed", 990.0, 80.0, 30)],
)
def test_work_at_risk_is_what_came_after_the_newest_safe_checkpoint(status, end, seconds, steps):
    """A finished run risks nothing; what a failed one lost ends with its last step."""
    run = Experiment(
        id="r", name="r", status=status, start_time=0.0, end_time=end, step=130, last_seen=995.0, last_step_at=980.0
    )
    safe = CheckpointMark("c", 100, 900.0, "healthy")

    verdict = judge(RunOverview(experiment=run, safe=safe), 1000.0)

    assert (verdict.risk_seconds, verdict.risk_steps) == (seconds, steps)


def test_a_run_whose_checkpoints_are_all_damaged_risks_everything():
    run = Experiment(id="r", name="r", start_time=0.0, step=130, last_seen=995.0, last_step_at=995.0)

    assert judge(RunOverview(experiment=run), 1000.0).risk_seconds == 1000.0


def test_a_run_that_lives_without_a_safe_checkpoint_is_counted_until_it_saves_one(server, made, tmp_path):
    """A fresh run needs no attention yet, but all of its work would be lost."""
    before = server.get("/api/runs").json()["unsafe"]
    with ExperimentTracker("fresh", "digits", database_url=made.url) as run:
        run.flush()
        page = server.get("/api/runs").json()
        with EnhancedCheckpointManager(run, str(tmp_path / "fresh")) as manager:
            manager.save_checkpoint({"w": np.zeros(4)}, step=1)
        saved = server.get("/api/runs").json()
        found = server.get("/api/runs", params={"q": "name:fresh step > 0"}).json()["rows"]

    assert [row["step"] for row in found] == [1]  # of what it saved, since it logs no step
    assert (before, page["unsafe"], saved["unsafe"]) == (0, 1, 0)
    assert "fresh" not in {row["name"] for row in page["attention"]}


@pytest.mark.parametrize(("first", "own"), [(None, 10), (5005, 10), (10, 5010)], ids=["unsaved", "counts on", "anew"])
def test_the_pace_of_a_run_that_went_on_is_of_its_own_steps(server, made, first, own):
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.save_experiment(Experiment(id="child", name="child", start_time=connection.now() - 1000))
        connection.heartbeat("child", step=5010)
        connection.add_edge(LineageEdge(parent=made.real_checkpoints[0], child="child", kind="resumed", step=5000))
        if first is not None:
            connection.save_checkpoint(Checkpoint(id="c", name="c", experiment_id="child", step=first))

    line = server.get("/api/runs?ids=child").json()["rows"][0]
    for told in (line, server.get("/api/runs/child").json()):
        assert told["steps_per_s"] == pytest.approx(own / 1000, rel=0.05)


def test_a_line_has_sparkline_best_newest_and_who_runs_it(reader, built):
    row = next(one for one in reader.get("/api/runs?cols=val_loss,accuracy").json()["rows"] if one["id"] == built.alive)

    assert len(row["spark"]) == 32
    assert row["spark"][0] > row["spark"][-1]
    assert row["metrics"]["val_loss"]["best"] <= row["metrics"]["val_loss"]["last"]
    assert row["metrics"]["accuracy"]["best"] >= row["metrics"]["accuracy"]["last"]
    assert (row["user"], row["host"]) == ("user-0", "gpu-00")
    assert row["newest"]["health"] in ("healthy", "unverified")
    assert row["total_steps"] > row["step"]


def test_a_search_finds_what_it_says_and_nothing_else(reader):
    found = reader.get("/api/runs", params={"q": "val_loss < 2.5 -tag:paper config.lr >= 0.0009"}).json()["rows"]
    every = reader.get("/api/runs?cols=val_loss").json()["rows"]

    expected = {
        row["id"]
        for row in every
        if row["metrics"].get("val_loss", {}).get("last", 9) < 2.5
        and "paper" not in row["tags"]
        and reader.get(f"/api/runs/{row['id']}").json()["config"].get("lr", 0) >= 0.0009
    }
    assert {row["id"] for row in found} == expected
    assert 0 < len(found) < len(every)


def test_a_search_that_cannot_be_read_is_told_with_place_and_cure(reader):
    answer = reader.get("/api/runs", params={"q": "tag:paper vla_loss < 2"})

    assert answer.status_code == 400
    assert {key: answer.json()[key] for key in ("code", "at", "length", "suggestion")} == {
        "code": "QueryInvalid",
        "at": 10,
        "length": 8,
        "suggestion": "val_loss",
    }


@pytest.mark.parametrize("sort", ["-heartbeat", "name", "-val_loss", "best.val_loss", "at_risk", "-status", "lr"])
def test_pages_of_runs_put_together_are_the_whole_list(reader, by_pages, sort):
    whole = [row["id"] for row in reader.get("/api/runs", params={"sort": sort}).json()["rows"]]

    found = by_pages("/api/runs", sort=sort, limit=5)

    assert found == whole
    assert len(set(found)) == 13


def test_a_list_of_runs_asks_a_fixed_number_of_questions_and_reads_no_points(reader):
    """200 runs or 20,000: the cost of a list must not be one question for each, nor a scan of what was measured."""
    asked = []
    engine = reader.library.shelves()[0].connection._pool.engine()
    reader.get("/api/runs")  # sparklines are drawn now, and kept

    def note(connection, cursor, statement, *rest):
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        rows = reader.get("/api/runs?cols=val_loss,lr&q=val_loss < 9").json()["rows"]
    finally:
        event.remove(engine, "before_cursor_execute", note)

    assert len(rows) == 13
    assert len([statement for statement in asked if statement.startswith("SELECT")]) <= 9
    assert not [statement for statement in asked if "experiment_metrics" in statement]


def test_a_run_is_told_whole(reader, built):
    run = reader.get(f"/api/runs/{built.real}").json()

    assert run["config"] == {"lr": 0.1, "total_steps": 40}
    assert run["metric_names"] == ["loss_scale", "val_loss"]
    assert run["has"] == {"memory": True, "loss_scale": True}
    assert run["status"] == "finished"
    assert reader.get("/api/runs/nobody").status_code == 404


def test_secrets_in_the_settings_of_a_run_are_not_told(server, made):
    hidden = {"api_key": "hush", "db": {"password": "hush"}, "hf_token": "hf_hush_0123456789"}
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.update_experiment(made.alive, config={**hidden, "pad_token": "<pad>", "max_tokens": 512, "keys": 3})

    answer = server.get(f"/api/runs/{made.alive}")

    told = {"api_key": "***", "db": {"password": "***"}, "hf_token": "***"}
    assert answer.json()["config"] == {**told, "pad_token": "<pad>", "max_tokens": 512, "keys": 3}
    assert "hush" not in answer.text + server.get("/api/runs").text + server.get("/api/lineage").text


def test_the_next_save_is_expected_by_the_pace_of_the_latest(reader, built):
    run = reader.get(f"/api/runs/{built.alive}").json()

    assert run["next_save"]["step"] > run["newest"]["step"]


def test_no_spike_is_lost_and_no_column_drawn_twice(server, made):
    values = np.random.default_rng(3).normal(size=5000)
    values[1234], values[4321] = 50.0, -50.0
    points = [Metric(made.alive, "spiky", float(value), step, 1000.0 + step) for step, value in enumerate(values)]
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.write_metrics([*points, Metric(made.alive, "spiky", float("nan"), 5000, 6000.0)])

    answer = server.get(f"/api/runs/series?ids={made.alive}&keys=spiky&px=100")
    _, found = unpacked(answer.content)
    told, x, low, high, last = found[made.alive, "spiky"]

    assert (told["count"], told["last_id"], len(x)) == (5001, 5000, 100)
    assert (low.min(), high.max()) == (-50.0, 50.0)
    assert np.isnan(last[-1])
    assert np.isfinite(high[-1])
    assert (np.diff(x) > 0).all()
    zoomed = server.get(f"/api/runs/series?ids={made.alive}&keys=spiky&px=100&from=1200&to=1300&form=json").json()
    assert zoomed["series"][0]["x"] == list(range(1200, 1301))
    assert zoomed["series"][0]["max"] == pytest.approx(values[1200:1301])


def test_the_tail_of_a_series_is_what_came_after(server, made):
    before = server.get(f"/api/runs/series?ids={made.alive}&keys=val_loss&form=json").json()["series"][0]
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.write_metrics([Metric(made.alive, "val_loss", 1.0, before["last_id"] + 1)])

    tail = server.get(f"/api/runs/series?ids={made.alive}&keys=val_loss&form=json&from={before['last_id'] + 1}").json()

    assert tail["series"][0]["x"] == [before["last_id"] + 1]


def test_the_tail_of_a_series_over_time_is_asked_for_by_its_step(server, made):
    path = f"/api/runs/series?ids={made.alive}&keys=val_loss&form=json&x=time"
    before = server.get(path).json()["series"][0]
    with EnhancedDatabaseConnection(made.url) as connection:
        later = before["x"][-1] + 1.0
        connection.write_metrics([Metric(made.alive, "val_loss", 1.0, before["last_id"] + 1, later)])

    tail = server.get(f"{path}&since={before['last_id']}").json()["series"][0]

    assert tail["x"] == [before["x"][-1], later]
    assert tail["last"][-1] == 1.0


def test_series_over_time_are_in_the_order_of_time(reader, built):
    _, found = unpacked(reader.get(f"/api/runs/series?ids={built.alive}&keys=val_loss&x=time&px=20").content)

    assert (np.diff(found[built.alive, "val_loss"][1]) > 0).all()


def test_saves_are_told_stretch_by_stretch_and_hook_by_hook(reader, built):
    rows = reader.get(f"/api/runs/{built.real}/saves").json()["rows"]
    hooked = reader.get(f"/api/runs/{built.alive}/saves").json()["rows"][0]

    assert [row["step"] for row in rows] == [40, 30, 20, 10]
    assert [one["kind"] for one in rows[0]["segments"]] == ["stall", "hooks", "writing", "hooks", "checking"]
    assert all(one["dur"] >= 0 for row in rows for one in row["segments"])
    assert [hook["name"] for hook in hooked["hooks"]] == ["best-model", "webhook"]


def test_lineage_tells_what_each_child_changed(reader):
    nodes = {node["run"]: node for node in reader.get("/api/lineage").json()["nodes"]}
    child = nodes["run0004"]

    assert child["parent"] == "run0000"
    assert child["first_step"] == min(mark["step"] for mark in child["checkpoints"])
    assert child["changed"]["seed"] == [0, 4]
    assert "batch_size" not in child["changed"]
    assert reader.get("/api/lineage?experiment=nothing").json()["nodes"] == []


def test_a_loss_scale_that_was_logged_is_drawn(reader, built):
    told = reader.get(f"/api/runs/{built.real}/loss-scale").json()

    assert told["x"] == [10, 20, 30, 40]
    assert reader.get(f"/api/runs/{built.alive}/loss-scale").status_code == 404


def test_lineage_of_some_runs_is_theirs_and_of_what_they_came_from_as_in_the_whole(reader):
    """What a page asks when it hears that a run changed; it must fit into what the page has."""
    whole = {node["run"]: node for node in reader.get("/api/lineage").json()["nodes"]}
    child = next(node for node in whole.values() if node["parent"])

    some = {node["run"]: node for node in reader.get(f"/api/lineage?ids={child['run']},nobody").json()["nodes"]}

    assert some == {id: whole[id] for id in (child["run"], child["parent"])}
    assert len(whole) > len(some)
    assert reader.get("/api/lineage?ids=nobody").json()["nodes"] == []
