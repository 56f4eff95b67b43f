"""Which calls of a store publish, and are not made once the time is over, and which may be made again."""

import os
import time

import pytest
from obstore.store import MemoryStore
from tests.distributed.api.own_parts import OwnHandler, OwnStorage

from model_checkpoint.distributed import CallTimeout
from model_checkpoint.distributed.calling.call_limit import CallLimit
from model_checkpoint.distributed.retrying.retried_calls import REPEATED, RetriedCalls, RetriedRequests, retried
from model_checkpoint.distributed.storing.keyed_store import KeyedStore
from model_checkpoint.distributed.storing.limited_calls import LimitedCalls, LimitedRequests, limited
from model_checkpoint.storage import ObjectStore, open_store
from model_checkpoint.storage.local.syscalls import CALL_NAMES, Syscalls
from model_checkpoint.storage.objects.requests.bucket import BucketRequest


class Noting(Syscalls):
    """Notes each call; fails the first of each name, if it shall."""

    def __init__(self, *, fails=False):
        super().__init__()
        self.fails, self.made = fails, []


def _noted(name):
    def call(self, *arguments, **options):
        self.made.append((name, arguments, options))
        if self.fails and [one for one, _, _ in self.made].count(name) == 1:
            raise ConnectionError("a moment")
        return f"{name} made"

    return call


for _name in CALL_NAMES:
    setattr(Noting, _name, _noted(_name))


def limit_of(*, over):
    limit = CallLimit("the save", seconds=60)
    if over:
        limit.end = time.monotonic() - 1
    return limit


RENAMES = [
    ("/r/.staging/a", "/r/checkpoints/a", None, True),
    ("/r/.staging/a", "/r/.trash/a", None, False),
    ("/r/checkpoints/a", "/r/checkpoints/b", None, False),
    ("/r/checkpoints/a", "/r/.trash/a", None, False),
    ("draft", "manifest.json", 5, True),
    ("draft", "manifest.json", None, False),
    ("draft", "other", 5, False),
]


@pytest.mark.parametrize(("source", "target", "into", "publishes"), RENAMES)
def test_a_rename_that_publishes_is_made_in_time_or_not_at_all(source, target, into, publishes):
    late, early = Noting(), Noting()
    rename = ("rename", (source, target), {"out_of": 4, "into": into})

    limit = limit_of(over=False)
    LimitedCalls(early, limit).rename(source, target, out_of=4, into=into)
    assert early.made == [rename]
    assert limit._passed is publishes
    if publishes:
        with pytest.raises(CallTimeout, match="the save took longer than 60 s"):
            LimitedCalls(late, limit_of(over=True)).rename(source, target, out_of=4, into=into)
    else:
        LimitedCalls(late, limit_of(over=True)).rename(source, target, out_of=4, into=into)
    assert late.made == ([] if publishes else [rename])


def test_an_exchange_is_made_in_time_or_not_at_all():
    late, early = Noting(), Noting()

    LimitedCalls(early, limit_of(over=False)).exchange("a", "b")
    with pytest.raises(CallTimeout, match="the save took longer than 60 s"):
        LimitedCalls(late, limit_of(over=True)).exchange("a", "b")

    assert (early.made, late.made) == ([("exchange", ("a", "b"), {})], [])


MANIFEST, VERDICT = "checkpoints/a/manifest.json", ".staging/a.verdict"
REQUESTS = [
    (BucketRequest(MANIFEST, decides=True, nbytes=1), True, True),
    (BucketRequest(MANIFEST, decides=True, nbytes=9), False, False),
    (BucketRequest(MANIFEST, decides=True, nbytes=0), True, False),
    (BucketRequest(MANIFEST, nbytes=9), True, False),
    (BucketRequest("elsewhere/a/manifest.json", decides=True, nbytes=9), True, False),
    (BucketRequest("checkpoints/a/other.json", decides=True, nbytes=9), True, False),
    (BucketRequest(VERDICT, decides=True, nbytes=9), True, True),
    (BucketRequest(VERDICT, decides=True, nbytes=9), False, True),
    (BucketRequest(VERDICT, decides=True, nbytes=0), False, False),
    (BucketRequest(VERDICT, nbytes=9), False, False),
]


