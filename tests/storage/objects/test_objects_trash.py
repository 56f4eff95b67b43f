"""Deletions on an object store: nothing is copied, nothing comes back by halves, and no machine's clock is believed."""

import time
import uuid
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.ground.fault_proxy import FaultProxy, Spoil
from tests.storage.contract.test_store_model import StoreMachine

import model_checkpoint as mc
from model_checkpoint.errors import CheckpointException, CheckpointNotFound, DurabilityUnknown, StepExists
from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.contract.names import TrashToken
from model_checkpoint.storage.objects import trash
from model_checkpoint.storage.objects.folder import Folder, list_folder
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.testing.blobs import AT_ONCE, blob_manifest, load_blobs, save_blobs

pytestmark = pytest.mark.s3

KEEP_TRASH = Graces(local=0.0, foreign=0.0, trash=3600.0)


# --- versions --------------------------------------------------------------------------------------------------------


def test_a_deletion_and_its_undoing_copy_nothing_but_the_manifest(moto, root, store):
    save_blobs(store, "step-1", {"x": b"abc", "y-1": b"def"}, attempt="1")
    copied = []

    def note(key, value):
        copied.extend([value] if key.lower() == "x-amz-copy-source" else [])
        return value

    with FaultProxy(moto.endpoint, rewrite=note) as proxy:
        watched = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint))
        proxy.arm()
        watched.bring_back(watched.discard("step-1").token)
        written = {line.split()[1].rpartition("/")[2] for line in proxy.seen if line.startswith("PUT")}

    assert [source.rpartition("/")[2] for source in copied] == ["manifest.json"]
    assert not any(file.startswith(("x", "y-1")) for file in written)
    assert load_blobs(store, "step-1") == {"x": b"abc", "y-1": b"def"}


def test_every_deleted_version_of_a_name_can_be_brought_back(store):
    versions = [{"x": b"one", "y-1": b"1"}, {"x": b"two", "y-2": b"22"}, {"x": b"three", "y-3": b"333"}]
    tokens = []
    for number, files in enumerate(versions, 1):
        save_blobs(store, "step-1", files, attempt=str(number))
        assert store.files("step-1").keys() == {*files, "manifest.json"}
        tokens.append(store.discard("step-1").token)

    assert [item.token for item in store.trash()] == tokens
    for token, files in zip(tokens, versions, strict=True):
        assert store.bring_back(token) == "step-1"
        assert load_blobs(store, "step-1") == files
        assert store.files("step-1").keys() == {*files, "manifest.json"}
        assert token not in [item.token for item in store.trash()]
        store.discard("step-1")
    assert len(store.trash()) == 3


def test_a_purged_version_takes_no_file_of_another(store, bucket):
    save_blobs(store, "step-1", {"x": b"one", "y-1": b"1"}, attempt="1")
    first = store.discard("step-1").token
    save_blobs(store, "step-1", {"x": b"two", "y-2": b"22"}, attempt="2")
    second = store.discard("step-1").token
    save_blobs(store, "step-1", {"x": b"three", "y-3": b"333"}, attempt="3")
    token = TrashToken.parse(first)
    folder = Folder("step-1", deletions={token: list_folder(bucket, "step-1").deletions[token]})

    gone, nbytes = trash.purge(bucket, {"step-1": folder}, lambda token, deleted: True)

    assert gone == [first]
    assert nbytes == 4 + len(blob_manifest("step-1", "1", {"x": b"one", "y-1": b"1"}))
    assert list_folder(bucket, "step-1").files.keys() == {"x~2", "y-2", "x~3", "y-3"}
    assert load_blobs(store, "step-1") == {"x": b"three", "y-3": b"333"}
    store.discard("step-1")
    store.bring_back(second)
    assert load_blobs(store, "step-1") == {"x": b"two", "y-2": b"22"}


def test_recovery_keeps_the_files_of_what_can_be_brought_back(store, bucket):
    token, files = "0" * 32, {"x": b"abc", "y-" + "0" * 32: b"def"}
    save_blobs(store, "step-1", files, attempt=token)
    gone = store.discard("step-1")
    bucket.put("checkpoints/step-1/x~late", b"late")

    store.sweep(KEEP_TRASH)

    assert "x~late" not in list_folder(bucket, "step-1").files
    store.bring_back(gone.token)
    assert load_blobs(store, "step-1") == files


def test_a_damaged_record_keeps_files_until_the_grace_ends_and_nobody_from_coming_back(store, bucket):
    save_blobs(store, "step-1", {"x": b"abc"})
    gone = store.discard("step-1")
    (key,) = [item.key for item in bucket.list("checkpoints") if "files.json~" in item.key]
    bucket.put(key, bucket.get(key).data.replace(b"x~", b"z~"))

    store.sweep(KEEP_TRASH)
    assert [item.token for item in store.trash()] == [gone.token]
    store.bring_back(gone.token)

    assert load_blobs(store, "step-1") == {"x": b"abc"}
    store.discard("step-1")
    store.sweep(AT_ONCE)
    assert bucket.list() == []


