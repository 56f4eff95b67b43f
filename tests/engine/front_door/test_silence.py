"""Nothing is left out in silence: one rule for every leaf, a warning of our own class, a report for programs."""

import warnings

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint import errors


class Counter:
    def __init__(self, n=0):
        self.n = n

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state):
        self.n = state["n"]


def model(value=0.0):
    one = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(one.weight, value)
    return one


def state(value=1.0):
    net = model(value)
    optimizer = torch.optim.SGD(net.parameters(), lr=value)
    return {
        "model": net,
        "optimizer": optimizer,
        "epoch": 3,
        "w": np.full(2, value),
        "counter": Counter(5),
        "none": None,
    }


@pytest.fixture
def root(tmp_path):
    mc.save(tmp_path, state(), step=1)
    return tmp_path


def test_one_part_goes_into_that_part(root):
    net, counter, array = model(), Counter(), np.zeros(2)
    optimizer = torch.optim.SGD(net.parameters(), lr=9.0)

    assert mc.load(root, parts="model", into=net) is net
    mc.load(root, parts=["optimizer"], into=optimizer)
    mc.load(root, parts="counter", into=counter)
    mc.load(root, parts="w", into=array)
    weights = mc.load(root, parts="model", into=model().state_dict())

    assert (net.weight == 1).all()
    assert (weights["weight"] == 1).all()
    assert (optimizer.param_groups[0]["lr"], counter.n, array.tolist()) == (1.0, 5, [1.0, 1.0])
    assert mc.load(root, parts="epoch", into=0) == 3


def test_one_renamed_or_nested_part_goes_into_that_part(tmp_path):
    mc.save(tmp_path, {"nets": {"a": model(1.0), "b": model(2.0)}}, step=1)
    a, b = model(), model()

    mc.load(tmp_path, parts="nets.a", into=a)
    mc.load(tmp_path, parts="nets.b", into=b, rename={"nets": "net"})

    assert (a.weight == 1).all()
    assert (b.weight == 2).all()


def test_a_part_whose_module_has_a_part_of_that_name_is_not_mistaken(tmp_path):
    """Models of Hugging Face keep their layers in an attribute called model."""

    def whole(value):
        return torch.nn.ModuleDict({"model": model(value), "head": model(value)})

    mc.save(tmp_path / "run", {"model": whole(1.0)}, step=1)
    mc.save(tmp_path / "bare", whole(2.0), step=1)
    live, bare = whole(0.0), whole(0.0)

    mc.load(tmp_path / "run", parts="model", into=live)
    mc.load(tmp_path / "bare", parts="model", into=bare)

    assert all((p == 1).all() for name, p in live.named_parameters() if "weight" in name)
    assert (bare["model"].weight == 2).all()
    assert (bare["head"].weight == 0).all()


def test_a_state_that_has_the_part_is_filled_as_before(root):
    live = {"model": model(), "epoch": 0}

    mc.load(root, parts="model", into=live)

    assert (live["model"].weight == 1).all()
    assert live["epoch"] == 0


@pytest.mark.parametrize("strict", [True, False])
def test_a_load_that_fills_nothing_is_an_error(root, strict):
    for live in ({"net": model()}, torch.nn.Conv1d(1, 1, 1), {"later": None}, {"x": {"y": 1}}):
        with pytest.raises(errors.StructureMismatch, match=r"Not one leaf of it would be filled|shape"):
            mc.load(root, into=live, strict=strict)
    mc.save(root, {}, step=2)
    with pytest.raises(errors.StructureMismatch, match="Not one leaf of it would be filled"):
        mc.load(root, into={"a": 1}, strict=strict)
    assert mc.load(root, into={}, strict=strict) == {}


@pytest.mark.parametrize("left_out", ["model", "optimizer", "epoch", "w", "counter", "none"])
def test_whatever_was_saved_and_is_not_wanted_is_unexpected(root, left_out):
    live = state(0.0)
    del live[left_out]

    with pytest.raises(errors.StructureMismatch, match=rf"unexpected: {left_out}"):
        mc.load(root, into=live)
    with pytest.warns(mc.CheckpointWarning, match=rf"in the checkpoint, not loaded: {left_out}"):
        mc.load(root, into=live, strict=False)

    assert live.get("epoch", 3) == 3


