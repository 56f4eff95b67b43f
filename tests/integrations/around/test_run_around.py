"""Generators that only the loop's surroundings know come back with the rest, or are named."""

import itertools
import random
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from tests.integrations.around.around_scenes import Scene, ended
from tqdm import tqdm

import model_checkpoint as mc

GLOBAL: dict = {}
rng: np.random.Generator


def local(scene):
    noise = np.random.default_rng(3)
    for batch in scene.run():
        scene.step(batch, noise.random())
    return scene


def of_torch(scene):
    noise = torch.Generator().manual_seed(3)
    for batch in scene.run():
        scene.step(batch, torch.rand(1, generator=noise))
    return scene


def of_python(scene):
    noise, old = random.Random(3), np.random.RandomState(4)
    for batches in scene.run().epochs():
        for batch in batches:
            scene.step(batch, noise.random() + old.rand())
        noise.gauss(0, 1)
    return scene


def shake(value):
    return value * rng.random()


def of_the_module(scene):
    global rng
    rng = np.random.default_rng(3)
    for batch in scene.run():
        scene.step(batch, shake(1.0))
    return scene


def in_a_closure(scene):
    noise = random.Random(3)

    def scale():
        return noise.random()

    for batch in scene.run():
        scene.step(batch, scale())
    return scene


def in_a_partial(scene):
    scale = partial(np.random.default_rng(3).uniform, 0.5)
    for batch in scene.run():
        scene.step(batch, scale())
    return scene


def of_a_trainer(scene):
    class Trainer:
        def __init__(self):
            self.noise, self.run = [np.random.default_rng(3)], scene.run()

        def go(self):
            for batch in self.run:
                self.body(batch)

        def body(self, batch):
            scene.step(batch, self.noise[0].random())

    Trainer().go()
    return scene


class Dropping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = torch.Generator().manual_seed(3)

    def forward(self, values):
        return values * torch.rand(values.shape, generator=self.noise)


def of_a_module_of_the_model(scene):
    scene.model.append(Dropping())
    for batch in scene.run():
        scene.step(batch)
    return scene


def behind_a_generator_function(scene):
    noise = np.random.default_rng(3)

    def moved(batches):
        for batch in batches:
            yield [one.clone() for one in batch]

    for batch in moved(scene.run()):
        scene.step(batch, noise.random())
    return scene


def in_a_comprehension(scene):
    noise = np.random.default_rng(3)
    [scene.step(batch, noise.random()) for batch in scene.run()]
    return scene


def counted_by_enumerate(scene):
    noise = np.random.default_rng(3)
    for _, batch in enumerate(scene.run()):
        scene.step(batch, noise.random())
    return scene


def shared_with_the_loader(scene):
    noise = torch.Generator().manual_seed(3)
    scene.data = torch.utils.data.DataLoader(scene.data.dataset, 3, shuffle=True, generator=noise)
    for batch in scene.run():
        scene.step(batch, torch.rand(1, generator=noise))
    return scene


def that_spawn_others(scene):
    noise = np.random.default_rng(3)
    for batch in scene.run():
        scene.step(batch, noise.spawn(1)[0].random())
    return scene


def behind_a_bar(scene):
    noise = np.random.default_rng(3)
    for batch in (bar := tqdm(scene.run(), disable=True)):
        scene.step(batch, noise.random())
        bar.set_postfix(step=scene.made.step)
    return scene


def asked_for_by_next(scene):
    noise, batches = np.random.default_rng(3), iter(scene.run())
    while (batch := next(batches, None)) is not None:
        scene.step(batch, noise.random())
    return scene


BROUGHT_BACK = [
    that_spawn_others,
    behind_a_bar,
    asked_for_by_next,
    local,
    of_torch,
    of_python,
    of_the_module,
    in_a_closure,
    in_a_partial,
    of_a_trainer,
    of_a_module_of_the_model,
    behind_a_generator_function,
    in_a_comprehension,
    counted_by_enumerate,
    shared_with_the_loader,
]


@pytest.mark.parametrize("train", BROUGHT_BACK)
def test_generators_around_the_loop_come_back(tmp_path, train):
    whole, again = ended(train, tmp_path)

    assert again.weights == whole.weights
    assert again.made.exact is True


def of_an_iterator(scene):
    scales = itertools.cycle([0.5, 1.0, 1.5, 2.0, 2.5])
    for batch in scene.run():
        scene.step(batch, next(scales))
    return scene


