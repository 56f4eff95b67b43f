"""Loads into live objects: modules, optimizers, generators and all else that has a state of its own."""

import copy
import random

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, loaded, same, stored, trip

from model_checkpoint.errors import PartlyLoaded, StructureMismatch
from model_checkpoint.tree import live_specs, prepare, rename, rng_state, select, specs, unmet


def net(seed, dtype=torch.float32):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)).to(dtype)


def trained(seed, make=torch.optim.AdamW):
    model = net(seed)
    optimizer = make(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()
        schedule.step()
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "epoch": 3}


def fresh(seed, make=torch.optim.AdamW):
    model = net(seed)
    optimizer = make(model.parameters(), lr=0.5)
    return {"model": model, "optimizer": optimizer, "schedule": torch.optim.lr_scheduler.MultiStepLR(optimizer, [9])}


def same_training(a, b):
    same(dict(a["model"].state_dict()), dict(b["model"].state_dict()))
    same(a["optimizer"].state_dict(), b["optimizer"].state_dict())
    assert a["schedule"].state_dict() == b["schedule"].state_dict()


@pytest.mark.parametrize("atomic", [False, True])
def test_a_training_state_flows_into_fresh_objects(atomic):
    saved, live = trained(0), fresh(1) | {"epoch": 0}
    weight = live["model"][0].weight
    address, version = weight.data_ptr(), weight._version

    back = loaded(saved, live, atomic=atomic)

    assert back is live
    same_training(saved, live)
    assert live["epoch"] == 3
    assert live["model"][0].weight is weight
    assert weight.data_ptr() == address
    assert weight._version > version


def test_without_into_objects_come_back_as_their_ordinary_state_dicts():
    saved = trained(0)

    back = trip(saved)

    same(dict(saved["model"].state_dict()), dict(back["model"]))
    same(saved["optimizer"].state_dict(), back["optimizer"])
    assert saved["schedule"].state_dict() == back["schedule"]
    fresh(1)["optimizer"].load_state_dict(back["optimizer"])


def test_optimizer_state_is_named_after_the_parameters_of_a_module_beside_it():
    names = {spec.name for spec in specs(*stored(trained(0))[:2])}

    assert "optimizer.state.model.0.weight.exp_avg" in names
    assert "optimizer.state.%i0.exp_avg" in {s.name for s in specs(*stored({"optimizer": trained(0)["optimizer"]})[:2])}


def test_full_precision_moments_of_half_precision_parameters_stay_full():
    model = net(0, torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(2.0), "exp_avg": torch.rand_like(parameter, dtype=torch.float32),
            "exp_avg_sq": torch.rand_like(parameter, dtype=torch.float32),
        }  # fmt: skip
    other = net(1, torch.bfloat16)
    live = {"model": other, "optimizer": torch.optim.Adam(other.parameters())}

    loaded({"model": model, "optimizer": optimizer}, live)

    same(optimizer.state_dict(), live["optimizer"].state_dict())


def test_parameters_are_matched_by_name_when_both_sides_know_names():
    saved = trained(0)
    model = net(1)
    backwards = torch.optim.AdamW(list(model.parameters())[::-1])

    loaded(saved, {"model": model, "optimizer": backwards})

    for mine, theirs in zip(model.parameters(), saved["model"].parameters(), strict=True):
        same(dict(backwards.state[mine]), dict(saved["optimizer"].state[theirs]))


def test_parameters_are_matched_by_position_when_a_side_knows_no_names():
    saved, live = trained(0), fresh(1)

    loaded(saved, {"optimizer": live["optimizer"]})

    same(saved["optimizer"].state_dict(), live["optimizer"].state_dict())


def test_the_names_torch_keeps_of_parameters_follow_them_into_another_order():
    def made(seed, turn):
        model = net(seed)
        named = list(model.named_parameters())
        groups = [{"params": turn(named[:2])}, {"params": turn(named[2:])}]
        return {"model": model, "optimizer": torch.optim.SGD(groups, momentum=0.5)}

    saved, live = made(0, list), made(1, lambda named: named[::-1])
    for parameter in saved["model"].parameters():
        parameter.grad = torch.full_like(parameter, parameter.numel())
    saved["optimizer"].step()

    loaded(saved, live)

    names = {id(parameter): name for name, parameter in live["model"].named_parameters()}
    for group in live["optimizer"].param_groups:
        assert group["param_names"] == [names[id(parameter)] for parameter in group["params"]]
        for parameter in group["params"]:
            assert live["optimizer"].state[parameter]["momentum_buffer"].eq(parameter.numel()).all()


def test_a_parameter_without_a_name_that_does_not_fit_is_told_by_its_position():
    saved = {"optimizer": trained(0)["optimizer"]}
    live = torch.optim.AdamW(list(net(2).parameters())[::-1])

    with pytest.raises(StructureMismatch, match=r"parameter 0 was saved with shape \[4, 3\], live it has \[2\]"):
        loaded(saved, {"optimizer": live})


