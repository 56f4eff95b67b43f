"""What a recovery of an object store looks at, and what it leaves alone."""

import numpy as np
import pytest
from tests.ground.fault_proxy import FaultProxy

import model_checkpoint as mc
from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.commit import look
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.requests.keys import CLOCK, STAGING
from model_checkpoint.storage.objects.requests.signed_requests import list_uploads, send_signed
from model_checkpoint.testing.blobs import AT_ONCE, load_blobs, save_blobs

pytestmark = pytest.mark.s3


def test_recovery_reads_no_manifest_of_a_folder_that_holds_files_of_one_attempt(moto, root, store):
    for step in range(5):
        mc.save(store, {"w": np.ones(3)}, step=step)
    with FaultProxy(moto.endpoint) as proxy:
        watched = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint), term=0.0)
        proxy.arm()
        watched.sweep(AT_ONCE)
        asked = [line for line in proxy.seen if "manifest.json" in line]

    assert asked == []
    assert all(report.ok for report in mc.verify(store))


@pytest.mark.parametrize(
    ("attempt", "file", "late"),
    [("a1", "x-a1", "x~other"), ("0" * 32, "x-" + "0" * 32, "x-" + "ab" * 16), ("a1", "x", "x~other")],
)
def test_a_file_of_an_attempt_long_gone_is_found_beside_a_checkpoint(store, bucket, attempt, file, late):
    save_blobs(store, "step-1", {file: b"kept"}, attempt=attempt)
    bucket.put(f"checkpoints/step-1/{late}", b"late")

    swept = store.sweep(AT_ONCE)

    assert swept.nbytes == 4
    assert f"checkpoints/step-1/{late}" not in {item.key for item in bucket.list()}
    assert load_blobs(store, "step-1") == {file: b"kept"}


def test_the_mark_of_a_deletion_stays_as_long_as_it_can_be_undone(store, bucket):
    store.stage("step-1", "a1").publish(b"a manifest without files")
    gone = store.discard("step-1")

    store.sweep(Graces(local=0.0, foreign=0.0, trash=3600.0))
    assert look(bucket, "step-1").attempt == gone.token
    store.sweep(AT_ONCE)

    assert bucket.list() == []


def test_an_upload_whose_beginning_the_store_does_not_tell_is_never_old(moto, root, store, bucket):
    save_blobs(store, "step-1", {"x": b"kept"})
    send_signed(bucket, "POST", "checkpoints/step-9/x", query={"uploads": ""})

    with FaultProxy(moto.endpoint, respell=lambda body: body.replace(b"Initiated>", b"Unspoken1>")) as proxy:
        silent = moto.client("bucket", endpoint=proxy.endpoint)
        (told,) = list_uploads(Bucket(Address.parse(root), silent), "checkpoints")
        ObjectStore(root, store=silent, term=0.0).sweep(Graces(local=0.0, foreign=0.001))

    assert told.begun is None
    assert len(list_uploads(bucket, "checkpoints")) == 1
    store.sweep(AT_ONCE)
    assert list_uploads(bucket, "checkpoints") == []


def test_what_another_process_asks_the_stores_time_by_stays_for_as_long_as_it_may_ask(moto, root, store, bucket):
    theirs = f"{STAGING}/{'ab' * 16}{CLOCK}"
    bucket.put(theirs, b"")

    ObjectStore(root, store=moto.client("bucket"), term=600.0).sweep(AT_ONCE)
    young = [item.key for item in bucket.list()]
    store.sweep(AT_ONCE)

    assert young == [theirs]
    assert bucket.list() == []


def test_a_file_beside_a_checkpoint_that_bears_the_mark_of_its_own_attempt_is_no_stray(store, bucket):
    home = "cd" * 16
    save_blobs(store, "step-1", {"x": b"kept"}, attempt=home)
    for stored in (f"note~{home}", f"note~{'ab' * 16}"):
        bucket.put(f"checkpoints/step-1/{stored}", b"by hand")

    store.sweep(AT_ONCE)

    assert [item.key for item in bucket.list() if "note" in item.key] == [f"checkpoints/step-1/note~{home}"]
    assert load_blobs(store, "step-1") == {"x": b"kept"}
