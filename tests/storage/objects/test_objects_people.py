"""Object stores as people use them: by the command line, with prefixes of all kinds, and when an object is damaged."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import ChunkMismatch
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket

pytestmark = pytest.mark.s3


@pytest.fixture
def server(moto, monkeypatch):
    """The quick server, reachable through the environment alone."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    return moto


def mckpt(*words):
    return subprocess.run(
        [sys.executable, "-m", "model_checkpoint", *words], capture_output=True, text=True, timeout=120, check=False
    )


def state_of(step):
    return {"model": {"w": np.full(2000, float(step)), "frozen": np.arange(3000)}, "epoch": step}


@pytest.mark.slow
def test_every_verb_of_the_command_works_on_an_s3_url(server, tmp_path):
    url = f"s3://bucket/verbs/{tmp_path.name}"
    for step in (1, 2, 3):
        mc.save(url, state_of(step), step=step, metrics={"val_loss": 1 / step}, incremental=True)

    listed, shown = json.loads(mckpt("ls", url, "--json").stdout), mckpt("show", f"{url}@2", "--tensors")
    verified, compared = mckpt("verify", url), mckpt("diff", f"{url}@1", f"{url}@3")
    removed = mckpt("rm", f"{url}@2")
    thrown = json.loads(mckpt("trash", url, "--json").stdout)
    left = [row["step"] for row in json.loads(mckpt("ls", url, "--json").stdout)]
    undone, cleared = mckpt("undo", f"{url}@2"), mckpt("gc", url, "--trash")
    by_folder = mckpt("verify", f"{url}/checkpoints/step-00000002")
    nowhere = mckpt("ls", f"{url}-nowhere")

    assert [row["step"] for row in listed] == [3, 2, 1]
    assert (shown.returncode, "model.w" in shown.stdout) == (0, True)
    assert (verified.returncode, compared.returncode) == (0, 1)
    assert "model.w" in compared.stdout
    assert removed.returncode == 0
    assert len(thrown) == 1
    assert left == [3, 1]
    assert (undone.returncode, cleared.returncode, by_folder.returncode) == (0, 0, 0), undone.stderr + cleared.stderr
    assert mc.load(url, step=2)["epoch"] == 2
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert "-nowhere" in nowhere.stderr
    assert "Traceback" not in nowhere.stderr


def test_roots_whose_prefixes_begin_alike_do_not_mix(server, tmp_path):
    base = f"s3://bucket/alike/{tmp_path.name}"
    roots = [base, f"{base}/a", f"{base}/ab", f"{base}/a/b", f"{base}/lr=1e-3+wd/.hidden_2"]
    for step, root in enumerate(roots):
        mc.save(f"{root}/", state_of(step), step=step)
    mc.delete(roots[1], step=1)
    mc.collect_garbage(roots[1])

    found = [[info.step for info in mc.list_checkpoints(root)] for root in roots]

    assert found == [[0], [], [2], [3], [4]]
    assert all(report.ok for root in roots for report in mc.verify(root))


def test_a_bucket_itself_may_be_a_root(server):
    server.make_bucket("whole")

    mc.save("s3://whole", state_of(1), step=1)
    mc.save("s3://whole/", state_of(2), step=2, incremental=True)

    assert [info.step for info in mc.list_checkpoints("s3://whole")] == [2, 1]
    assert mc.load("s3://whole")["epoch"] == 2


def test_a_damaged_object_is_found_by_its_address_and_an_older_checkpoint_serves(server, tmp_path):
    """Copies on the server are copies: damage in one does not reach the other."""
    url = f"s3://bucket/damage/{tmp_path.name}"
    mc.save(url, state_of(1), step=1)
    mc.save(url, state_of(2), step=2)
    bucket = Bucket(Address.parse(url), server.client("bucket"))
    (key,) = [one.key for one in bucket.list("checkpoints/step-00000002") if one.key.endswith(".safetensors")]
    data = bytearray(bucket.get(key).data)
    data[-5] ^= 1
    bucket.put(key, bytes(data))

    with pytest.raises(ChunkMismatch, match=r"step-00000002.*model\.") as caught:
        mc.load(url)

    assert caught.value.file == key.rpartition("/")[2]
    assert [report.ok for report in mc.verify(url)] == [False, True]
    with pytest.warns(mc.CheckpointWarning, match="passed over"):
        assert mc.load(url, fallback=True)["epoch"] == 1
    mc.save(url, state_of(2), step=2, overwrite="damaged")
    assert mc.load(url)["epoch"] == 2


def test_twenty_incremental_saves_with_deletions_between_each_stay_whole(server, tmp_path):
    url, alive = f"s3://bucket/chain/{tmp_path.name}", []
    for step in range(20):
        mc.save(url, state_of(step), step=step, incremental=True)
        alive.append(step)
        if step % 3 == 2:
            mc.delete(url, step=alive.pop(len(alive) // 2))
    mc.collect_garbage(url)

    assert sorted(info.step for info in mc.list_checkpoints(url)) == alive
    assert all(report.ok for report in mc.verify(url))
    for step in alive:
        assert np.array_equal(mc.load(url, step=step)["model"]["w"], np.full(2000, float(step)))
