"""Several processes: one verdict for all, whichever rank sees the trouble."""

import math
import os

import pytest
import torch
import torch.multiprocessing as mp
from precision_models import build, loss_of, options, wrap

from model_checkpoint.precision import StepReason

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def run_rank(rank, folder, case):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model = build()
    in_fp32 = case in ("local", "fp32 gradients")
    chosen = options(max_consecutive_overflows=3, recovery_steps=4, accumulate_in_fp32=in_fp32)
    optimizer = wrap(model, chosen=chosen)
    trained = torch.nn.parallel.DistributedDataParallel(model) if case != "local" else model
    results = []
    for step in range(12):
        optimizer.zero_grad()
        loss = loss_of(trained, 2 * step + rank)
        if case == "overflow" and rank == 1 and step in (2, 3):
            loss = loss * 1e7
        if case == "bad loss" and rank == 1 and step == 2:
            loss = loss * math.nan
        optimizer.backward(loss)
        if case == "local" and rank == 1 and step in (2, 3, 4):
            model.mix.weight.grad[0, 0] = math.nan
        results.append(optimizer.step().reason)
    masters = {name: weight.clone() for name, weight in optimizer.master_weights.items()}
    torch.save({"reasons": [r.value for r in results], "masters": masters, "scale": optimizer.loss_scale,
                "fallback": optimizer.has_fallback, "modes": optimizer.session.fallback.to_tree()},
               f"{folder}/rank{rank}.pt")  # fmt: skip
    torch.distributed.barrier()  # a rank that leaves first would take the other's connection with it
    torch.distributed.destroy_process_group()
    os._exit(0)  # gloo's threads may outlive the interpreter and abort it


def both_ranks(folder, case):
    mp.start_processes(run_rank, args=(str(folder), case), nprocs=2, start_method="spawn")
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("case", ["none", "overflow", "bad loss"])
def test_ddp_ranks_skip_together_and_stay_equal(tmp_path, case):
    first, second = both_ranks(tmp_path, case)

    assert first["reasons"] == second["reasons"]
    assert first["scale"] == second["scale"]
    assert all(torch.equal(weight, second["masters"][name]) for name, weight in first["masters"].items())
    skipped = [reason for reason in first["reasons"] if reason != "applied"]
    assert skipped == {"none": [], "overflow": ["overflow"] * 2, "bad loss": ["bad_loss"]}[case]


def test_a_rank_that_alone_sees_nan_makes_the_other_skip_and_fall_back_too(tmp_path):
    first, second = both_ranks(tmp_path, "local")

    assert first["reasons"][2:5] == [StepReason.OTHER_RANK.value] * 3
    assert second["reasons"][2:5] == [StepReason.OVERFLOW.value] * 3
    assert first["modes"] == second["modes"]
    assert first["scale"] == second["scale"]


def test_fp32_gradients_under_ddp_are_refused_with_the_cure(tmp_path):
    with pytest.raises(mp.ProcessRaisedException, match=r"StepRefused: backward: .*accumulate_in_fp32=False"):
        both_ranks(tmp_path, "fp32 gradients")
