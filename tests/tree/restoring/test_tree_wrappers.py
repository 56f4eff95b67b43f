"""What DDP and torch.compile put around a module is no part of what is saved, and stands in no load's way."""

import collections

import pytest
import torch
from tests.tree.carrying import fill, stored

import model_checkpoint as mc
from model_checkpoint.tree import flatten, prepare


class Net(torch.nn.Module):
    def __init__(self, hooked=False):
        super().__init__()
        self.body = torch.nn.Linear(2, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        if hooked:
            self.register_load_state_dict_post_hook(lambda module, keys: None)

    def forward(self, x):
        return self.norm(self.body(x))


class Own(torch.nn.Module):
    """A module of the user's, one part of which is called ``module``."""

    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(2, 2)


WRAPS = {
    "bare": lambda net: net,
    "parallel": torch.nn.DataParallel,
    "compiled": lambda net: torch.compile(net, backend="eager"),
    "both": lambda net: torch.nn.DataParallel(torch.compile(net, backend="eager")),
    "inside out": lambda net: torch.compile(torch.nn.DataParallel(net), backend="eager"),
}


def values(module):
    return [tensor.clone() for tensor in module.state_dict().values()]


def assert_alike(module, other):
    for one, two in zip(values(module), values(other), strict=True):
        assert torch.equal(one, two)


def trained(module):
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    return {"model": module, "optimizer": optimizer}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_a_wrapped_module_is_saved_as_the_bare_one(wrap):
    net = Net()

    flat, bare = flatten({"model": wrap(net)}), flatten({"model": net})

    assert [leaf.name for leaf in flat.leaves] == [leaf.name for leaf in bare.leaves]
    assert flat.tree[1][1][3] == bare.tree[1][1][3]


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "own load"])
@pytest.mark.parametrize("live", WRAPS.values(), ids=WRAPS)
@pytest.mark.parametrize("saved", WRAPS.values(), ids=WRAPS)
def test_what_one_wrapper_saved_any_other_loads(tmp_path, saved, live, hooked):
    state = trained(saved(Net(hooked)))
    other = trained(live(Net(hooked)))
    mc.save(tmp_path, state, step=1)

    mc.load(tmp_path, into=other)

    assert_alike(state["model"], other["model"])
    one, two = state["optimizer"].state_dict()["state"], other["optimizer"].state_dict()["state"]
    assert all(torch.equal(one[i]["exp_avg"], two[i]["exp_avg"]) for i in one)


def old_tree(prefix, *, as_object):
    """A tree as it was written before names were stripped."""
    net = Net()
    state = net.state_dict()
    old = collections.OrderedDict((f"{prefix}{key}", value) for key, value in state.items())
    paths = state._metadata.items()
    old._metadata = collections.OrderedDict((f"{prefix}{path}".rstrip("."), value) for path, value in paths)
    tree, entries, blobs, _ = stored({"model": old})
    if as_object:
        tree[1][1] = ["m", "module", "torch.nn.parallel.distributed:DistributedDataParallel", tree[1][1]]
    return net, tree, entries, blobs


@pytest.mark.parametrize("as_object", [True, False], ids=["object", "state_dict"])
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("live", WRAPS.values(), ids=WRAPS)
def test_checkpoints_with_the_wrappers_names_still_load(prefix, live, as_object):
    net, tree, entries, blobs = old_tree(prefix, as_object=as_object)
    other = live(Net())

    fill(prepare(tree, entries, into={"model": other}), blobs)

    assert_alike(net, other)


def test_an_optimizer_saved_with_the_wrappers_names_is_matched_by_them(tmp_path):
    """In other order, so that positions alone would give every parameter another's state."""
    state = trained(Net())
    tree, entries, blobs, _ = stored(state)
    node = tree[1][3]
    node[4] = [[name.replace("model.", "model.module."), shape] for name, shape in node[4]]
    other = Net()
    turned = torch.optim.Adam(list(other.parameters())[::-1])

    fill(prepare(tree, entries, into={"model": other, "optimizer": turned}), blobs)

    want, got = state["optimizer"].state_dict()["state"], turned.state_dict()["state"]
    assert all(torch.equal(want[i]["exp_avg"], got[len(want) - 1 - i]["exp_avg"]) for i in want)


def test_a_part_that_is_really_called_module_keeps_its_name(tmp_path):
    own, other = Own(), Own()
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 2))
    mc.save(tmp_path, {"own": own, "averaged": averaged}, step=1)

    loaded = mc.load(tmp_path)
    mc.load(tmp_path, parts="own", into={"own": other})

    assert list(loaded["own"]) == ["module.weight", "module.bias"]
    assert list(loaded["averaged"]) == list(averaged.state_dict())
    assert_alike(own, other)


def test_a_state_dict_is_a_dict_and_comes_back_as_it_was(tmp_path):
    state = torch.nn.DataParallel(Net()).state_dict()
    mc.save(tmp_path, {"model": state}, step=1)

    back = mc.load(tmp_path)["model"]

    assert list(back) == list(state)
    assert back._metadata == state._metadata


def test_frozen_parameters_of_a_wrapped_module_are_known_as_frozen():
    net = Net()
    net.body.weight.requires_grad_(False)

    flat = flatten({"model": torch.nn.DataParallel(net)})

    assert [leaf.name for leaf in flat.leaves if leaf.frozen] == ["model.body.weight"]
