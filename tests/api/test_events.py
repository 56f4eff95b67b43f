"""What changes is told as it does, once, and again to whoever was away."""

import json
import os
import sqlite3
import threading
import time

import pytest

from model_checkpoint.api.errors import TooManyAtOnce
from model_checkpoint.api.live.changes import Change, ChangeLog
from model_checkpoint.api.live.event_stream import MOST_LISTENERS, EventHub
from model_checkpoint.database import EnhancedDatabaseConnection, Metric


def messages(answer):
    """The messages of a stream: (id, changes)."""
    found = []
    for block in answer.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append((fields["id"], json.loads(fields["data"])["changes"]))
    return found


def test_a_new_point_and_a_new_checkpoint_are_told_within_a_second(server, made):
    server.get("/api/events?seconds=0")  # the first look, against which all that follows is new
    start = server.get("/api/events?seconds=0").text.split("id: ")[1].split("\n")[0]
    with EnhancedDatabaseConnection(made.url) as connection:
        last = connection.summaries(made.alive)[0].last_step
        connection.write_metrics([Metric(made.alive, "val_loss", 1.0, last + 1)])
        connection.update_checkpoint(made.real_checkpoints[0], pinned=True)

    told = [change for _, some in messages(server.get(f"/api/events?seconds=0.6&after={start}")) for change in some]

    assert {"type": "points", "id": made.alive, "since": last} in told
    assert {"type": "checkpoint", "id": made.real, "since": None} in told
    assert len(told) == 2


def test_points_below_the_last_step_ask_for_everything_again(server, made):
    server.get("/api/events?seconds=0")
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.write_metrics([Metric(made.alive, "val_loss", 1.0, 3, 5.0)])

    (found,) = messages(server.get("/api/events?seconds=0.6"))

    assert found[1] == [{"type": "points", "id": made.alive, "since": None}]


def told_since(server, start, seconds):
    """All changes behind a place in the stream."""
    found = messages(server.get(f"/api/events?seconds={seconds}&after={start}"))
    return [change for _, some in found for change in some]


def place_of(server):
    """Where the stream is now, after a first look."""
    server.get("/api/events?seconds=0")
    return server.get("/api/events?seconds=0").text.split("id: ")[1].split("\n")[0]


def test_a_run_that_falls_silent_is_told_though_nothing_is_written(server, made):
    """Death writes nothing: who listens must hear of it from the clock."""
    with sqlite3.connect(made.folder / "experiments.db") as database:
        own = "experiment = (SELECT number FROM experiments WHERE id = ?)"
        aged = (time.time() - 57, made.alive)
        database.execute(f"UPDATE heartbeats SET last_seen = ?, last_step_at = last_seen WHERE {own}", aged)
    database.close()
    before, start = server.get(f"/api/runs/{made.alive}").json()["status"], place_of(server)

    told = told_since(server, start, 4.5)

    assert told == [{"type": "run", "id": made.alive, "since": None}]
    assert (before, server.get(f"/api/runs/{made.alive}").json()["status"]) == ("alive", "dead")


def test_tags_and_notes_that_others_set_are_told(server, made):
    start = place_of(server)
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.update_experiment(made.alive, tags=["paper"])
        connection.update_experiment(made.stalled, notes="look at it")
        connection.update_checkpoint(made.real_checkpoints[0], tags=["gold"])
    first = told_since(server, start, 0.6)
    start = place_of(server)
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.update_checkpoint(made.real_checkpoints[0], tags=["lead"])  # as long as before
        connection.heartbeat(made.alive, step=10**6)
    second = told_since(server, start, 0.6)

    assert {(one["type"], one["id"]) for one in first} == {
        ("run", made.alive),
        ("run", made.stalled),
        ("checkpoint", made.real),
    }
    assert {(one["type"], one["id"]) for one in second} == {("checkpoint", made.real), ("step", made.alive)}


def test_a_commit_is_told_though_neither_time_nor_size_of_a_file_moved_with_it(server, made):
    """A log is flushed before its rows can be seen: who looks in between has the new times and the old rows."""
    files = [made.folder / "experiments.db", made.folder / "experiments.db-wal"]
    with EnhancedDatabaseConnection(made.url) as connection:
        connection.update_experiment(made.alive, notes="x" * 100_000)  # a log that has room for more
        with sqlite3.connect(files[0]) as database:
            database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        database.close()
        connection.heartbeat(made.alive, step=10**5)
        start, before = place_of(server), [file.stat() for file in files]
        connection.heartbeat(made.alive, step=10**6)
        for file, stat in zip(files, before, strict=True):
            assert file.stat().st_size == stat.st_size
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

        told = told_since(server, start, 0.6)

    assert told == [{"type": "step", "id": made.alive, "since": None}]


def test_what_the_server_itself_does_is_told_at_once(server, made):
    start = server.get("/api/events?seconds=0").text.split("id: ")[1].split("\n")[0]
    server.post(f"/api/checkpoints/{made.real_checkpoints[0]}/pin", json={"pinned": True})

    ((_, changes),) = messages(server.get("/api/events?seconds=0", headers={"last-event-id": start}))

    assert {"type": "checkpoint", "id": made.real, "since": None} in changes


@pytest.mark.parametrize("last", ["00000000-5", "nonsense", "12345678-99999999999999999999", "-"])
def test_whoever_comes_from_another_server_is_told_to_begin_anew(server, last):
    ((_, changes),) = messages(server.get("/api/events?seconds=0", headers={"last-event-id": last}))

    assert changes == [{"type": "reset", "id": "", "since": None}]


def test_a_listener_that_was_away_for_long_is_told_to_begin_anew():
    log = ChangeLog(lambda: [])
    for number in range(5000):
        log.add(Change("points", f"r{number}", number))

    assert log.after(10)[0] == [Change("reset", "")]
    assert len(log.after(4990)[0]) == 10


def test_many_changes_of_one_thing_are_one():
    log = ChangeLog(lambda: [])
    log.add(Change("points", "r1", 5), Change("points", "r1", 9), Change("run", "r1"), Change("points", "r2", None))
    log.add(Change("points", "r2", 4))

    assert log.after(0)[0] == [Change("points", "r1", 5), Change("run", "r1"), Change("points", "r2", None)]


def test_there_are_at_most_four_messages_a_second(server, made):
    stop = threading.Event()

    def keep_changing():
        while not stop.is_set():
            server.post(f"/api/checkpoints/{made.real_checkpoints[0]}/note", json={"text": str(time.monotonic())})

    writer = threading.Thread(target=keep_changing)
    writer.start()
    try:
        found = messages(server.get("/api/events?seconds=1"))
    finally:
        stop.set()
        writer.join()

    assert 1 <= len(found) <= 5


def test_only_so_many_may_listen():
    hub = EventHub(ChangeLog(lambda: []))
    hub._listeners = MOST_LISTENERS

    with pytest.raises(TooManyAtOnce, match="pages listen already"):
        hub.admit()
