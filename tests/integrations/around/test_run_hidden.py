"""What datasets, samplers, modules and hooks of the program keep in no state is named, wherever they hide it."""

from typing import ClassVar

import pytest
import torch
from tests.integrations.around.around_scenes import ended
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, WeightedRandomSampler, default_collate


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.arange(36.0).view(12, 3) / 36

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return [self.rows[index]]


class Counted(Rows):
    read = 0

    def __getitem__(self, index):
        self.read += 1
        return [self.rows[index] * self.read * 0.1]


class Ramp:
    def __init__(self):
        self.calls = 0

    def __call__(self, row):
        self.calls += 1
        return row * self.calls * 0.1


class Transformed(Rows):
    def __init__(self):
        super().__init__()
        self.transforms = {"train": [Ramp()]}

    def __getitem__(self, index):
        return [self.transforms["train"][0](self.rows[index])]


class Levelled(Rows):
    level: ClassVar = [1.0]

    def __getitem__(self, index):
        return [self.rows[index] * self.level[0]]


class Recalling(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.ones(1)
        self.register_buffer("heat", torch.ones(1), persistent=False)

    def forward(self, values):
        self.hidden = self.hidden * 0.9 + values.detach().mean()
        self.heat.mul_(0.9)
        return values * self.hidden + self.heat


class Average:
    def __init__(self, model):
        self.steps, self.weight = 0, model[0].weight.detach().clone()

    def follow(self, model):
        self.steps += 1
        self.weight.lerp_(model[0].weight.detach(), 1 / (self.steps + 1))

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight = state["weight"].clone()


def shuffled(scene, data, **options):
    scene.data = DataLoader(data, 3, shuffle=True, **options)
    return trained(scene)


def trained(scene, **objects):
    for batch in scene.run(**objects):
        scene.step(batch)
    return scene


def in_a_subset(scene):
    return shuffled(scene, Subset(Counted(), range(12)))


def in_datasets_that_follow_each_other(scene):
    return shuffled(scene, ConcatDataset([Counted()]))


def in_a_transform(scene):
    return shuffled(scene, Transformed())


def in_what_makes_batches(scene):
    calls = [0]

    def collate(samples):
        calls[0] += 1
        return [default_collate(samples)[0] * calls[0] * 0.1]

    return shuffled(scene, Rows(), collate_fn=collate)


def in_a_class(scene):
    Levelled.level = [1.0]
    scene.data = DataLoader(Levelled(), 3, shuffle=True)
    for batch in scene.run():
        scene.step(batch)
        Levelled.level[0] *= 1.1
    return scene


def in_the_weights_of_a_sampler(scene):
    sampler = WeightedRandomSampler(torch.ones(12), 12)
    scene.data = DataLoader(Rows(), 3, sampler=sampler)
    for batch in scene.run():
        scene.step(batch)
        sampler.weights[(scene.made.step * 5) % 12] += 20
    return scene


def in_rows_that_are_labelled_anew(scene):
    data = Rows()
    scene.data = DataLoader(data, 3, shuffle=True)
    for batch in scene.run():
        scene.step(batch)
        data.rows += 0.05 * scene.model[0].weight[0].detach()
    return scene


def in_a_module(scene):
    scene.model.append(Recalling())
    return trained(scene)


def in_a_hook_of_the_optimizer(scene):
    state = {"steps": 0}

    def slow_down(optimizer, *_):
        state["steps"] += 1
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + state["steps"])

    scene.optimizer.register_step_post_hook(slow_down)
    return trained(scene)


def in_a_hook_of_a_module(scene):
    calls = [0]

    def louder(module, given, made):
        calls[0] += 1
        return made * calls[0] * 0.1

    scene.model[0].register_forward_hook(louder)
    return trained(scene)


def in_a_hook_of_a_parameter(scene):
    calls = [0]

    def louder(gradient):
        calls[0] += 1
        return gradient * calls[0] * 0.1

    scene.model[0].weight.register_hook(louder)
    return trained(scene)


def in_an_average(scene):
    average = Average(scene.model)
    for batch in scene.run(average=average):
        scene.step(batch, 1 + average.weight.sum() * 0.1)
        average.follow(scene.model)
    return scene


NAMED = {
    in_a_subset: "`Counted.read` was 9 when it was saved, is 0",
    in_datasets_that_follow_each_other: "`Counted.read` was 9 when it was saved, is 0",
    in_a_transform: "`Ramp.calls` was 9 when it was saved, is 0",
    in_what_makes_batches: "`collate: calls (1 items)` is not what it was",
    in_a_class: "`Levelled.level (1 items)` is not what it was",
    in_the_weights_of_a_sampler: "`WeightedRandomSampler.weights` is not what it was",
    in_rows_that_are_labelled_anew: "`Rows.rows` is not what it was",
    in_a_module: "`Recalling.heat` is not what it was",
    in_a_hook_of_the_optimizer: "`slow_down: state (1 items)` is not what it was",
    in_a_hook_of_a_module: "`louder: calls (1 items)` is not what it was",
    in_a_hook_of_a_parameter: "`louder: calls (1 items)` is not what it was",
    in_an_average: "`average.steps` was 3 when it was saved, is 0",
}


@pytest.mark.parametrize("train", NAMED)
def test_what_is_kept_in_no_state_is_named(tmp_path, train):
    whole, again = ended(train, tmp_path)

    assert again.weights != whole.weights
    assert NAMED[train] in " ".join(again.made.exact)
    assert whole.made.exact is True


class Whole(Average):
    def state_dict(self):
        return vars(self)

    def load_state_dict(self, state):
        vars(self).update(state)


def with_a_whole_state(scene):
    average = Whole(scene.model)
    for batch in scene.run(average=average):
        scene.step(batch, 1 + average.weight.sum() * 0.1)
        average.follow(scene.model)
    return scene


class Keeping(Rows):
    def __init__(self):
        super().__init__()
        self.loaded = {}

    def __getitem__(self, index):
        return self.loaded.setdefault(index, [self.rows[index]])


def what_was_read(scene):
    return shuffled(scene, Keeping())


def a_learning_rate_changed_by_hand(scene):
    for batch in scene.run():
        scene.step(batch)
        scene.optimizer.param_groups[0]["lr"] *= 0.9
    return scene


def a_generator_of_two_loaders(scene):
    draws, data = torch.Generator().manual_seed(3), scene.data.dataset
    scene.data = {size: DataLoader(data, int(size), shuffle=True, generator=draws) for size in ("3", "2")}
    for batch in scene.run():
        scene.step(batch["3"], 1 + batch["2"][0].mean())
    return scene


@pytest.mark.parametrize(
    "train", [with_a_whole_state, what_was_read, a_learning_rate_changed_by_hand, a_generator_of_two_loaders]
)
def test_what_is_in_a_state_or_only_kept_is_no_reason(tmp_path, train):
    whole, again = ended(train, tmp_path)

    assert again.weights == whole.weights
    assert again.made.exact is True
