"""Many ranks write one checkpoint to a bucket; one object decides what becomes of it, whoever is stopped meanwhile."""

import numpy as np
import pytest
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.errors import RootNotShared, StepExists, StorageFailure
from model_checkpoint.options import Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.testing.blobs import blob_manifest, save_blobs

pytestmark = pytest.mark.s3

WEIGHTS = np.arange(3 << 20, dtype=np.uint8)
NAME, ATTEMPT = "step-1", "0123456789abcdef0123456789abcdef"
MANIFEST = blob_manifest(NAME, ATTEMPT, {})


def save_all(store, world, **options):
    state = options.pop("state", lambda rank: {"w": WEIGHTS, "own": rank})
    return all_well(on_ranks(world, lambda c: mc.save(store, state(c.rank), coordinator=c, **options)))


@pytest.mark.parametrize("layout", list(mc.CheckpointFormat))
def test_ranks_save_to_a_bucket_and_any_number_loads_it(seaweed, root, layout):
    store = ObjectStore(root, store=seaweed.client("bucket"))

    infos = save_all(store, 3, step=1, format=layout)

    assert {info.id for info in infos} == {infos[0].id}
    loaded = all_well(on_ranks(3, lambda c: mc.load(store, coordinator=c)))
    assert [one["own"] for one in loaded] == [0, 1, 2]
    assert np.array_equal(mc.load(store, per_rank=1)["w"], WEIGHTS)
    assert mc.verify(store)[0].ok
    assert store._bucket.list(".staging") == []


def test_ranks_replace_delete_and_save_again_under_one_name(store):
    save_all(store, 2, step=1)
    save_all(store, 3, step=1, overwrite=True, state=lambda rank: {"w": WEIGHTS + 1})
    assert np.array_equal(mc.load(store)["w"], WEIGHTS + 1)
    outcomes = on_ranks(2, lambda c: mc.save(store, {"w": 1}, step=1, coordinator=c))
    assert [type(one) for one in outcomes] == [StepExists] * 2
    mc.delete(store, step=1)

    save_all(store, 2, step=1, state=lambda rank: {"w": WEIGHTS + 2})

    assert np.array_equal(mc.load(store)["w"], WEIGHTS + 2)
    assert mc.verify(store)[0].ok


def test_a_rank_that_cannot_write_leaves_nothing_to_be_seen(store):
    save_all(store, 2, step=1)
    outcomes = on_ranks(2, lambda c: mc.save(store, {"w": print if c.rank else 1}, step=2, coordinator=c))

    assert {type(one).__name__ for one in outcomes} == {"UnsupportedType"}
    assert [info.step for info in mc.list_checkpoints(store)] == [1]


def test_incremental_saves_in_the_background_go_to_a_bucket(store):
    def save(coordinator):
        jobs = [
            mc.save_async(store, {"w": WEIGHTS, "at": np.arange(3) + step}, step=step, coordinator=coordinator,
                          incremental=True)
            for step in (1, 2)
        ]  # fmt: skip
        return [job.result().step for job in jobs]

    assert all_well(on_ranks(2, save)) == [[1, 2]] * 2
    assert mc.load(store)["at"].tolist() == [2, 3, 4]
    assert all(health.ok for health in mc.verify(store))


# --- who decides -----------------------------------------------------------------------------------------------------


def test_what_was_given_up_is_never_published(store):
    stage = store.stage_shared(NAME, ATTEMPT)

    assert store.join(NAME, ATTEMPT).stamps() == {}
    assert not store.settle(NAME, ATTEMPT)
    with pytest.raises(StorageFailure, match="other ranks have given this attempt up") as caught:
        stage.publish(MANIFEST)
    assert caught.value.errno == 2
    stage.abort()
    assert not store.has(NAME)
    assert not store.settle(NAME, ATTEMPT)


def test_what_is_published_is_found_by_whoever_loses_patience(store):
    stage = store.stage_shared(NAME, ATTEMPT)
    stage.publish(MANIFEST)

    assert store.settle(NAME, ATTEMPT)
    assert store.read_manifest(NAME) == MANIFEST


@pytest.mark.parametrize("replace", [False, True])
def test_a_decision_that_rank_0_did_not_live_to_carry_out_is_carried_out_by_another(store, replace):
    """Rank 0 was stopped between the two puts; it goes on when the others have reported."""
    if replace:
        save_blobs(store, NAME, {"x": b"old"}, attempt="a" * 32)
    stage = store.stage_shared(NAME, ATTEMPT)
    told = []

    def stopped(*_, **__):
        told.append(store.settle(NAME, ATTEMPT))
        raise RuntimeError("stopped here")

    stage._commit, go_on = stopped, stage._commit
    with pytest.raises(RuntimeError, match="stopped here"):
        stage.publish(MANIFEST, replace=replace)
    assert told == [True]
    assert store.read_manifest(NAME) == MANIFEST

    stage._commit = go_on
    stage.publish(MANIFEST, replace=replace)
    assert store.read_manifest(NAME) == MANIFEST
    assert store.settle(NAME, ATTEMPT)


def test_a_rank_that_sees_another_bucket_is_told(store, moto, root):
    elsewhere = ObjectStore(f"{root}/elsewhere", store=moto.client("bucket"))
    store.stage_shared(NAME, ATTEMPT)

    with pytest.raises(RootNotShared, match="do not write to the same bucket"):
        elsewhere.join(NAME, ATTEMPT)


def test_old_verdicts_are_swept(store):
    store.settle(NAME, ATTEMPT)
    assert [item.key for item in store._bucket.list(".staging")] == [f".staging/{ATTEMPT}.verdict"]

    store.sweep(Graces(local=0.0, foreign=0.0))

    assert store._bucket.list(".staging") == []
