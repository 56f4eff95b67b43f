"""Agreement: processes of one job take the first one's word; one alone takes its own."""

import multiprocessing

import pytest
import torch.distributed as dist

from model_checkpoint.recompute.auto.common.agreement import agree_with_first


def say(rank, world, folder, answers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    answers.put((rank, agree_with_first(f"plan of rank {rank}")))
    dist.barrier()


@pytest.mark.parametrize("world", [1, 2])
def test_all_ranks_take_the_plan_of_the_first(tmp_path, world):
    """Forked, for processes that import torch anew take seconds to begin."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    ranks = [context.Process(target=say, args=(rank, world, tmp_path, answers)) for rank in range(world)]
    for one in ranks:
        one.start()
    heard = dict(answers.get(timeout=60) for _ in ranks)
    for one in ranks:
        one.join()

    assert heard == dict.fromkeys(range(world), "plan of rank 0")


def test_without_a_group_everyone_takes_its_own():
    assert agree_with_first([3]) == [3]
