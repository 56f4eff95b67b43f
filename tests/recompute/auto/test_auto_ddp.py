"""Several processes: DDP around a planned model, one plan for all ranks, collectives never prefetched."""

import pytest
from tests.recompute.auto.rank_processes import run_two

RANK = """
import sys, copy, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.planning.schedule import describe_schedule

rank, world, store = int(sys.argv[1]), 2, sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world)
torch.manual_seed(0)


class Averaging(nn.Module):
    # a layer with a collective in its forward
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
    def forward(self, x):
        total = x.detach().mean()
        dist.all_reduce(total)
        return self.linear(x).tanh() + total


model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(6)], Averaging(),
                      nn.Linear(16, 16))
plain = DDP(copy.deepcopy(model))
x = torch.randn(8 + 4 * rank, 16, generator=torch.Generator().manual_seed(rank))
auto_checkpoint(model, 1.0, x, prefetch=True)
auto_checkpoint(model, model.plan.floor_bytes, profile=model.plan.profile, prefetch=True)
plan = model.plan
mine = [describe_schedule(plan.schedule), plan.budget_bytes]
everyone = [None] * world
dist.all_gather_object(everyone, mine)
assert everyone[0] == everyone[1], everyone
assert "recomputed" in plan.fates()
assert [s.collective for s in plan.stages].count(True) == 1
ours = DDP(model)
for _ in range(3):
    for m in (plain, ours):
        m.zero_grad()
        m(x).pow(2).mean().backward()
    for a, b in zip(plain.parameters(), ours.parameters()):
        assert torch.equal(a.grad, b.grad)
record = plan.statistics.layers().get("6")
assert record is None or record.prefetch_hits == 0
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from model_checkpoint.recompute.auto.common.errors import ModelRefused
mesh = init_device_mesh("cpu", (world,))


def refused(build, words):
    try:
        auto_checkpoint(build(), 0.5, x)
    except ModelRefused as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


def with_dtensor():
    layer = nn.Linear(16, 16)
    layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Replicate()]))
    return nn.Sequential(layer)


refused(lambda: fully_shard(nn.Sequential(nn.Linear(16, 16)), mesh=mesh), "FSDP")
refused(with_dtensor, "DTensor")
refused(lambda: DDP(nn.Linear(16, 16)), "already wrapped in DDP")
dist.barrier()
dist.destroy_process_group()
print("done")
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_ddp_of_a_planned_model_equals_ddp_and_all_ranks_share_one_plan(tmp_path):
    run_two(RANK, tmp_path, timeout=200)
