"""Checkpoints found, looked into, compared, marked, removed and brought back."""

import time

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager, ExperimentTracker
from model_checkpoint.api.library.result_cache import ResultCache
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.options import Graces


def test_checkpoints_are_listed_with_health_and_what_keeps_them(reader, built):
    page = reader.get("/api/checkpoints").json()
    rows = {row["id"]: row for row in page["rows"]}

    assert page["counts"]["all"] == page["total"] == len(rows) == built.checkpoints
    assert page["counts"]["damaged"] == 1
    assert page["counts"]["none"] == sum(not row["reasons"] for row in page["rows"])
    assert page["counts"]["pinned"] == len(reader.get("/api/checkpoints?pinned=true").json()["rows"]) == 2
    best = rows["ckpt-0000-0008"]
    assert [one["rule"] for one in best["reasons"]] == ["best(val_loss)", "pinned", "tagged"]
    assert [one["rule"] for one in rows["ckpt-0000-0009"]["reasons"]] == ["newest"]
    assert [one["rule"] for one in rows["ckpt-0000-0004"]["reasons"]] == ["parent"]


def test_those_that_nothing_keeps_are_exactly_those_without_a_reason(reader):
    every = reader.get("/api/checkpoints").json()["rows"]
    unclaimed = reader.get("/api/checkpoints?rule=none").json()["rows"]

    assert {row["id"] for row in unclaimed} == {row["id"] for row in every if not row["reasons"]}
    assert 0 < len(unclaimed) < len(every)


@pytest.mark.parametrize("sort", ["-at", "at", "step", "-bytes", "unique", "-verified_at"])
def test_pages_of_checkpoints_put_together_are_the_whole_list(reader, by_pages, sort):
    whole = [row["id"] for row in reader.get(f"/api/checkpoints?sort={sort}").json()["rows"]]

    assert by_pages("/api/checkpoints", sort=sort, limit=50) == whole


def test_health_is_asked_for_in_the_words_it_is_told_in(reader):
    for word in ("unverified", "healthy", "damaged"):
        rows = reader.get(f"/api/checkpoints?health={word}").json()["rows"]
        assert rows
        assert {row["health"] for row in rows} == {word}
    assert reader.get("/api/checkpoints?health=ill").status_code == 400


def test_a_checkpoint_says_what_a_resume_gets_and_lacks(reader, built):
    told = reader.get(f"/api/checkpoints/{built.real_checkpoints[2]}").json()
    parts = {part["name"]: part for part in told["parts"]}

    assert (parts["model"]["present"], parts["model"]["bytes"]) == (True, 4 * 32 * 16 * 4)
    assert parts["scheduler"]["present"] is False
    assert "learning rate" in parts["scheduler"]["without"]
    assert told["lacking"] == ["scheduler"]
    assert (told["prev"], told["next"]) == (built.real_checkpoints[1], built.real_checkpoints[3])
    assert told["ref"] == f"{built.root}@{told['name']}"
    assert told["cli"]["show"] == f"mckpt show {built.root}@{told['name']}"
    assert len(told["files"]) == 1


def test_a_checkpoint_whose_folder_is_gone_says_so_instead_of_failing(reader):
    told = reader.get("/api/checkpoints/ckpt-0003-0001").json()

    assert "/nowhere/runs/run0003" in told["problem"]
    assert [part["name"] for part in told["parts"]] == ["model", "optimizer", "rng"]
    assert reader.get("/api/checkpoints/nothing").status_code == 404


def test_tensors_are_computed_once_and_then_known(server, made):
    address = f"/api/checkpoints/{made.real_checkpoints[0]}/tensors"
    first = server.get(address).json()

    ready = server.ready(address)
    again = server.get(f"{address}?q=layer1&sort=-norm&limit=1").json()

    assert first["state"] == "computing"
    assert len([row for row in ready["rows"] if row["name"] != "rng.torch.cpu"]) == 10  # of whoever has torch imported
    assert (again["state"], again["total"], len(again["rows"])) == ("ready", 2, 1)
    assert again["rows"][0]["name"] == "model.layer1.weight"
    assert again["rows"][0]["part"] == "model"
    assert len(server.get("/api/jobs").json()["rows"]) == 1