def test_a_version_that_was_replaced_before_its_deletion_was_done_can_be_brought_back(moto, root, store, bucket):
    save_blobs(store, "step-1", {"x": b"one"}, attempt="1")
    once = {"max_retries": 0, "retry_timeout": timedelta(seconds=20)}
    with FaultProxy(moto.endpoint) as proxy:
        spoiled = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint, retry_config=once))
        proxy.script([Spoil.RESET] * 3, lambda line: line.startswith("PUT") and "manifest.json " in line)
        with pytest.raises(DurabilityUnknown, match=r"whether it arrived could not be found out"):
            spoiled.discard("step-1")
    (half,) = list_folder(bucket, "step-1").deletions
    assert store.trash() == []

    save_blobs(store, "step-1", {"x-2": b"two"}, attempt="2", replace=True, obsolete=["x"])
    whole = store.discard("step-1").token

    tokens = [item.token for item in store.trash()]
    assert (tokens[0], tokens[-1], len(tokens)) == (str(half), whole, 3)  # and the one that was replaced
    store.bring_back(str(half))
    assert load_blobs(store, "step-1") == {"x": b"one"}
    store.discard("step-1")
    store.bring_back(whole)
    store.sweep(AT_ONCE)
    assert load_blobs(store, "step-1") == {"x-2": b"two"}
    assert list_folder(bucket, "step-1").deletions == {}


class ObjectMachine(StoreMachine):
    server = None

    def make_store(self):
        return ObjectStore(f"s3://bucket/machine/{uuid.uuid4().hex}", store=self.server.client("bucket"))


@pytest.mark.slow
def test_any_sequence_of_operations_leaves_what_a_dictionary_would(moto):
    ObjectMachine.server = moto

    run_state_machine_as_test(ObjectMachine, settings=settings(max_examples=8, stateful_step_count=25, deadline=None))


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_last_deletion_is_undone_first_whatever_the_clock_said(store, clock):
    for days, value in ((2, 1), (0, 2), (-3, 3)):
        clock(days)
        mc.save(store, {"w": np.full(3, value)}, step=1)
        mc.delete(store, step=1)

    mc.undelete(store)

    assert mc.load(store)["w"].tolist() == [3, 3, 3]


def test_of_two_names_the_one_deleted_last_is_undone_first(store):
    for step in (2, 1):
        mc.save(store, {"step": step}, step=step)
    for step in (2, 1):
        mc.delete(store, step=step)

    assert mc.undelete(store).step == 1


