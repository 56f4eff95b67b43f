"""What an object store must refuse, keep in order and never show."""

import itertools
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from tests.ground import object_servers
from tests.ground.fault_proxy import FaultProxy

import model_checkpoint as mc
from model_checkpoint.errors import CheckpointException, PermissionRefused, StepExists, StorageFailure
from model_checkpoint.options import MIB
from model_checkpoint.storage import ObjectStore, open_store
from model_checkpoint.storage.contract.store import read_manifests
from model_checkpoint.storage.objects.commit import ManifestPut, commit, look
from model_checkpoint.storage.objects.requests.bucket import Address, BadURL, Bucket
from model_checkpoint.storage.objects.requests.failures import PackageMissing, PreconditionsIgnored
from model_checkpoint.storage.objects.requests.parallel import READS_AT_ONCE
from model_checkpoint.storage.objects.requests.signed_requests import list_uploads
from model_checkpoint.storage.objects.writer import WINDOW_BYTES
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs, stage_blobs

pytestmark = pytest.mark.s3


# --- conditions ------------------------------------------------------------------------------------------------------


def strip_conditions(key, value):
    return None if key.lower() in ("if-none-match", "if-match") else value


def test_a_store_that_ignores_conditions_is_refused(moto, root):
    with FaultProxy(moto.endpoint, rewrite=strip_conditions) as careless:
        store = ObjectStore(root, store=moto.client("bucket", endpoint=careless.endpoint))

        with pytest.raises(
            PreconditionsIgnored, match=r"wrote over an object.*one could be lost.*honours If-None-Match"
        ):
            mc.save(store, {"a": 1}, step=1)

    assert not ObjectStore(root, store=moto.client("bucket")).exists()


@pytest.mark.slow
def test_rclone_which_ignores_conditions_is_refused(tmp_path, root):
    try:
        server = object_servers.rclone(tmp_path / "rclone")
        with server as at:
            at.make_bucket("bucket")
            store = ObjectStore(root, store=at.client("bucket"))
            with pytest.raises(PreconditionsIgnored, match=r"rules/.*: this store wrote over an object"):
                mc.save(store, {"a": 1}, step=1)
            assert store.names() == []
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


def test_conditions_are_tried_once_for_each_connection(moto, root):
    with FaultProxy(moto.endpoint) as proxy:
        store = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint))
        mc.save(store, {"a": 1}, step=1)
        first = len(proxy.seen)
        proxy.arm()

        mc.save(store, {"a": 1}, step=2)

        assert len(proxy.seen) <= first - 2


# --- races -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("server", ["moto", "seaweed"])
def test_of_32_writers_exactly_one_wins_a_step(request, server, root):
    at = request.getfixturevalue(server)
    stores = [ObjectStore(root, store=at.client("bucket")) for _ in range(32)]

    def save(number):
        try:
            mc.save(stores[number], {"who": number, "w": np.full(5000, number)}, step=1)
        except StepExists:
            return False
        return True

    with ThreadPoolExecutor(32) as pool:
        won = list(pool.map(save, range(32)))

    assert won.count(True) == 1
    back = mc.load(stores[0])
    assert back["who"] == won.index(True)
    assert set(back["w"].tolist()) == {won.index(True)}
    assert list(stores[0].sweep(AT_ONCE).alive) == []
    assert len(stores[0].files("step-00000001")) == 2


def test_a_version_the_replacer_did_not_know_of_leaves_no_files(moto, root):
    store = ObjectStore(root, store=moto.client("bucket"))
    save_blobs(store, "step-1", {"x-1": b"one"}, attempt="1")
    stage = stage_blobs(store, "step-1", {"x-3": b"new"}, attempt="3")
    save_blobs(store, "step-1", {"x-2": b"two"}, attempt="2", replace=True, obsolete=["x-1"])

    stage.publish(blob_manifest("step-1", "3", {"x-3": b"new"}), replace=True, obsolete=["x-1"])

    assert store.files("step-1").keys() == {"x-3", "manifest.json"}
    assert load_blobs(store, "step-1") == {"x-3": b"new"}


def test_files_of_an_attempt_at_work_are_no_files_of_the_checkpoint(moto, root):
    store = ObjectStore(root, store=moto.client("bucket"))
    save_blobs(store, "step-1", {"x-1": b"one"}, attempt="1")
    stage = stage_blobs(store, "step-1", {"x-2": b"new"}, attempt="2")

    assert store.files("step-1").keys() == {"x-1", "manifest.json"}

    stage.abort()


