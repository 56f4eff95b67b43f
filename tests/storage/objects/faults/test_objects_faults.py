"""One request goes wrong: nothing acknowledged is lost, nothing half-made is seen, nothing is left after recovery."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pytest
from tests.ground.fault_proxy import FaultProxy, Spoil

import model_checkpoint as mc
from model_checkpoint.engine.root import recover
from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import decode
from model_checkpoint.options import MIB, Graces
from model_checkpoint.storage import ObjectStore
from model_checkpoint.storage.objects.commit import find
from model_checkpoint.storage.objects.requests.bucket import Address, Bucket
from model_checkpoint.storage.objects.requests.signed_requests import list_uploads, send_signed
from model_checkpoint.testing.blobs import AT_ONCE

pytestmark = [pytest.mark.s3, pytest.mark.slow, pytest.mark.fault, pytest.mark.timeout(900)]

MOST_REQUESTS = 200
KEEP_TRASH = Graces(local=0.0, foreign=0.0, trash=3600.0)
QUICK = {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=20), "base": 2}


def state(seed, size):
    noise = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    return {"w": noise, "frozen": np.arange(500), "seed": seed}


OLD, NEW, OTHER = state(1, 1000), state(2, 9 * MIB), state(3, 1000)  # the new one takes an upload in two parts


class Scene:
    """A root seen directly, and through a proxy that spoils one request."""

    def __init__(self, seaweed, proxy, folder, *, retries, seconds):
        self.url = f"s3://bucket/{folder}"
        self.direct = ObjectStore(self.url, store=seaweed.client("bucket"), term=0.0)
        spoiled = seaweed.client(
            "bucket",
            endpoint=proxy.endpoint,
            retry_config={"max_retries": retries, "backoff": QUICK, "retry_timeout": timedelta(seconds=20)},
            client_options={"timeout": timedelta(seconds=seconds)},
        )
        self.store = ObjectStore(self.url, store=spoiled, term=0.0)
        self.bucket = Bucket(Address.parse(self.url), seaweed.client("bucket"))

    def check_what_is_seen(self):
        """Whatever can be seen is whole; return it by step."""
        found = {info.step: mc.load(self.direct, step=info.step) for info in mc.list_checkpoints(self.direct)}
        for one in found.values():
            assert np.array_equal(one["w"], {1: OLD, 2: NEW, 3: OTHER}[one["seed"]]["w"])
            assert np.array_equal(one["frozen"], OLD["frozen"])
        return {step: one["seed"] for step, one in found.items()}

    def check_nothing_is_left(self):
        """After recovery only what manifests list is there."""
        assert list(self.direct.sweep(AT_ONCE).alive) == []
        needed = set()
        for name in self.direct.names():
            place = find(self.bucket, name)
            needed |= {f"checkpoints/{name}/{file}" for file in (*place.listed(), "manifest.json")}
        there = {item.key for item in self.bucket.list() if item.size or not item.key.endswith("/manifest.json")}
        assert there == needed
        assert list_uploads(self.bucket, "checkpoints") == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What came of an act with one request spoiled."""

    scene: Scene
    answer: object
    done: bool
    struck: bool
    seen: list


@pytest.fixture(scope="module")
def proxy(seaweed):
    with FaultProxy(seaweed.endpoint) as proxy:
        yield proxy


@pytest.fixture
def each_request(seaweed, proxy, tmp_path, monkeypatch):
    """Call ``prepare``, then ``act`` with the k-th request spoiled, then ``check``, for every k there is."""

    def strike(spoil, index, *, folder, prepare, act, retries, seconds):
        """Act on a fresh root with one request spoiled; return the scene, what came of it, and what was asked."""
        monkeypatch.setattr("model_checkpoint.storage.objects.requests.signed_requests._TIMEOUT", seconds)
        scene = Scene(seaweed, proxy, folder, retries=retries, seconds=seconds)
        prepare(scene.direct)
        recover._done.clear()  # the first save of a process recovers what others left, and that may go wrong too
        proxy.arm(spoil, index)
        try:
            answer, done = act(scene.store), True
        except CheckpointException as error:
            answer, done = error, False
        struck, seen = proxy.struck, proxy.seen
        proxy.arm()
        return Struck(scene=scene, answer=answer, done=done, struck=struck, seen=seen)

    def run(spoil, prepare, act, check, *, retries=0):
        outcomes = {"done": 0, "refused": 0}
        patience = [1, 20, 60] if spoil is Spoil.HANG else [20, 60]
        call = {"prepare": prepare, "act": act, "retries": retries}
        for index in range(MOST_REQUESTS):
            for seconds in patience:  # a request nobody spoiled can outlast its deadline on a busy machine
                folder = f"{tmp_path.name}/{retries}-{index}-{seconds}"
                one = strike(spoil, index, folder=folder, seconds=seconds, **call)
                if one.struck or one.done:
                    break
            if not one.struck:
                assert one.done, one.answer
                assert index > 2, "hardly any request went through the proxy"
                return outcomes
            try:
                check(one.scene, one.answer, one.done)
                one.scene.check_nothing_is_left()
            except BaseException as error:
                error.add_note(f"{spoil} at request {index}, {one.seen[index : index + 1]}: {one.answer!r}")
                raise
            outcomes["done" if one.done else "refused"] += 1
        raise AssertionError("there is no end to the requests")

    return run


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("spoil", Spoil)
def test_a_save_is_whole_or_refused_whatever_request_goes_wrong(each_request, spoil, retries):
    def check(scene, answer, done):
        seen = scene.check_what_is_seen()
        assert seen[1] == 1
        assert seen.get(2) == 2 if done else seen.get(2, 2) == 2

    outcomes = each_request(
        spoil,
        prepare=lambda store: mc.save(store, OLD, step=1),
        act=lambda store: mc.save(store, NEW, step=2),
        check=check,
        retries=retries,
    )

    assert sum(outcomes.values()) >= 14  # with those of the recovery