@pytest.mark.parametrize(("request_", "alone", "publishes"), REQUESTS)
def test_a_request_that_publishes_is_made_in_time_or_not_at_all(request_, alone, publishes):
    made = []

    def through(request, call):
        made.append((request, limit._inside, limit.is_unsure))
        return call()

    limit = limit_of(over=False)
    assert LimitedRequests(through, limit, alone=alone)(request_, lambda: 3) == 3
    assert made == [(request_, int(publishes), publishes and request_.key == MANIFEST)]

    made.clear()
    limit = limit_of(over=True)
    if publishes:
        with pytest.raises(CallTimeout, match="the save took longer than 60 s"):
            LimitedRequests(through, limit, alone=alone)(request_, lambda: 3)
        assert made == []
    else:
        assert LimitedRequests(through, limit, alone=alone)(request_, lambda: 3) == 3


def bucket():
    return ObjectStore("s3://bucket/a", store=MemoryStore())


class Stranger:
    """A store of nobody knows whom."""

    url = "elsewhere"


@pytest.mark.parametrize("kind", ["folder", "bucket", "storage", "stranger"])
def test_every_store_of_ours_is_gated_and_another_is_left_as_it_is(tmp_path, kind):
    store = {
        "folder": lambda: open_store(tmp_path),
        "bucket": lambda: bucket(),
        "storage": lambda: KeyedStore(OwnStorage()),
        "stranger": Stranger,
    }[kind]()
    limit, handler = limit_of(over=True), OwnHandler()

    gated, again = limited(store, limit), retried(store, handler)

    assert (gated.url, again.url) == (store.url, store.url)
    assert limit.gated is (kind != "stranger")
    if kind == "stranger":
        assert gated is again is store
        return
    assert type(gated) is type(again) is type(store)
    with pytest.raises(CallTimeout, match="the save took longer than 60 s"):
        gated.stage("first", "attempt-1").publish(b"manifest")
    assert store.names() == []
    again.stage("second", "attempt-2").publish(b"manifest")
    assert store.names() == ["second"]


@pytest.mark.parametrize("alone", [True, False])
def test_the_manifest_of_many_ranks_is_put_when_their_verdict_was(alone):
    store = bucket()
    attempt = limited(store, limit_of(over=True), alone=alone).stage("first", "attempt-1")

    if alone:
        with pytest.raises(CallTimeout, match="the save took longer than 60 s"):
            attempt.publish(b"manifest")
    else:
        attempt.publish(b"manifest")
    assert store.names() == ([] if alone else ["first"])


@pytest.mark.parametrize("name", sorted({*CALL_NAMES} - {"open"}))
def test_only_calls_that_may_be_made_twice_are_made_again(name):
    inner, handler = Noting(fails=True), OwnHandler()
    calls = RetriedCalls(inner, handler)

    if name in REPEATED:
        assert getattr(calls, name)("a") == f"{name} made"
    else:
        with pytest.raises(ConnectionError, match="a moment"):
            getattr(calls, name)("a")

    assert [one for one, _, _ in inner.made] == [name] * (2 if name in REPEATED else 1)


@pytest.mark.parametrize(("flags", "times"), [(os.O_RDONLY, 2), (os.O_RDWR | os.O_CREAT, 1)])
def test_a_new_file_is_opened_once_and_any_other_again(flags, times):
    inner = Noting(fails=True)
    calls = RetriedCalls(inner, OwnHandler())

    if times == 1:
        with pytest.raises(ConnectionError, match="a moment"):
            calls.open("a", flags, folder=4)
    assert calls.open("a", flags, folder=4) == "open made"

    assert inner.made == [("open", ("a", flags), {"folder": 4})] * 2


@pytest.mark.parametrize(
    ("request_", "times"),
    [
        (BucketRequest("a"), 2),
        (BucketRequest("a", nbytes=9), 2),
        (BucketRequest("a", decides=True), 1),
        (BucketRequest("a", streams=True), 1),
    ],
)
def test_a_request_with_a_condition_or_a_stream_is_made_once(request_, times):
    made = []

    def through(request, call):
        made.append(request)
        return call()

    def call():
        if len(made) == 1:
            raise ConnectionError("a moment")
        return 3

    requests = RetriedRequests(through, OwnHandler())
    if times == 1:
        with pytest.raises(ConnectionError, match="a moment"):
            requests(request_, call)
    assert requests(request_, call) == 3
    assert made == [request_] * 2
