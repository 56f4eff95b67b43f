"""Between the plans of DCP and its answers the plug makes thousands of objects, and lets the cycle collector rest."""

import torch
from tests.performance.collector import collections
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

import model_checkpoint as mc
from model_checkpoint.integrations.dcp import StorageReader
from model_checkpoint.integrations.dcp.plan_items import held_items

FEW = 3  # dozens of runs, if it is not paused
STATE = {f"w{i}": torch.zeros(2) for i in range(10_000)}


def test_the_collector_rests_while_a_planner_is_asked_for_what_it_holds():
    planner = DefaultSavePlanner()
    planner.set_up_planner(STATE, is_coordinator=True)
    plan, _ = planner.create_global_plan([planner.create_local_plan()])

    with collections() as seen:
        held = held_items(plan[0], plan[0], planner)

    assert (len(held.plain), len(seen) < FEW) == (len(STATE), True), seen


def test_the_collector_rests_while_dcp_is_told_what_a_checkpoint_holds(tmp_path):
    mc.save(tmp_path, STATE, step=1)
    reader = StorageReader(tmp_path)

    with collections() as seen:
        metadata = reader.read_metadata()

    assert (len(metadata.state_dict_metadata), len(seen) < FEW) == (len(STATE), True), seen