@pytest.mark.parametrize("spoil", Spoil)
def test_a_background_incremental_compressed_save_is_whole_or_refused_too(each_request, spoil):
    """Its unchanged file is copied by the server."""

    def save(store, state, step):
        level = mc.CompressionLevel.FAST
        return mc.save_async(store, state, step=step, incremental=True, compression=level).result()

    def prepare(store):
        save(store, OTHER, 0)
        save(store, OLD, 1)

    def check(scene, answer, done):
        seen = scene.check_what_is_seen()
        assert {0: 3, 1: 1}.items() <= seen.items()
        assert seen.get(2) == 2 if done else seen.get(2, 2) == 2
        built_on.update(decode(scene.direct.read_manifest("step-00000002"), "").parents if done else ())

    built_on = set()
    outcomes = each_request(spoil, prepare=prepare, act=lambda store: save(store, NEW, 2), check=check)

    assert sum(outcomes.values()) >= 16
    assert 5 < len(built_on) <= outcomes["done"]  # where the parent cannot be read, all is written again


@pytest.mark.parametrize("spoil", Spoil)
def test_a_load_is_right_or_refused_whatever_request_goes_wrong(each_request, spoil):
    def check(scene, answer, done):
        assert not done or np.array_equal(answer["w"], NEW["w"])
        assert scene.check_what_is_seen() == {2: 2}

    each_request(
        spoil,
        prepare=lambda store: mc.save(store, NEW, step=2),
        act=lambda store: mc.load(store, step=2),
        check=check,
    )


@pytest.mark.parametrize("spoil", Spoil)
def test_a_replacement_is_old_or_new_whatever_request_goes_wrong(each_request, spoil):
    def check(scene, answer, done):
        seen = scene.check_what_is_seen()
        assert seen == {1: 2} if done else seen in ({1: 1}, {1: 2})

    each_request(
        spoil,
        prepare=lambda store: mc.save(store, OLD, step=1),
        act=lambda store: mc.save(store, NEW, step=1, overwrite=True),
        check=check,
    )


def nothing_lost(*, then):
    """A check: once it is done, ``then`` is seen; before, step 2 is seen or can be brought back."""

    def check(scene, answer, done):
        scene.direct.sweep(KEEP_TRASH)
        seen = scene.check_what_is_seen()
        assert seen == then if done else seen in ({}, {2: 2})
        assert len(scene.direct.trash()) == (not seen)
        if not seen:
            mc.undelete(scene.direct, step=2)
            assert scene.check_what_is_seen() == {2: 2}

    return check


@pytest.mark.parametrize("spoil", Spoil)
def test_a_deletion_loses_nothing_whatever_request_goes_wrong(each_request, spoil):
    each_request(
        spoil,
        prepare=lambda store: mc.save(store, NEW, step=2),
        act=lambda store: store.discard("step-00000002"),
        check=nothing_lost(then={}),
    )


@pytest.mark.parametrize("spoil", Spoil)
def test_bringing_back_loses_nothing_whatever_request_goes_wrong(each_request, spoil):
    def prepare(store):
        mc.save(store, NEW, step=2)
        mc.delete(store, step=2)

    each_request(
        spoil,
        prepare=prepare,
        act=lambda store: store.bring_back(store.trash()[0].token),
        check=nothing_lost(then={2: 2}),
    )


CLAIM = (
    b'{"work":"save","attempt":"%b","name":"step-0000000%d","host":"elsewhere","boot":"b","pid":1,"born":"1",'
    b'"nonce":"n"}'
)


def leave_remains(bucket):
    """What a machine that died left: of a save of step 3 and of a replacement of step 1."""
    for attempt, step in ((b"e" * 32, 3), (b"f" * 32, 1)):
        folder = f"checkpoints/step-0000000{step}"
        bucket.put(f".staging/{attempt.decode()}.lease", CLAIM % (attempt, step))
        bucket.put(f"{folder}/r0-0-{attempt.decode()}.safetensors", b"half")
        send_signed(bucket, "POST", f"{folder}/r0-1-{attempt.decode()}.safetensors", query={"uploads": ""})


@pytest.mark.parametrize("spoil", Spoil)
def test_a_recovery_takes_only_what_is_dead_whatever_request_goes_wrong(each_request, seaweed, spoil):
    def prepare(store):
        mc.save(store, OLD, step=1)
        mc.save(store, OLD, step=2)
        mc.delete(store, step=2)
        bucket = Bucket(Address.parse(store.url), seaweed.client("bucket"))
        leave_remains(bucket)
        assert len(list_uploads(bucket, "checkpoints")) == 2

    def check(scene, answer, done):
        assert scene.check_what_is_seen() == {1: 1}

    outcomes = each_request(spoil, prepare=prepare, act=lambda store: store.sweep(AT_ONCE), check=check)

    assert sum(outcomes.values()) >= 15