def test_a_deletion_that_was_overtaken_by_a_replacement_does_not_take_it(moto, root):
    store = ObjectStore(root, store=moto.client("bucket"))
    bucket = Bucket(Address.parse(root), moto.client("bucket"))
    save_blobs(store, "step-1", {"x-1": b"one"}, attempt="1")
    old = look(bucket, "step-1")
    save_blobs(store, "step-1", {"x-2": b"two"}, attempt="2", replace=True, obsolete=["x-1"])

    with pytest.raises(StorageFailure, match=r"changed by somebody else meanwhile"):
        commit(bucket, "step-1", ManifestPut(data=b"", attempt="deletion", home=""), over=old)

    assert load_blobs(store, "step-1") == {"x-2": b"two"}


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_slabs_in_the_worst_order_take_no_more_memory_than_the_window_and_a_slab(seaweed, root):
    store = ObjectStore(root, store=seaweed.client("bucket"))
    slab, count = 8 * MIB, 14
    assert slab * count > WINDOW_BYTES
    parts = [bytes([number]) * slab for number in range(count)]
    stage = store.stage("step-1", "a1")
    writer = stage.create("x-a1", slab * count)

    held = 0
    for number in reversed(range(count)):
        writer.write(number * slab, memoryview(parts[number]))
        held = max(held, writer.bytes_held)
    writer.seal()
    stage.publish(blob_manifest("step-1", "a1", {"x-a1": b"".join(parts)}))

    assert held <= WINDOW_BYTES + slab
    assert load_blobs(store, "step-1") == {"x-a1": b"".join(parts)}


def test_a_slab_written_twice_is_refused(moto, root):
    stage = ObjectStore(root, store=moto.client("bucket")).stage("step-1", "a1")
    writer = stage.create("x-a1", 9 * MIB)
    writer.write(MIB, memoryview(bytes(MIB)))

    with pytest.raises(StorageFailure, match=r"byte 1048576 was written before"):
        writer.write(MIB, memoryview(bytes(MIB)))

    stage.abort()


def test_an_aborted_upload_leaves_nothing(moto, root):
    store = ObjectStore(root, store=moto.client("bucket"), term=0.0)
    bucket = Bucket(Address.parse(root), moto.client("bucket"))
    stage = store.stage("step-1", "a1")
    writer = stage.create("x-a1", 20 * MIB)
    writer.write(0, memoryview(bytes(10 * MIB)))

    stage.abort()
    store.sweep(AT_ONCE)

    assert list_uploads(bucket, "checkpoints") == []
    assert bucket.list() == []


# --- reading ---------------------------------------------------------------------------------------------------------


def test_reads_in_a_row_fetch_ahead_and_scattered_ones_only_their_range(moto, root):
    data = np.random.default_rng(0).integers(0, 256, 100 * MIB, dtype=np.uint8).tobytes()
    moto_store = ObjectStore(root, store=moto.client("bucket"))
    save_blobs(moto_store, "step-1", {"x": data})
    with FaultProxy(moto.endpoint) as proxy:
        reader = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint)).open("step-1", "x")
        proxy.arm()
        for start in (90 * MIB, 10 * MIB + 1, 50 * MIB, 0):
            assert take(reader, start, MIB) == data[start : start + MIB]
        scattered = len(proxy.seen)
        proxy.arm()

        whole = b"".join(take(reader, start, MIB) for start in range(0, 100 * MIB, MIB))
        reader.close()

        assert whole == data
        assert scattered == 4
        assert len(proxy.seen) <= 17


def test_many_threads_read_in_any_order_what_was_written(moto, root):
    data = np.random.default_rng(1).integers(0, 256, 70 * MIB + 5, dtype=np.uint8).tobytes()
    store = ObjectStore(root, store=moto.client("bucket"))
    save_blobs(store, "step-1", {"x": data})
    reader = store.open("step-1", "x")
    starts = [*range(0, len(data), 3 * MIB), *random.Random(0).sample(range(len(data) - MIB), 20)]

    with ThreadPoolExecutor(4) as pool:
        sizes = [min(3 * MIB, len(data) - start) for start in starts]
        read = list(pool.map(take, [reader] * len(starts), starts, sizes))
    reader.close()

    assert all(got == data[start : start + size] for got, start, size in zip(read, starts, sizes, strict=True))


