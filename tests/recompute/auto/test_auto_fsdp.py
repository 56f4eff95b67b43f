"""FSDP2: a model planned with torch's own regions is sharded afterwards and trains as without the plan."""

import pytest
from tests.recompute.auto.rank_processes import run_two

RANK = """
import copy, gc, sys, weakref
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from model_checkpoint.recompute import ModelRefused, auto_checkpoint, is_recomputing
from tests.recompute.auto.auto_models import transformer

rank, store = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
model = transformer(16, 5)
x = torch.randn(4, 6, 16, generator=torch.Generator().manual_seed(rank))


def sharded(model):
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    losses = []
    for _ in range(4):
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses + [p.full_tensor() for p in model.parameters()]


plain, native = sharded(copy.deepcopy(model)), copy.deepcopy(model)
auto_checkpoint(model, 0.5, x, executor="torch")
assert "recomputed" in model.plan.fates()
whole = [weakref.ref(parameter) for parameter in model.parameters()]
model = sharded(model)
gc.collect()
assert not any(reference() is not None for reference in whole)  # the plan holds no unsharded parameter
seen = []
again = model.plan.fates().index("recomputed")
model[again].norm1.register_forward_hook(lambda *_: seen.append(is_recomputing()))
for a, b in zip(trained(model), trained(plain), strict=True):
    assert torch.equal(a, b)
assert seen == [False, True] * 4, seen
assert model.plan.statistics.layers()[str(again)].recomputes == 4

auto_checkpoint(native, 0.5, x)
assert "recomputed" in native.plan.fates()
native = sharded(native)
try:
    native(x)
except ModelRefused as error:
    assert "sharded by fully_shard after auto_checkpoint" in str(error) and "executor='torch'" in str(error), error
else:
    raise AssertionError("own regions ran on sharded modules")
dist.barrier()
dist.destroy_process_group()
print("done")
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_a_planned_model_sharded_by_fsdp_trains_as_without_the_plan(tmp_path):
    """Bit for bit over four steps on two processes; the native executor is refused by name at the call."""
    run_two(RANK, tmp_path, timeout=400)
