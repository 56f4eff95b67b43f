"""`mckpt` on a bucket: the same verbs, and nothing left there by a trial."""

import json

import numpy as np
import pytest
from tests.ground import object_servers

import model_checkpoint as mc

pytestmark = [pytest.mark.slow, pytest.mark.s3]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with object_servers.moto(tmp_path_factory.mktemp("moto")) as server:
        server.make_bucket("bucket")
        yield server


@pytest.fixture
def root(server, monkeypatch):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    root = "s3://bucket/runs/a"
    for step in (1, 2):
        mc.save(root, {"model": {"w": np.arange(6.0) * step}}, step=step, metrics={"val_loss": 1 / step})
    return root


def test_verbs_work_on_a_bucket(root, server, mckpt, tmp_path):
    def keys():
        return sorted(one["path"] for page in server.client("bucket").list() for one in page)

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