def test_a_module_that_only_copies_takes_the_bytes_in_its_place():
    saved, live = net(0), net(1)
    tree, entries, blobs, _ = stored({"m": saved})

    restore = prepare(tree, entries, into={"m": live})

    assert all(restore.target(index).live for index in restore.needed)
    fill(restore, blobs)
    same(dict(saved.state_dict()), dict(live.state_dict()))


@pytest.mark.parametrize("value", [5, 5.5, "text", None])
def test_a_plain_value_saved_in_place_of_a_tensor_of_a_module_is_refused(value):
    live = torch.nn.Linear(2, 1)
    before = copy.deepcopy(live.state_dict())

    with pytest.raises((StructureMismatch, PartlyLoaded), match=r"(?s)m: load_state_dict failed .*weight"):
        loaded({"m": {"weight": value, "bias": torch.ones(1)}}, {"m": live})

    same(dict(before)["weight"], live.weight.detach())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda model: torch.optim.AdamW(list(model.parameters())[:2]), r"groups of \[6\] parameters, live .*\[2\]"),
        (lambda model: torch.optim.SGD(model.parameters()), r"saved from torch.optim.adamw:AdamW, live it is"),
        (lambda model: torch.optim.AdamW(list(net(2).parameters())[::-1]), r"model.0.weight was saved with shape"),
    ],
    ids=["count", "class", "shape"],
)  # fmt: skip
def test_an_optimizer_that_does_not_fit_is_refused_before_anything_changes(change, told):
    saved, model = trained(0), net(1)
    before = copy.deepcopy(model.state_dict())
    tree, entries, _, _ = stored(saved)

    with pytest.raises(StructureMismatch, match=told):
        prepare(tree, entries, into={"model": model, "optimizer": change(model)})

    same(dict(before), dict(model.state_dict()))


@pytest.mark.parametrize("atomic", [False, True])
def test_tied_weights_fill_tied_and_untied_models(atomic):
    class Tied(torch.nn.Module):
        def __init__(self, tie):
            super().__init__()
            self.emb, self.head = torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4, bias=False)
            if tie:
                self.head.weight = self.emb.weight

    saved, tied, loose = Tied(True), Tied(True), Tied(False)

    loaded({"m": saved}, {"m": tied}, atomic=atomic)
    loaded({"m": saved}, {"m": loose}, atomic=atomic)

    assert tied.head.weight is tied.emb.weight
    assert torch.equal(tied.head.weight, saved.emb.weight)
    assert torch.equal(loose.head.weight, loose.emb.weight)
    with pytest.raises(
        StructureMismatch, match=r"live these share memory, saved they were apart: m.emb.weight, m.head"
    ):
        loaded({"m": Tied(False)}, {"m": tied})


def test_modules_with_hooks_and_extra_state_go_through_load_state_dict():
    class Extra(torch.nn.Module):
        def __init__(self, extra):
            super().__init__()
            self.layer, self.extra = torch.nn.Linear(2, 2), extra

        def get_extra_state(self):
            return {"extra": self.extra, "t": torch.ones(1)}

        def set_extra_state(self, state):
            self.extra = state["extra"]

    calls = []
    saved, live = Extra(5), Extra(0)
    live.layer.register_load_state_dict_pre_hook(lambda *args: calls.append("pre"))

    loaded({"m": saved}, {"m": live})

    assert live.extra == 5
    assert calls == ["pre"]
    assert torch.equal(saved.layer.weight, live.layer.weight)
    with pytest.raises(StructureMismatch, match=r"m.layer.weight: saved float32 \[2, 2\], live float64"):
        loaded({"m": saved}, {"m": Extra(0).double()})


def test_scalers_and_other_objects_load_through_their_own_method():
    class Sampler:
        position = 0

        def get_state_dict(self):
            return {"position": self.position}

        def load_state_dict(self, state):
            self.position = state["position"]

    sampler, scaler = Sampler(), torch.amp.GradScaler("cpu", init_scale=128.0)
    scaler.scale(torch.ones(1))
    sampler.position = 9
    live = {"s": Sampler(), "g": torch.amp.GradScaler("cpu")}

    loaded({"s": sampler, "g": scaler}, live)

    assert live["s"].position == 9
    assert live["g"].state_dict() == scaler.state_dict()


class Moody:
    def __init__(self, *, fails=False):
        self.value, self.fails = 0, fails

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]
        if self.fails and self.value:
            raise RuntimeError("not today")


def test_a_failing_object_leaves_everything_as_before_when_atomic():
    saved = {"w": torch.ones(2), "first": Moody(), "last": Moody()}
    saved["first"].value = saved["last"].value = 4
    live = {"w": torch.zeros(2), "first": Moody(), "last": Moody(fails=True)}

    with pytest.raises(StructureMismatch, match=r"last: load_state_dict failed \(not today\).*as before"):
        loaded(saved, live, atomic=True)

    assert (live["first"].value, live["last"].value, live["w"].tolist()) == (0, 0, [0, 0])


