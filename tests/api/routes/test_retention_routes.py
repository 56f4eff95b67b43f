"""What was previewed is what goes, and it comes back; where the bytes are."""

from tests.ground.served import Server

import model_checkpoint as mc
from model_checkpoint.api.library.shelves import Library


def plan(server, made, *keep):
    return server.post("/api/retention/plan", json={"keep": list(keep), "run": made.real}).json()


def test_a_plan_says_of_each_why_it_goes_or_stays_and_removes_nothing(server, made):
    told = plan(server, made, "last:1", "best:val_loss")

    rows = {row["id"]: row for row in told["rows"]}
    assert [rows[id]["keep"] for id in made.real_checkpoints] == [False, False, False, True]
    assert all(row["why"] for row in told["rows"])
    assert told["frees"] == sum(row["frees"] for row in told["rows"]) > 0
    assert "--keep last:1" in told["cli"]
    assert len(mc.list_checkpoints(made.root)) == 4


def test_what_was_previewed_goes_and_the_undo_id_brings_it_back(server, made, tmp_path):
    told = plan(server, made, "last:2")

    done = server.post("/api/retention/apply", json={"plan_id": told["plan_id"]}).json()
    assert sorted(done["removed"]) == sorted(made.real_checkpoints[:2])
    assert len(mc.list_checkpoints(made.root)) == 2
    assert server.post("/api/retention/apply", json={"plan_id": told["plan_id"]}).status_code == 404

    # a server that was started since can undo it too
    with Library([str(made.folder)], cache_dir=str(tmp_path / "cache")) as library, Server(library) as other:
        back = other.post("/api/retention/undo", json={"undo_id": done["undo_id"]}).json()
    assert (sorted(back["restored"]), back["lost"]) == (sorted(made.real_checkpoints[:2]), {})
    assert len(mc.list_checkpoints(made.root)) == 4


def test_a_plan_that_no_longer_holds_is_refused_and_nothing_goes(server, made):
    told = plan(server, made, "last:1")
    server.post(f"/api/checkpoints/{made.real_checkpoints[0]}/pin", json={"pinned": True})

    answer = server.post("/api/retention/apply", json={"plan_id": told["plan_id"]})

    assert (answer.status_code, answer.json()["code"]) == (409, "PlanOutdated")
    assert len(mc.list_checkpoints(made.root)) == 4


def test_a_keeper_that_cannot_be_read_is_told_with_a_cure(server):
    answer = server.post("/api/retention/plan", json={"keep": ["lats:3"]})

    assert answer.status_code == 400
    assert "Did you mean 'last'" in answer.json()["error"]


def test_storage_tells_disk_runs_and_growth(reader, built):
    told = reader.get("/api/storage").json()
    (disk,) = [one for one in told["disks"] if one["size"] is not None]

    assert disk["roots"] == [str(built.root)]
    assert 0 < disk["used"] < disk["size"]
    assert len(disk["days"]) == 46
    assert disk["days"][-1]["used"] == disk["used"]
    assert disk["full_at"] is not None
    unique = [run["unique"] for run in told["runs"]]
    assert unique == sorted(unique, reverse=True)
    assert sum(run["n"] for run in told["runs"]) == built.checkpoints


def test_a_read_only_server_changes_nothing(made, tmp_path):
    id = made.real_checkpoints[0]
    with Library([str(made.folder)], read_only=True, cache_dir=str(tmp_path)) as library, Server(library) as server:
        assert {row["writable"] for row in server.get("/api/runs").json()["rows"]} == {False}
        for path, body in (
            (f"checkpoints/{id}/pin", {"pinned": True}),
            (f"checkpoints/{id}/tags", {"add": ["x"]}),
            (f"checkpoints/{id}/note", {"text": "x"}),
            (f"checkpoints/{id}/delete", None),
            (f"checkpoints/{id}/restore", None),
            (f"checkpoints/{id}/repair", None),
            ("retention/plan", {"keep": ["last:1"]}),
            ("retention/plan", {"keep": ["last:1"], "run": made.real}),
        ):
            answer = server.post(f"/api/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "ReadOnlyHere"), path
    assert len(mc.list_checkpoints(made.root)) == 4