def test_a_tensor_in_a_damaged_piece_is_lost_and_said_to_be(server, made):
    path = f"/api/checkpoints/{made.real_checkpoints[1]}"
    ready = server.ready(f"{path}/tensors")
    assert {row["name"] for row in ready["rows"] if row["lost"]} >= {"model.layer0.weight"}

    server.job(server.post(f"{path}/repair").json()["id"])
    assert not [row for row in server.ready(f"{path}/tensors")["rows"] if row["lost"]]


def test_a_diff_ranks_what_moved_most(server, made):
    address = f"/api/diff?a={made.real_checkpoints[0]}&b={made.real_checkpoints[3]}"

    told = server.ready(address)

    moved = [row["rel"] for row in told["rows"]]
    assert moved == sorted(moved, reverse=True)
    assert told["summary"]["changed"] == len(told["rows"]) == 8
    assert [name for name in told["same"] if name != "rng.torch.cpu"] == ["rng.python.1", "rng.numpy.state.key"]
    assert sum(told["rows"][0]["hist_a"]) == 512
    assert server.get(f"{address}&by=max_abs").json()["state"] == "ready"


@pytest.fixture
def spoilt(server, made):
    """Two checkpoints of the copy, the second one with NaN, and with a tensor that left zero."""
    before = {"moved": np.ones(4), "zero": np.zeros(4), "bad": np.ones(4)}
    after = {"moved": np.full(4, 1.5), "zero": np.ones(4), "bad": np.full(4, np.nan)}
    with (
        ExperimentTracker("spoilt", "digits", database_url=made.url) as run,
        EnhancedCheckpointManager(run, str(made.folder / "spoilt"), max_checkpoints=None) as manager,
    ):
        return [manager.save_checkpoint(one, step=step) for step, one in ((1, before), (2, after))]


@pytest.mark.parametrize("by", ["rel", "max_abs", "cos", "changed"])
def test_a_diff_begins_with_what_is_no_number_any_more(server, spoilt, by):
    told = server.ready(f"/api/diff?a={spoilt[0]}&b={spoilt[1]}&by={by}")

    rows = {row["name"].rpartition(".")[2]: row for row in told["rows"]}
    assert told["rows"][0]["name"].endswith("bad")
    assert {name: row["spoiled"] for name, row in rows.items()} == {"bad": 4, "zero": 0, "moved": 0}
    assert {name: row["rel"] for name, row in rows.items()} == {"bad": None, "zero": "Infinity", "moved": 0.5}
    assert rows["bad"]["max_abs"] == "NaN"


def test_a_view_whose_neighbours_moved_did_not_move_itself(server, made):
    base = np.arange(20.0)
    with (
        ExperimentTracker("views", "digits", database_url=made.url) as run,
        EnhancedCheckpointManager(run, str(made.folder / "views"), max_checkpoints=None) as manager,
    ):
        ids = []
        for step in (1, 2):
            base[15] += step
            ids.append(manager.save_checkpoint({"left": base[:10], "right": base[10:], "all": base}, step=step))

    told = server.ready(f"/api/diff?a={ids[0]}&b={ids[1]}")

    assert {row["name"] for row in told["rows"]} == {"model.right", "model.all"}
    assert told["summary"]["changed"] == 2
    assert "model.left" in told["same"]