def of_another_loader(scene):
    other = iter(torch.utils.data.DataLoader(torch.arange(1.0, 9.0)))
    for batch in scene.run():
        scene.step(batch, next(other))
    return scene


def made_in_the_loop(scene):
    noise = None
    for batch in scene.run():
        noise = noise or np.random.default_rng(3)
        scene.step(batch, noise.random())
    return scene


def by_the_system(scene):
    noise = random.SystemRandom()
    for batch in scene.run():
        scene.step(batch, noise.random())
    return scene


NAMED = {
    of_an_iterator: "`scales`, which the loop uses, holds an iterator",
    of_another_loader: "`other`, which the loop uses, holds an iterator",
    made_in_the_loop: "`noise`",
    by_the_system: "`noise`, which the loop uses, draws from a random.SystemRandom",
}


@pytest.mark.parametrize("train", NAMED)
def test_what_stands_around_the_loop_and_cannot_come_back_is_named(tmp_path, train):
    _, again = ended(train, tmp_path)

    assert NAMED[train] in " ".join(again.made.exact)


def test_a_generator_that_every_body_makes_anew_is_no_reason(tmp_path):
    def train(scene):
        for batch in scene.run():
            noise = torch.Generator().manual_seed(scene.made.step)
            scene.step(batch, torch.rand(1, generator=noise))
        return scene

    whole, again = ended(train, tmp_path)
    assert (again.weights, again.made.exact) == (whole.weights, True)


def test_generators_that_are_others_now_are_named(tmp_path):
    def train(scene, *, noise):
        for batch in scene.run():
            scene.step(batch, noise.random())
        return scene

    with pytest.raises(KeyError, match="a bug"):
        train(Scene(tmp_path, end=5), noise=np.random.default_rng(3))
    mc.finish_saves(tmp_path)
    again = train(Scene(tmp_path), noise=random.Random(3))

    assert "`noise` was saved with the generators Generator(PCG64), now it has Random" in " ".join(again.made.exact)


def test_another_loop_over_the_same_run_knows_them_by_other_names(tmp_path):
    scene, noise = Scene(tmp_path), np.random.default_rng(3)
    run, drawn = scene.run(), []

    def again(other):
        for _ in run:
            drawn.append(other.random())

    for _ in run:
        drawn.append(noise.random())
        if run.step == 4:
            break
    again(noise)

    assert drawn == list(np.random.default_rng(3).random(8))
    assert run.exact == ("the loop was left in the body of step 5, which counts as done",)


def test_an_evaluation_whose_workers_live_on_is_no_iterator_of_the_loop(tmp_path):
    draws = torch.Generator().manual_seed(3)
    options = {"num_workers": 1, "persistent_workers": True, "generator": draws}
    check, scene = torch.utils.data.DataLoader(torch.ones(4), **options), Scene(tmp_path)
    list(check)

    for batch in scene.run():
        scene.step(batch, len(list(check)))
    assert scene.made.exact is True


def test_nothing_that_a_body_made_is_kept_alive(tmp_path):
    scene, made = Scene(tmp_path, every=1), []
    for batch in scene.run():
        assert not [one for one in made[:-1] if one() is not None]
        values = torch.ones(3)
        made.append(weakref.ref(values))
        scene.step(batch, values.sum())
        del values
        assert made[-1]() is None


class Shy:
    """An object of the program that lets nobody look at it."""

    def __init__(self, name):
        object.__setattr__(self, "name", name)

    def __getattribute__(self, name):
        if name == "__dict__":
            raise RuntimeError("not yours")
        return object.__getattribute__(self, name)


def test_what_lets_nobody_look_at_it_ends_no_training_and_is_named(tmp_path):
    def train(scene):
        shy = Shy("a")
        for batch in scene.run():
            scene.step(batch, len(shy.name))
        return scene

    whole, resumed = ended(train, tmp_path)

    assert resumed.weights == whole.weights
    for scene in (whole, resumed):
        assert any("lets nobody look at it (RuntimeError: not yours)" in one for one in scene.made.exact), (
            scene.made.exact
        )


def test_what_refuses_only_once_the_loop_goes_on_is_named_in_the_save_that_meets_it(tmp_path):
    def train(scene):
        shy = None
        for batch in scene.run():
            scene.first = scene.made.exact if shy is None else scene.first
            scene.step(batch, 1 if shy is None else len(shy.name))
            shy = Shy("a")
        return scene

    _, resumed = ended(train, tmp_path)

    assert any("lets nobody look at it" in one for one in resumed.first), resumed.first
