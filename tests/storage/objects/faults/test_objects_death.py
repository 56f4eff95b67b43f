"""What dead and forked processes leave in an object store, and how long the living keep what is theirs."""

import os
import socket
import subprocess
import sys
import time

import pytest

from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.requests.signed_requests import list_uploads
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs

pytestmark = pytest.mark.s3

FULL_LIFE = Graces()
DYING = """
import os, sys
from model_checkpoint.storage import open_store
from model_checkpoint.testing.blobs import seal_blob
stage = open_store(sys.argv[1]).stage("step-1", "deadbeef" * 4)
seal_blob(stage, "small-" + "deadbeef" * 4, b"small")
large = stage.create("large-" + "deadbeef" * 4, 64 << 20)
large.write(0, memoryview(bytes(20 << 20)))
import time
time.sleep(1.5)
os._exit(9)
"""


def run_and_die(server, root):
    env = {**os.environ, **server.environment()}
    done = subprocess.run([sys.executable, "-c", DYING, root], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("server", ["moto", "seaweed"])
def test_recovery_ends_the_upload_and_removes_the_files_of_a_dead_process(request, server, root):
    at = request.getfixturevalue(server)
    bucket = Bucket(Address.parse(root), at.client("bucket"))
    store = ObjectStore(root, store=at.client("bucket"))
    save_blobs(store, "step-0", {"x": b"kept"})
    run_and_die(at, root)
    assert len(list_uploads(bucket, "checkpoints")) == 1

    early = store.sweep(Graces())
    late = store.sweep(Graces(local=0.0))

    assert list(early.alive) == ["deadbeef" * 4]
    assert list(late.attempts) == ["deadbeef" * 4]
    assert late.nbytes == 5
    assert list_uploads(bucket, "checkpoints") == []
    assert {item.key.split("/")[1] for item in bucket.list()} == {"step-0"}
    assert load_blobs(store, "step-0") == {"x": b"kept"}


def test_a_lease_of_another_machine_counts_until_its_term_whatever_the_graces(moto, root):
    bucket = Bucket(Address.parse(root), moto.client("bucket"))
    store = ObjectStore(root, store=moto.client("bucket"))
    impatient = ObjectStore(root, store=moto.client("bucket"), term=0.0)
    claim = (
        b'{"work":"save","attempt":"far","name":"step-1","host":"elsewhere","boot":"b","pid":1,"born":"1","nonce":"n"}'
    )
    bucket.put(".staging/far.lease", claim)
    bucket.put("checkpoints/step-1/x-far", b"abc")

    assert list(store.sweep(AT_ONCE).alive) == ["far"]
    assert list(impatient.sweep(FULL_LIFE).alive) == ["far"]
    assert list(impatient.sweep(AT_ONCE).attempts) == ["far"]
    assert bucket.list() == []


def test_a_put_that_arrives_after_its_attempt_was_buried_is_removed_in_time(moto, root):
    bucket = Bucket(Address.parse(root), moto.client("bucket"))
    store = ObjectStore(root, store=moto.client("bucket"))
    save_blobs(store, "step-1", {"x": b"kept"})
    late = ["checkpoints/step-1/r0-" + "ab" * 16 + ".bin", "checkpoints/step-2/anything", "checkpoints/step-1/x~other"]
    for key in [*late, "checkpoints/step-1/notes.txt"]:
        bucket.put(key, b"late")

    store.sweep(AT_ONCE)
    assert {item.key for item in bucket.list()} >= set(late)
    ObjectStore(root, store=moto.client("bucket"), term=0.0).sweep(AT_ONCE)

    assert not {item.key for item in bucket.list()} & set(late)
    assert store.files("step-1").keys() == {"x", "notes.txt", "manifest.json"}
    assert load_blobs(store, "step-1") == {"x": b"kept"}


def test_the_mark_of_a_deletion_goes_in_time_and_blocks_nobody(moto, root):
    bucket = Bucket(Address.parse(root), moto.client("bucket"))
    store = ObjectStore(root, store=moto.client("bucket"), term=0.0)
    save_blobs(store, "step-1", {"x": b"one"})
    store.discard("step-1")

    save_blobs(store, "step-1", {"x": b"two"})
    assert load_blobs(store, "step-1") == {"x": b"two"}
    store.discard("step-1")
    store.sweep(Graces(foreign=0.0))
    assert len(store.trash()) == 2
    store.sweep(AT_ONCE)

    assert bucket.list() == []


def test_a_lease_is_refreshed_while_its_owner_lives(moto, root, monkeypatch):
    monkeypatch.setattr("model_checkpoint.storage.objects.leases.BEAT_SECONDS", 0.2)
    bucket = Bucket(Address.parse(root), moto.client("bucket"))
    stage = ObjectStore(root, store=moto.client("bucket")).stage("step-1", "a1")
    (first,) = bucket.list(".staging")

    deadline = time.monotonic() + 20
    while bucket.list(".staging")[0].modified == first.modified and time.monotonic() < deadline:
        time.sleep(0.2)

    assert bucket.list(".staging")[0].modified > first.modified
    stage.abort()
    assert bucket.list(".staging") == []


@pytest.mark.slow
def test_a_server_does_not_outlive_whoever_started_it(tmp_path):
    start = "import os, sys; from pathlib import Path; from tests.ground import object_servers as o\n"
    start += "with o.seaweedfs(Path(sys.argv[1])) as s: print(s.endpoint, flush=True); os._exit(0)"

    told = subprocess.run([sys.executable, "-c", start, str(tmp_path)], capture_output=True, text=True, check=True)

    port, deadline = int(told.stdout.rpartition(":")[2]), time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return
        time.sleep(0.2)
    raise AssertionError("it still answers")


FORKING = """
import os, signal, sys
from model_checkpoint.errors import StorageFailure
from model_checkpoint.storage import open_store
store = open_store(sys.argv[1])
store.names()
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        store.names()
    except StorageFailure as error:
        os._exit(7 if "cannot be used after" in str(error) else 8)
    os._exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_is_told_instead_of_waiting_for_ever(moto, root):
    env = {**os.environ, **moto.environment()}

    done = subprocess.run([sys.executable, "-c", FORKING, root], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 7, done.stderr