def test_only_a_run_that_says_so_is_said_to_go_on_bit_for_bit(server, made, tmp_path):
    torch = pytest.importorskip("torch")
    plain = server.get(f"/api/checkpoints/{made.real_checkpoints[2]}").json()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in mc.Run(tmp_path / "loop", data=[1, 2, 3, 4], every=2, catalog=made.url, model=model, optimizer=optimizer):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
    newest = mc.list_checkpoints(tmp_path / "loop")[0]
    told = server.get(f"/api/checkpoints/{newest.id}").json()

    assert plain["run_position"] is None
    assert told["run_position"] == {**told["run_position"], "step": 4, "exact": True, "reasons": []}
    assert told["stall"] >= 0.0


def test_a_diff_with_what_is_damaged_fails_in_words_and_may_be_asked_again(server, made):
    address = f"/api/diff?a={made.real_checkpoints[0]}&b={made.real_checkpoints[1]}"

    told = server.ready(address)

    assert told["state"] == "failed"
    assert "does not have the recorded digest" in told["error"]
    assert server.get(address).json()["job"] == told["job"]  # not begun again at once


def test_what_was_computed_outlives_the_server(tmp_path):
    ResultCache(str(tmp_path)).put("tensors", "9f", {"a": 1})

    assert ResultCache(str(tmp_path)).get("tensors", "9f") == {"a": 1}


def test_the_oldest_results_make_room(tmp_path):
    kept = ResultCache(str(tmp_path), most_bytes=2000)
    for number in range(41):
        kept.put("tensors", str(number), "x" * 300)
        time.sleep(0.002)

    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 20 * 400
    assert kept.get("tensors", "40") is not None


def test_marks_are_put_on_and_taken_off_in_root_and_catalog(server, made):
    id = made.real_checkpoints[0]
    path = f"/api/checkpoints/{id}"

    server.post(f"{path}/pin", json={"pinned": True})
    server.post(f"{path}/tags", json={"add": ["paper", "table 3"]})
    server.post(f"{path}/tags", json={"remove": ["table 3"]})
    line = server.post(f"{path}/note", json={"text": "numbers of table 3"}).json()

    (info,) = [one for one in mc.list_checkpoints(made.root) if one.id == id]
    assert (info.pinned, info.tags, info.note) == (True, ("paper",), "numbers of table 3")
    assert (line["pinned"], line["tags"], line["note"]) == (True, ["paper"], "numbers of table 3")
    with EnhancedDatabaseConnection(made.url) as connection:
        actions = [entry.action for entry in connection.audit(subject=id).items]
    assert actions[:4] == ["note", "untag", "tag", "pin"]


def test_what_is_deleted_lies_in_the_trash_until_it_is_brought_back(server, made):
    id = made.real_checkpoints[3]

    gone = server.post(f"/api/checkpoints/{id}/delete").json()
    trash = server.get("/api/storage").json()["trash"]
    assert gone["deleted_at"] is not None
    assert [one["id"] for one in trash] == [id]
    assert id not in {info.id for info in mc.list_checkpoints(made.root)}
    assert server.post(f"/api/checkpoints/{id}/pin", json={"pinned": True}).status_code == 409

    back = server.post(f"/api/checkpoints/{id}/restore").json()
    assert back["deleted_at"] is None
    assert id in {info.id for info in mc.list_checkpoints(made.root)}
    assert server.post(f"/api/checkpoints/{id}/restore").status_code == 409


def test_what_was_freed_before_its_day_is_no_longer_said_to_be_in_the_trash(server, made):
    """As a manager does with what it drops, whose grace is an hour."""
    server.post(f"/api/checkpoints/{made.real_checkpoints[3]}/delete")

    mc.collect_garbage(made.root, graces=Graces(trash=0.0))

    assert server.get("/api/storage").json()["trash"] == []


def test_a_pinned_checkpoint_is_not_deleted(server, made):
    id = made.real_checkpoints[0]
    server.post(f"/api/checkpoints/{id}/pin", json={"pinned": True})

    answer = server.post(f"/api/checkpoints/{id}/delete")

    assert (answer.status_code, answer.json()["code"]) == (409, "StateConflict")