@pytest.mark.parametrize("days", [3, 400, -400])
def test_a_machine_whose_clock_is_wrong_purges_no_fresh_deletion(store, clock, days):
    mc.save(store, {"w": np.ones(3)}, step=1)
    mc.delete(store, step=1)
    clock(days)

    assert list(mc.collect_garbage(store).trashed) == []
    mc.undelete(store)
    assert mc.load(store)["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("days", [30, -30])
def test_a_deletion_by_a_machine_whose_clock_is_wrong_has_the_store_s_time_and_goes_in_its_time(store, clock, days):
    mc.save(store, {"w": np.ones(3)}, step=1)
    clock(days)
    mc.delete(store, step=1)
    clock(0)

    (gone,) = store.trash()

    assert abs(gone.deleted - time.time()) < 3600
    assert list(store.sweep(AT_ONCE).trashed) == [gone.token]


# --- at the same time ------------------------------------------------------------------------------------------------


@pytest.fixture
def at_each_request(moto, tmp_path):
    """Run ``act`` on a prepared store once for each request of it, with ``meanwhile`` just before that request."""

    def run(prepare, act, meanwhile, check):
        with FaultProxy(moto.endpoint) as proxy:
            for index in range(100):
                url = f"s3://bucket/meanwhile/{tmp_path.name}/{index}"
                direct = ObjectStore(url, store=moto.client("bucket"), term=0.0)
                watched = ObjectStore(url, store=moto.client("bucket", endpoint=proxy.endpoint), term=0.0)
                watched.stage("another", "w").abort()  # the first to write looks at whether the store can be trusted
                prepared = prepare(direct)
                told = []
                proxy.arm(lambda d=direct, p=prepared, t=told: t.append(_outcome(meanwhile, d, p)), index)
                done = _outcome(act, watched, prepared)
                if not told:
                    assert index > 4
                    return
                check(direct, done, told[0])
        raise AssertionError("there is no end to the requests")

    return run


def _outcome(act, store, prepared):
    try:
        return act(store, prepared)
    except CheckpointException as error:
        return error


FILES = {"x": b"abc", "y-" + "a" * 32: b"def"}


def save_and_discard(store):
    save_blobs(store, "step-1", FILES, attempt="a" * 32)
    return store.discard("step-1").token


def is_whole_or_gone(store, *, back):
    """What was brought back is whole, also after recovery; what was not is gone, and leaves nothing."""
    store.sweep(AT_ONCE)
    if back:
        assert load_blobs(store, "step-1") == FILES
    else:
        assert store.names() == []
        assert not store.exists()


def bring_back(store, token):
    return store.bring_back(token)


def purge(store, token):
    return store.sweep(AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize(("act", "meanwhile"), [(bring_back, purge), (purge, bring_back)])
def test_a_purge_and_bringing_back_in_the_middle_of_each_other_leave_all_or_nothing(at_each_request, act, meanwhile):
    def check(store, *told):
        back = told[(act, meanwhile).index(bring_back)]
        assert back == "step-1" or isinstance(back, CheckpointNotFound)
        is_whole_or_gone(store, back=back == "step-1")

    at_each_request(save_and_discard, act, meanwhile, check)


@pytest.mark.slow
def test_two_who_bring_back_one_deletion_take_nothing_from_each_other(at_each_request):
    def check(store, one, other):
        assert "step-1" in (one, other)
        assert all(isinstance(answer, (str, CheckpointNotFound, StepExists)) for answer in (one, other))
        is_whole_or_gone(store, back=True)

    at_each_request(save_and_discard, bring_back, bring_back, check)


@pytest.mark.slow
def test_recovery_in_the_middle_of_a_deletion_takes_nothing(at_each_request):
    def check(store, gone, swept):
        assert store.bring_back(gone.token) == "step-1"
        is_whole_or_gone(store, back=True)

    at_each_request(
        lambda store: save_blobs(store, "step-1", FILES, attempt="a" * 32),
        lambda store, _: store.discard("step-1"),
        lambda store, _: store.sweep(KEEP_TRASH),
        check,
    )


@pytest.mark.slow
def test_a_deletion_or_its_undoing_in_the_middle_of_a_recovery_loses_nothing(at_each_request, moto):
    def prepare(store):
        save_blobs(store, "step-1", FILES, attempt="a" * 32)
        bucket = Bucket(Address.parse(store.url), moto.client("bucket"))
        bucket.put("checkpoints/step-1/x~late", b"late")

    def turn(store, _):
        token = store.discard("step-1").token
        store.bring_back(token)
        return store.discard("step-1").token

    def check(store, swept, token):
        assert store.bring_back(token) == "step-1"
        is_whole_or_gone(store, back=True)

    at_each_request(prepare, lambda store, _: store.sweep(KEEP_TRASH), turn, check)


@pytest.mark.slow
def test_a_replacement_in_the_middle_of_a_deletion_is_deleted_in_its_place(at_each_request):
    new = {"z-" + "b" * 32: b"new"}

    def replace(store, _):
        save_blobs(store, "step-1", new, attempt="b" * 32, replace=True, obsolete=[*FILES])

    def check(store, gone, _):
        assert store.sweep(KEEP_TRASH).alive == []
        if "step-1" not in store.names():
            store.bring_back(gone.token)
        assert load_blobs(store, "step-1") == new

    at_each_request(
        lambda store: save_blobs(store, "step-1", FILES, attempt="a" * 32),
        lambda store, _: store.discard("step-1"),
        replace,
        check,
    )


# --- what an earlier version deleted ---------------------------------------------------------------------------------


@pytest.fixture
def copied(store, bucket):
    """A deletion as it was made once: every file copied to the trash, none left in place."""
    token = "step-1~1700000000000000000~00000000000000ff"
    save_blobs(store, "step-1", FILES, attempt="a" * 32)
    for item in bucket.list("checkpoints/step-1"):
        bucket.copy(item.key, f".trash/{token}/{item.key.rpartition('/')[2]}")
        bucket.delete(item.key)
    bucket.put("checkpoints/step-1/manifest.json", b"")
    return token


def test_a_deletion_that_copied_its_files_can_be_brought_back(store, bucket, copied):
    save_blobs(store, "step-1", {"x": b"new"}, attempt="b" * 32)
    later = store.discard("step-1").token
    store.sweep(KEEP_TRASH)

    assert [item.token for item in store.trash()] == [copied, later]
    assert store.read_trashed(copied) == blob_manifest("step-1", "a" * 32, FILES)
    assert store.bring_back(copied) == "step-1"
    assert load_blobs(store, "step-1") == FILES
    assert [item.token for item in store.trash()] == [later]
    assert bucket.list(".trash") == []


def test_a_deletion_that_copied_its_files_goes_after_its_grace(store, copied):
    (listed,) = store.trash()

    swept = store.sweep(AT_ONCE)

    assert list(swept.trashed) == [copied]
    assert swept.nbytes == listed.nbytes
    assert not store.exists()
