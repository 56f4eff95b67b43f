"""A million leaves: flat names, one pass, and the same tensors again."""

import time

import pytest
import torch

from model_checkpoint.manifest import Entry
from model_checkpoint.tree import flatten, live_specs, prepare, specs


@pytest.mark.slow
def test_a_million_tensors_are_taken_apart_and_put_together():
    count = 1_000_000
    block = torch.arange(count * 2, dtype=torch.float32)
    state = {f"t{i}": piece for i, piece in enumerate(block.split(2))}
    clock = {}

    def timed(what, run):
        start = time.process_time()
        value = run()
        clock[what] = round(time.process_time() - start, 2)
        return value

    flat = timed("flatten", lambda: flatten(state))
    data = timed("windows", lambda: [bytes(leaf.source.window(0, 8)) for leaf in flat.leaves])
    entries = [
        Entry(leaf.name, leaf.kind, leaf.dtype, leaf.shape, leaf.stored, None, 0, 0, 8, "") for leaf in flat.leaves
    ]
    told = timed("specs", lambda: specs(flat.tree, entries))
    live = timed("live_specs", lambda: live_specs(state))
    restore = timed("prepare", lambda: prepare(flat.tree, entries))
    timed("targets", lambda: [restore.target(i).put(0, memoryview(data[i])) for i in restore.needed])
    back = timed("finish", restore.finish)
    print(clock)

    assert [spec.name for spec in told] == [spec.name for spec in live.specs] == list(state)
    assert torch.equal(torch.cat(list(back.values())), block)