@pytest.mark.parametrize(
    "extra", [model(), torch.optim.SGD(model().parameters()), 3, np.ones(2), Counter(), None, {}, ()]
)
def test_whatever_is_wanted_and_was_not_saved_is_missing(root, extra):
    live = {**state(0.0), "extra": extra}

    with pytest.raises(errors.StructureMismatch, match=r"missing: extra"):
        mc.load(root, into=live)
    with pytest.warns(mc.CheckpointWarning, match=r"not in the checkpoint, left as it was: extra"):
        mc.load(root, into=live, strict=False)

    assert live["epoch"] == 3


def test_what_takes_anything_is_filled_without_a_word(root):
    live = {**state(0.0), "none": None, "epoch": None, "w": None, "model": {}}

    mc.load(root, into=live)

    assert (live["epoch"], live["w"].tolist()) == (3, [1.0, 1.0])
    assert (live["model"]["weight"] == 1).all()


def test_lists_of_plain_values_are_replaced_whole_whatever_their_length(tmp_path):
    mc.save(tmp_path, {"losses": [0.5, 0.25, 0.125], "sizes": (1, 2)}, step=1)
    live = {"losses": [1.0], "sizes": (5, 6, 7)}

    mc.load(tmp_path, into=live)

    assert live == {"losses": [0.5, 0.25, 0.125], "sizes": (1, 2)}


def test_a_load_warns_once_and_reports_which_checkpoint_it_was_and_what_it_did_not_take(root):
    damaged = mc.save(root, state(2.0), step=2)
    next(iter(root.glob("checkpoints/step-00000002/*.safetensors"))).write_bytes(b"")
    live = {"model": model(), "later": 1}
    reports = []

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mc.load(root, into=live, strict=False, fallback=True, report=reports.append)

    (report,) = reports
    assert [type(one.message) for one in caught] == [mc.CheckpointWarning]
    assert caught[0].filename == __file__
    assert caught[0].message.report is report
    assert report.checkpoint.endswith("step-00000001")
    assert [path for path, _ in report.passed_over] == [damaged.path]
    assert list(report.missing) == ["later"]
    assert {"epoch", "w", "none", "counter.n"} < set(report.unexpected)
    assert not report.complete


def test_a_load_that_takes_all_reports_so_and_warns_of_nothing(root):
    reports = []

    mc.load(root, report=reports.append)
    mc.load(root, into=state(0.0), report=reports.append)

    assert [report.complete for report in reports] == [True, True]
    assert all(report.checkpoint.endswith("step-00000001") for report in reports)


def test_the_cure_of_a_shape_or_dtype_is_named(root):
    with pytest.raises(errors.StructureMismatch, match=r"Build the live objects with the saved shapes.*parts="):
        mc.load(root, parts="w", into={"w": np.zeros(3)})
    with pytest.raises(errors.StructureMismatch, match=r"Convert the live objects to the saved dtypes.*without into="):
        mc.load(root, parts="w", into={"w": np.zeros(2, np.float32)})


def test_what_is_deleted_during_a_load_is_no_first_start(root):
    """Else a `try` around the first start would begin anew although older checkpoints are there."""
    mc.save(root, state(2.0), step=2)

    def meddle(name):
        if len(mc.list_checkpoints(root)) == 2:
            mc.delete(root, step=2)
        return name

    with pytest.raises(mc.WrongReference, match="step-00000002: was deleted during the load"):
        mc.load(root, rename=meddle)


def test_a_module_with_a_load_of_its_own_never_meets_what_strict_false_leaves_out(tmp_path):
    """Its own load_state_dict would refuse the key nobody asked for."""
    saved, live = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
    live.register_load_state_dict_post_hook(lambda module, keys: None)
    mc.save(tmp_path, {"m": saved}, step=1)
    reports = []

    with pytest.warns(mc.CheckpointWarning, match=r"m\.bias"):
        mc.load(tmp_path, into={"m": live}, strict=False, report=reports.append)

    assert reports[0].unexpected == ["m.bias"]
    assert torch.equal(live.weight, saved.weight)
