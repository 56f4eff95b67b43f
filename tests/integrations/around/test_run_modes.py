"""How modules were switched while a run went on comes back with the weights, or is named."""

import pytest
import torch
from tests.integrations.around.around_scenes import Scene, ended

import model_checkpoint as mc


def left_in_eval(scene):
    for batches in scene.run().epochs():
        for batch in batches:
            scene.step(batch)
            if scene.made.step == 1:
                scene.model.eval()
    return scene


def a_frozen_norm(scene):
    for batch in scene.run():
        scene.step(batch)
        if scene.made.step == 1:
            scene.model[1].eval()
    return scene


def thawed(scene):
    scene.model[0].requires_grad_(False)
    for batch in scene.run():
        if scene.made.step == 2:
            scene.model[0].requires_grad_(True)
        scene.step(batch)
    return scene


def frozen(scene):
    scene.options["nested"] = {"models": [scene.options.pop("model")]}
    for batch in scene.run():
        scene.step(batch)
        if scene.made.step == 1:
            scene.model[2].bias.requires_grad_(False)
    return scene


def dropped_more(scene):
    scene.model.append(torch.nn.Dropout(0.0))
    for batch in scene.run():
        scene.step(batch)
        if scene.made.step == 1:
            scene.model[3].p = 0.75
    return scene


@pytest.mark.parametrize("train", [left_in_eval, a_frozen_norm, thawed, frozen, dropped_more])
def test_modules_are_switched_as_they_were(tmp_path, train):
    whole, again = ended(train, tmp_path)

    assert again.weights == whole.weights
    assert again.made.exact is True


def test_a_loop_that_goes_on_in_the_same_program_switches_its_modules_back(tmp_path):
    scene = Scene(tmp_path)
    run = scene.run()
    for _ in run:
        if run.step == 2:
            scene.model[1].eval()
            break
    scene.model.eval()  # what is looked at in between
    for _ in run:
        assert [one.training for one in scene.model] == [True, False, True]


class Cooling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heat = 1.0

    def forward(self, values):
        self.heat *= 0.9
        return values * self.heat


def test_what_a_module_counts_by_itself_is_named(tmp_path):
    def train(scene):
        scene.model.append(Cooling())
        for batch in scene.run():
            scene.step(batch)
        return scene

    _, again = ended(train, tmp_path)

    assert "`Cooling.heat` was 0.7" in " ".join(again.made.exact)


def test_modules_that_the_program_switched_otherwise_stay_so_which_is_named(tmp_path):
    def train(scene, *, first):
        scene.model[first].requires_grad_(False)
        for batch in scene.run():
            scene.step(batch)
            if scene.made.step == 1:
                scene.model.eval()
        return scene

    with pytest.raises(KeyError, match="a bug"):
        train(Scene(tmp_path, end=5), first=0)
    mc.finish_saves(tmp_path)
    again = train(Scene(tmp_path), first=1)

    assert "modules of the run are not as it began with" in " ".join(again.made.exact)
    assert [one.weight.requires_grad for one in again.model] == [True, False, True]