def take(reader, start, size):
    buffer = bytearray(size)
    reader.read_into(start, memoryview(buffer))
    return bytes(buffer)


def test_manifests_are_read_many_at_a_time_and_only_as_far_as_asked(moto, root):
    direct = ObjectStore(root, store=moto.client("bucket"))
    for number in range(80):
        direct.stage(f"step-{number}", f"a{number}").publish(b"head" + bytes(100_000))
    with FaultProxy(moto.endpoint) as proxy:
        store = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint))
        proxy.arm()

        read = list(read_manifests(store, store.names(), limit=4))

        assert [data for _, data in read] == [b"head"] * 80
        assert len(proxy.seen) <= 82
        assert 8 <= proxy.busiest <= READS_AT_ONCE


def test_whoever_wants_no_more_manifests_waits_for_no_more(moto, root):
    direct = ObjectStore(root, store=moto.client("bucket"))
    for number in range(3):
        direct.stage(f"step-{number}", f"a{number}").publish(b"m")
    with FaultProxy(moto.endpoint) as proxy:
        store = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint))
        proxy.arm()

        first = next(store.read_manifests(itertools.cycle(["step-0", "step-1", "step-2"])))

        assert first == ("step-0", b"m")
        assert len(proxy.seen) <= 2 * READS_AT_ONCE


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_secret_is_ever_shown(seaweed, root, caplog):
    stranger = replace(seaweed, secret="HUSH-wrong-secret-HUSH")
    store = ObjectStore(root, store=stranger.client("bucket", session_token="HUSH-session-token-HUSH"))

    for ask in (store.names, store.exists, lambda: store.stage("a", "b"), lambda: store.sweep(AT_ONCE)):
        with pytest.raises(PermissionRefused, match=r"the store refuses it.*Check the credentials") as caught:
            ask()
        told = repr(caught.value) + str(caught.value) + repr(pickle.loads(pickle.dumps(caught.value)).__dict__)
        assert "HUSH" not in told + caplog.text
        assert caught.value.__suppress_context__


def test_a_missing_bucket_is_told_apart_from_an_empty_one(moto, tmp_path):
    store = ObjectStore("s3://no-such-bucket/x", store=moto.client("no-such-bucket"))

    assert not store.exists()
    with pytest.raises(StorageFailure, match=r"there is no such object or bucket"):
        mc.save(store, {"a": 1}, step=1)


def test_plain_http_needs_to_be_allowed(moto, monkeypatch, root):
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP")

    with pytest.raises(StorageFailure, match=r"the endpoint is not https.*AWS_ALLOW_HTTP=true"):
        mc.save(root, {"a": 1}, step=1)


@pytest.mark.parametrize(
    "url", ["s3://", "s3://user:hunter2@bucket/x", "s3://bucket/a?sig=hunter2", "az://b/a//c", "gs://b/../c"]
)
def test_a_url_that_is_no_bucket_and_prefix_is_refused_without_repeating_it(url):
    with pytest.raises(BadURL, match=r"not a URL of an object store.*never in the URL") as caught:
        open_store(url)

    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, CheckpointException)


def test_without_obstore_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(PackageMissing, match=r"pip install model-checkpoint\[objects\]"):
        open_store("gs://bucket/never-opened-before")


@pytest.mark.parametrize("url", ["gs://bucket/runs/a", "az://container/runs/a", "s3://bucket"])
def test_each_cloud_has_its_scheme(url, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")

    assert isinstance(open_store(url + "/"), ObjectStore)
    assert open_store(url + "/").url == url


def test_obstore_is_imported_only_for_an_object_store():
    probe = "import sys, model_checkpoint.storage; sys.exit('obstore' in sys.modules or 'http.client' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_nothing_is_brought_back_in_a_store_that_ignores_conditions(moto, root):
    sound = ObjectStore(root, store=moto.client("bucket"))
    save_blobs(sound, "step-1", {"x": b"kept"})
    gone = sound.discard("step-1")

    with FaultProxy(moto.endpoint, rewrite=strip_conditions) as careless:
        store = ObjectStore(root, store=moto.client("bucket", endpoint=careless.endpoint))
        with pytest.raises(PreconditionsIgnored, match="wrote over an object"):
            store.bring_back(gone.token)

    assert sound.names() == []
    assert sound.bring_back(gone.token) == "step-1"
    assert load_blobs(sound, "step-1") == {"x": b"kept"}
