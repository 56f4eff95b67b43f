"""`mckpt` on a bucket: the same verbs, and nothing left there by a trial."""

import json

import numpy as np
import pytest
from tests.ground.served import Server

import model_checkpoint as mc
from model_checkpoint.api.library.shelves import Library

pytestmark = [pytest.mark.slow, pytest.mark.s3]


@pytest.fixture
def root(moto, monkeypatch, request):
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    root = f"s3://bucket/{request.node.name[:20]}/runs/a"
    for step in (1, 2):
        mc.save(root, {"model": {"w": np.arange(6.0) * step}}, step=step, metrics={"val_loss": 1 / step})
    return root


def test_verbs_work_on_a_bucket(root, moto, mckpt, tmp_path):
    def keys():
        return sorted(one["path"] for page in moto.client("bucket").list() for one in page)

    assert [row["step"] for row in json.loads(mckpt("ls", root, "--json").out)] == [2, 1]
    assert "histogram" in mckpt("show", f"{root}@1", "--tensors").out
    assert (mckpt("verify", root).code, mckpt("repair", root).code) == (0, 0)
    assert (mckpt("diff", f"{root}@1", f"{root}@2").code, mckpt("cat", root, "model.w").code) == (1, 0)
    assert "pinned" in mckpt("pin", f"{root}@1").out
    assert "moved to the trash" in mckpt("rm", f"{root}@2").out
    assert "brought back" in mckpt("restore", f"{root}@2").out
    assert (mckpt("doctor", root).code, mckpt("gc", root, "--dry-run").code) == (0, 0)
    assert mckpt("export", root, tmp_path / "out.safetensors").code == 0
    assert "a catalog does not lie in a bucket" in mckpt("experiments", root).err
    assert mckpt("reindex", root, "--database", f"sqlite:///{tmp_path}/runs.db").code == 0
    assert "runs/a" in mckpt("sql", tmp_path / "runs.db", "select root from checkpoints").out
    before = keys()
    assert mckpt("bench", root, "--size", "1MiB", "--rounds", "1").code == 0
    assert [key for key in keys() if key not in before] == []


def test_what_marks_drops_clears_and_converts_works_on_a_bucket(root, mckpt, tmp_path):
    def steps(place):
        return [info.step for info in mc.list_checkpoints(place)]

    mc.save(root, {"model": {"w": np.arange(6.0)}}, step=3)
    assert "tagged paper" in mckpt("tag", f"{root}@1", "paper").out
    assert mckpt("note", f"{root}@1", "table 3").code == 0
    assert mckpt("prune", root, "--keep", "last:1", "--keep", "tagged:paper", "--dry-run").code == 0
    assert steps(root) == [3, 2, 1]
    assert mckpt("prune", root, "--keep", "last:1", "--keep", "tagged:paper").code == 0
    assert steps(root) == [3, 1]
    assert "step-00000002" in mckpt("trash", root).out
    assert mckpt("gc", root, "--trash").code == 0
    assert json.loads(mckpt("trash", root, "--json").out) == []
    assert mckpt("forecast", root).code == 0
    assert mckpt("convert", f"{root}@1", tmp_path / "one.safetensors", "--to", "safetensors").code == 0
    assert mckpt("convert", tmp_path / "one.safetensors", "s3://bucket/runs/b", "--step", "7").code == 0
    assert mckpt("adopt", tmp_path, "s3://bucket/runs/c").code == 0
    assert (steps("s3://bucket/runs/b"), len(steps("s3://bucket/runs/c"))) == ([7], 1)


def test_the_server_shows_a_bucket(root, tmp_path):
    with Library([root], cache_dir=str(tmp_path)) as library, Server(library) as server:
        (run,) = server.get("/api/runs").json()["rows"]
        rows = server.get("/api/checkpoints").json()["rows"]
        newest = max(rows, key=lambda row: row["step"])
        job = server.post(f"/api/checkpoints/{newest['id']}/verify").json()

        assert (run["n"], run["writable"]) == (len(mc.list_checkpoints(root)), False)
        assert server.job(job["id"])["state"] == "done"
        assert server.get(f"/api/checkpoints/{newest['id']}").json()["health"] == "healthy"
        assert server.ready(f"/api/checkpoints/{newest['id']}/tensors")["rows"]