def test_a_failing_object_says_what_was_already_replaced():
    saved = {"w": torch.ones(2), "first": Moody(), "last": Moody()}
    saved["first"].value = saved["last"].value = 4
    live = {"w": torch.zeros(2), "first": Moody(), "last": Moody(fails=True)}

    with pytest.raises(PartlyLoaded, match=r"last: load_state_dict failed") as caught:
        loaded(saved, live)

    assert caught.value.replaced == ("w", "first")
    assert caught.value.partial == ("last",)


def test_live_specs_speak_the_names_of_a_save():
    state = trained(0)
    state |= {"a.b": torch.ones(1), 1: np.ones(2), "flat": {"x.y": torch.ones(1)}, "list": [torch.ones(1)]}
    tree, entries, _, _ = stored(state)

    live = live_specs(state)

    saved = {s.name: (s.dtype, s.shape) for s in specs(tree, entries) if not s.name.startswith("optimizer.")}
    assert {s.name: (s.dtype, s.shape) for s in live.specs} == saved
    assert set(live.open_prefixes) == {"optimizer", "optimizer.", "schedule", "schedule."}


def test_of_an_optimizer_the_state_of_single_parameters_can_be_selected():
    tree, entries, _, _ = stored(trained(0))
    every = [spec.name for spec in specs(tree, entries)]

    for wanted in ("model.0.", "model.2.bias", "exp_avg_sq", "no such name"):
        kept = select(tree, lambda name, wanted=wanted: name.startswith("optimizer") and wanted in name)

        assert [one.name for one in specs(kept, entries)] == [
            name for name in every if name.startswith("optimizer") and wanted in name
        ]
    assert select(tree, lambda name: False) == ["d", []]
    groups = select(tree, lambda name: "param_groups" in name)
    assert (specs(groups, entries), groups[1][0], groups[1][1][4]) == ([], "optimizer", tree[1][3][4])


def test_a_selected_part_fills_only_that_part():
    saved, live = trained(0), fresh(1)
    before = copy.deepcopy(live["optimizer"].state_dict())
    tree, entries, blobs, _ = stored(saved)
    part = select(tree, lambda name: name.startswith("model."))

    fill(prepare(part, entries, into=live), blobs)

    same(dict(saved["model"].state_dict()), dict(live["model"].state_dict()))
    same(before, live["optimizer"].state_dict())
    with pytest.raises(StructureMismatch, match=r"optimizer: saved is no whole optimizer state"):
        prepare(select(tree, lambda name: name.startswith("optimizer.state")), entries, into=live)


def test_a_renamed_model_and_its_optimizer_fill_live_objects_of_the_new_name():
    saved, live = trained(0), fresh(1)
    tree, entries, blobs, _ = stored(saved)
    moved = rename(tree, lambda name: "net" + name[5:] if name.startswith("model.") else name)

    fill(prepare(moved, entries, into={"net": live["model"], "optimizer": live["optimizer"]}), blobs)

    same(dict(saved["model"].state_dict()), dict(live["model"].state_dict()))
    same(saved["optimizer"].state_dict(), live["optimizer"].state_dict())


def test_leaves_renamed_inside_a_module_reach_the_new_places():
    saved = torch.nn.ModuleDict({"old": torch.nn.Linear(2, 2), "kept": torch.nn.Linear(2, 2)})
    live = torch.nn.ModuleDict({"new": torch.nn.Linear(2, 2), "kept": torch.nn.Linear(2, 2)})
    tree, entries, blobs, _ = stored({"m": saved})

    fill(prepare(rename(tree, lambda name: name.replace(".old.", ".new.")), entries, into={"m": live}), blobs)

    assert torch.equal(saved["old"].weight, live["new"].weight)
    assert torch.equal(saved["kept"].bias, live["kept"].bias)


def test_random_generators_are_an_ordinary_part():
    snapshot = {"rng": rng_state()}
    tree, entries, blobs, _ = stored(snapshot, random.Random(1))
    draws = random.random(), np.random.rand(), torch.rand(2).tolist()

    fill(prepare(tree, entries, into={"rng": rng_state()}), blobs)
    again = random.random(), np.random.rand(), torch.rand(2).tolist()
    fill(prepare(tree, entries, framework="torch"), blobs)["rng"].restore()
    third = random.random(), np.random.rand(), torch.rand(2).tolist()

    assert draws == again == third


def test_live_objects_and_values_the_checkpoint_has_nothing_for_are_named():
    tree, _, _, _ = stored({"model": net(0), "epoch": 1, "deep": {"a": 1}})
    live = fresh(1) | {"epoch": 0, "best": 0.1, "deep": {"a": 0, "b": 0}, "later": None}

    assert unmet(tree, live) == ["optimizer", "schedule", "best", "deep.b", "later"]
    assert unmet(stored(trained(0))[0], fresh(1)) == []


def test_whole_training_goes_on_bit_for_bit_after_a_load():
    torch.manual_seed(5)
    data = torch.randn(4, 5, 3)
    saved, live = trained(0), fresh(1)

    loaded(saved, live)

    for batch in data:
        for run in (saved, live):
            run["optimizer"].zero_grad()
            run["model"](batch).square().sum().backward()
            run["optimizer"].step()
            run["schedule"].step()
    same_training(saved, live)
