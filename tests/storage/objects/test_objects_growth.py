"""The number of requests of a save or load does not depend on how many checkpoints there are."""

import msgspec
import pytest
from tests.ground.fault_proxy import FaultProxy

import model_checkpoint as mc
from model_checkpoint.manifest import decode, encode
from model_checkpoint.plan import step_name
from model_checkpoint.storage import ObjectStore

STATE = {"w": list(range(6)), "epoch": 1}


def grow(store, count):
    """Copies of the first checkpoint's manifest, each with a step of its own."""
    mc.save(store, STATE, step=0)
    manifest = decode(store.read_manifest(step_name(0)), "here")
    for step in range(1, count):
        changed = msgspec.structs.replace(manifest, step=step, name=step_name(step), id=f"{step:032x}")
        store.stage(step_name(step), f"{step:032x}").publish(encode(changed))


@pytest.mark.parametrize(
    "action",
    [
        lambda store, again: mc.save(store, STATE, step=10**6 + again),
        lambda store, again: mc.save(store, STATE, step=10**6 + again, incremental=True),
        lambda store, again: mc.load(store),
        lambda store, again: mc.load(store, step=4),
        lambda store, again: mc.load(store, name=step_name(5)),
    ],
    ids=["save", "incremental", "newest", "step", "name"],
)
def test_requests_do_not_grow_with_the_number_of_checkpoints(moto, root, action):
    counts = {}
    with FaultProxy(moto.endpoint) as proxy:
        for count in (10, 40):
            store = ObjectStore(f"{root}-{count}", store=moto.client("bucket", endpoint=proxy.endpoint))
            grow(store, count)
            action(store, 0)  # the first of a process sweeps the root and proves the bucket
            proxy.arm()
            action(store, 1)
            counts[count] = [line.split(" ")[0] for line in proxy.seen]

    assert counts[10] == counts[40]


def test_a_step_is_found_without_listing_the_bucket(moto, root):
    grow(ObjectStore(root, store=moto.client("bucket")), 3)
    with FaultProxy(moto.endpoint) as proxy:
        store = ObjectStore(root, store=moto.client("bucket", endpoint=proxy.endpoint))
        proxy.arm()

        assert mc.load(store, step=1)["epoch"] == 1

        assert f"{step_name(1)}/manifest.json" in proxy.seen[0]
        assert not any("list-type" in line for line in proxy.seen)
