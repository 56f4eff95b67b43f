"""What bodies hand on to the next, and no checkpoint has, is named where a resumed loop begins with something else."""

import random
import time
from collections import deque

import numpy as np
import pytest
import torch
from tests.integrations.around.around_scenes import BATCHES, EPOCHS, ended

PHASE = 0


def in_a_local(scene):
    phase = 0
    for batch in scene.run():
        phase = phase + 1
        scene.step(batch, phase)
    return scene


def in_a_global(scene):
    global PHASE
    PHASE = 0
    for batch in scene.run():
        scene.step(batch, PHASE)
        PHASE += 1
    return scene


def in_a_closure(scene):
    phase = 0

    def scale():
        nonlocal phase
        phase += 1
        return phase

    for batch in scene.run():
        scene.step(batch, scale())
    return scene


def in_an_attribute(scene):
    scene.phase = 0
    for batch in scene.run():
        scene.phase += 1
        scene.step(batch, scene.phase)
    return scene


def in_a_dictionary(scene):
    state = {"phase": 0}
    for batch in scene.run():
        state["phase"] += 1
        scene.step(batch, state["phase"])
    return scene


def in_a_queue(scene):
    last = deque([1.0], maxlen=2)
    for batch in scene.run():
        scene.step(batch, sum(last))
        last.append(scene.made.step)
    return scene


def in_a_tensor(scene):
    hidden = torch.ones(3)
    for batch in scene.run():
        hidden = hidden * 0.9
        scene.step(batch, hidden.mean())
    return scene


def in_an_array(scene):
    hidden = np.ones(3)
    for batch in scene.run():
        hidden *= 0.9
        scene.step(batch, hidden.mean())
    return scene


def in_a_function(scene):
    global PHASE
    PHASE = 0
    for batch in scene.run():
        scene.step(batch, next_phase())
    return scene


def next_phase():
    global PHASE
    PHASE += 1
    return PHASE


def in_a_scheduler(scene):
    schedule = torch.optim.lr_scheduler.StepLR(scene.optimizer, 2)
    for batch in scene.run():
        scene.step(batch)
        schedule.step()
    return scene


def in_another_model(scene):
    head = torch.nn.Linear(1, 1)
    other = torch.optim.SGD(head.parameters(), lr=0.1)
    for batch in scene.run():
        head(torch.ones(1)).backward()
        other.step()
        scene.step(batch, head(torch.ones(1)).detach())
    return scene


NAMED = {
    in_a_local: "`phase` was 3 when it was saved, is 0",
    in_a_global: "`PHASE` was 3 when it was saved, is 0",
    in_a_closure: "`scale: phase` was 3 when it was saved, is 0",
    in_a_function: "`next_phase: PHASE` was 3 when it was saved, is 0",
    in_an_attribute: "`scene.phase` was 3 when it was saved, is 0",
    in_a_dictionary: "`state` is not what it was when it was saved",
    in_a_queue: "`last` is not what it was when it was saved",
    in_a_tensor: "`hidden` is not what it was when it was saved",
    in_an_array: "`hidden` is not what it was when it was saved",
    in_a_scheduler: "`schedule` changed while the run went on, and the run was not given it",
    in_another_model: "`head` changed while the run went on, and the run was not given it",
}


@pytest.mark.parametrize("train", NAMED)
def test_what_bodies_hand_on_is_named(tmp_path, train):
    whole, again = ended(train, tmp_path)

    assert again.weights != whole.weights
    assert NAMED[train] in " ".join(again.made.exact)
    assert whole.made.exact is True


def follows_from_the_step(scene):
    run = scene.run()
    phase = run.step
    for batch in run:
        phase += 1
        scene.step(batch, phase)
    return scene


def is_given_to_the_run(scene):
    state, hidden = {"phase": 0, "noise": [1.0]}, np.ones(3)
    schedule = torch.optim.lr_scheduler.StepLR(scene.optimizer, 2)
    for batch in scene.run(state=state, hidden=hidden, others=[schedule]):
        state["phase"] += 1
        hidden += 1
        scene.step(batch, state["phase"] + hidden.sum())
        schedule.step()
    return scene


def is_only_written(scene):
    losses, history, seen, last = [], {"loss": []}, {}, None
    for batch in scene.run():
        last = batch[0].sum()
        scene.step(batch)
        losses.append(float(last))
        history["loss"].append(float(last))
        seen[scene.made.step] = last
    return scene


def is_a_clock(scene):
    began, then = time.time(), time.perf_counter()
    for batch in scene.run():
        scene.step(batch)
        random.random() if time.time() - began > 1e9 or time.perf_counter() - then > 1e9 else None
        began, then = time.time(), time.perf_counter()
    return scene


def is_a_file_that_grows(scene):
    folder = scene.root.parent
    lines = folder / "lines.txt"
    name = str(lines)
    for batch in scene.run():
        scene.step(batch)
        with open(name, "a") as file:
            file.write(f"{lines.name} {scene.made.step}")
    return scene


def is_made_anew(scene):
    total = -1
    for batches in scene.run().epochs():
        total = 0
        for batch in batches:
            scene.step(batch)
        total += scene.made.step
    return scene


def is_a_part_of_the_model(scene):
    first, weight, teacher = scene.model[0], scene.model[0].weight, torch.nn.Linear(3, 4)
    with torch.no_grad():
        teacher.weight.fill_(0.5)
    stop = None if scene.end is None else 5
    for batch in scene.run():
        scene.step(batch, weight.numel() + first.bias.numel() + teacher(batch[0]).shape[0])
        if scene.made.step == stop:
            break
    return scene


@pytest.mark.parametrize(
    "train",
    [
        follows_from_the_step,
        is_given_to_the_run,
        is_only_written,
        is_a_clock,
        is_a_file_that_grows,
        is_made_anew,
        is_a_part_of_the_model,
    ],
)
def test_what_comes_back_or_does_not_count_is_no_reason(tmp_path, train):
    whole, again = ended(train, tmp_path)

    assert whole.made.step == EPOCHS * BATCHES
    assert again.weights == whole.weights
    assert again.made.exact is True
