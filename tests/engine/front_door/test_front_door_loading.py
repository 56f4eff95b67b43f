"""Loads with every keyword, and with several at once; and what describe and diff say of realistic states."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import model_checkpoint as mc
from model_checkpoint import CheckpointFormat, errors


def trained(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.fixture(params=CheckpointFormat)
def saved(request, tmp_path):
    model, optimizer = trained()
    state = {"model": model, "opt": optimizer, "extra": {"t": torch.ones(3), "n": np.arange(3.0)}, "epoch": 7}
    mc.save(tmp_path, state, step=1, format=request.param)
    return tmp_path, model, optimizer


def test_parts_rename_into_and_atomic_go_together(saved):
    root, model, optimizer = saved
    net, opt = trained(1)

    mc.load(root, into={"net": net, "epoch": 3}, parts="model", rename={"model": "net"})
    only_net = equal(net, model)
    into = {"net": net, "opt": opt, "epoch": 3}
    mc.load(root, into=into, parts=["model", "opt"], rename={"model": "net"}, atomic=True, verify="full")

    assert only_net
    assert into["epoch"] == 3
    for old, new in zip(optimizer.state.values(), opt.state.values(), strict=True):
        assert torch.equal(old["exp_avg"], new["exp_avg"])


def test_a_renamed_part_that_lacks_a_live_leaf_is_still_missing(saved):
    root, _, _ = saved
    live = {"net": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Linear(1, 1)), "epoch": 0}

    with pytest.raises(errors.StructureMismatch, match=r"missing: net\.3\.weight"):
        mc.load(root, into=live, parts="model", rename={"model": "net"})


def test_a_glob_and_a_rename_of_a_deeper_part_go_together(saved):
    root, model, _ = saved
    live = {"first": {"weight": torch.zeros(8, 4)}, "epoch": 0}

    with pytest.warns(mc.CheckpointWarning, match="rename= has a name that fits nothing: opt"):
        mc.load(root, into=live, parts="*.0.weight", rename={"model.0": "first", "opt": "opt"}, strict=False)

    assert torch.equal(live["first"]["weight"], model[0].weight)


def test_not_strict_tells_leaves_that_are_only_missing(saved, caplog):
    root, model, _ = saved
    net, opt = trained(1)
    extra = {"t": torch.zeros(3), "n": np.zeros(3), "new": torch.zeros(2)}

    with pytest.warns(mc.CheckpointWarning, match=r"not in the checkpoint, left as it was: extra\.new"):
        mc.load(root, into={"model": net, "opt": opt, "extra": extra, "epoch": 0}, strict=False)

    assert "left as it was: extra.new" in caplog.text
    assert not extra["new"].any()
    assert equal(net, model)


def test_a_rename_that_fits_nothing_is_told(saved, caplog):
    root, _, _ = saved

    with pytest.warns(mc.CheckpointWarning, match="rename= has a name that fits nothing: modle"):
        state = mc.load(root, rename={"modle": "net"})

    assert set(state) == {"model", "opt", "extra", "epoch"}
    assert "rename= has a name that fits nothing: modle" in caplog.text


def test_only_the_renames_that_fit_nothing_are_told(saved, caplog):
    root, _, _ = saved

    with pytest.warns(mc.CheckpointWarning, match="rename= has a name that fits nothing: opt$"):
        mc.load(root, parts=["model", "extra"], rename={"model": "net", "opt": "old", "extra.t": "t"})

    assert caplog.text.count("rename= has a name that fits nothing: opt\n") == 1


def test_unverified_maps_never_reach_live_tensors(tmp_path):
    info = mc.save(tmp_path, {"w": np.ones(5000)}, step=1)
    path = next(Path(info.path).glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    live = {"w": np.zeros(5000)}

    with pytest.raises(errors.ChunkMismatch, match="does not have the recorded digest"):
        mc.load(tmp_path, into=live, mmap=True, verify="off")

    assert not live["w"].any()


def test_framework_mmap_and_parts_go_together(saved):
    root, _, _ = saved

    state = mc.load(root, parts="extra", framework="numpy", mmap=True)["extra"]
    tensors = mc.load(root, parts=["extra.n"], framework="torch", mmap=True, device="cpu")["extra"]

    assert isinstance(state["t"], np.ndarray)
    assert torch.equal(tensors["n"], torch.arange(3.0, dtype=torch.float64))


def test_unknown_words_are_refused_before_a_byte_is_read(saved):
    root, _, _ = saved
    for path in root.rglob("*.safetensors"):
        path.unlink()

    with pytest.raises(ValueError, match=r'verify must be "fast", "full" or.*got \'none\''):
        mc.load(root, verify="none")
    with pytest.raises(errors.CheckpointException, match="is gone"):
        mc.load(root)


def test_a_device_torch_does_not_have_is_said_before_a_byte_is_read(tmp_path):
    info = mc.save(tmp_path, {"w": torch.ones(4), "n": np.ones(2)}, step=1)
    path = next(Path(info.path).glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")

    with pytest.raises(errors.UnsupportedType, match=r"device: torch cannot use 'nonsense' here .*Choose another"):
        mc.load(tmp_path, device="nonsense")


def test_fallback_goes_on_from_the_chosen_step_and_says_so(tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="model_checkpoint")
    for step in (1, 2, 3):
        info = mc.save(tmp_path, {"a": step, "w": np.ones(3)}, step=step)
        if step == 2:
            next(Path(info.path).glob("*.safetensors")).unlink()

    with pytest.warns(mc.CheckpointWarning, match=r"step-00000001: loaded, but .*\n  passed over: .*step-00000002"):
        state = mc.load(tmp_path, step=2, fallback=True, parts="*")

    assert state["a"] == 1
    assert "step-00000002: not usable" in caplog.text
    assert f"falling back to {tmp_path}/checkpoints/step-00000001" in caplog.text


def test_when_nothing_is_healthy_all_that_is_wrong_is_told_and_no_way_that_was_tried_is_advised(tmp_path):
    for step in (1, 2):
        info = mc.save(tmp_path, {"w": np.ones(3)}, step=step)
        next(Path(info.path).glob("*.safetensors")).unlink()

    with pytest.raises(
        errors.NoHealthyCheckpoint, match=r"none of 2 .*\n.*step-00000002: Truncated, file r0"
    ) as caught:
        mc.load(tmp_path, fallback=True)
    assert "fallback=True" not in str(caught.value)
    assert [type(error) for error in caught.value.failures] == [errors.Truncated, errors.Truncated]


def test_describe_tells_kinds_tied_tensors_and_what_is_lacking(tmp_path):
    model, optimizer = trained()
    model[2].weight = nn.Parameter(torch.ones(1, 8, dtype=torch.bfloat16))
    tied = torch.ones(10)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "rng": mc.rng_state()}
    mc.save(tmp_path, {**parts, "a": tied, "b": tied, "row": tied[2:5], "step": 1}, step=1)

    found = mc.describe(tmp_path)

    assert [part.kind for part in found.parts[:4]] == ["module", "optimizer", "scheduler", "rng"]
    assert found.lacking == ()
    tensors = {line.name: line for line in found.tensors}
    assert tensors["model.2.weight"].dtype == "bfloat16"
    assert (tensors["a"].nbytes, tensors["b"].nbytes, tensors["row"].nbytes) == (40, 40, 12)
    assert sum(part.nbytes for part in found.parts if part.name in ("a", "b", "row")) == 40


def test_describe_and_diff_refuse_a_damaged_manifest(tmp_path):
    info = mc.save(tmp_path, {"a": 1}, step=1)
    (Path(info.path) / "manifest.json").write_bytes(b"garbage")

    for look in (mc.describe, lambda ref: mc.diff(ref, ref), lambda ref: mc.load_slice(ref, "a", 0)):
        with pytest.raises(errors.ManifestInvalid, match="the manifest cannot be used"):
            look(tmp_path)


ODD = {
    "bf16": lambda k: torch.full((3,), k).to(torch.bfloat16),
    "fp8": lambda k: torch.full((3,), k).to(torch.float8_e4m3fn),
    "complex": lambda k: np.array([1j * k]),
    "big_endian": lambda k: np.array([k], dtype=">f4"),
    "huge": lambda k: np.array([2**62 + k]),
    "unsigned": lambda k: np.array([2**64 - 1 - k], dtype=np.uint64),
    "signed": lambda k: np.array([-(2**63) if k == 1 else -(2**63) + 1]),
    "bool": lambda k: np.array([k == 1]),
    "longdouble": lambda k: np.array([k], dtype=np.longdouble),
    "nan_stays": lambda k: np.array([math.nan, k]),
    "inf_stays": lambda k: np.array([math.inf, k]),
    "zero_d": lambda k: np.array(float(k)),
    "layer[0]": lambda k: np.array([k]),
    "all*": lambda k: np.array([k]),
    "tuple": lambda k: (torch.full((2,), k), 5),
    "keys": lambda k: {1: np.array([k]), "1": np.array([k])},
}


@pytest.mark.parametrize("what", ODD)
def test_diff_measures_every_number_under_any_name(tmp_path, what):
    for step in (1, 2):
        mc.save(tmp_path, {what: ODD[what](step)}, step=step)

    found = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2")

    assert {change.max_change for change in found.changed} == {1.0}
    assert len(found.changed) == (2 if what == "keys" else 1)


@pytest.mark.parametrize("values", [["a", "b"], [b"a", b"b"], ["2020-01-01", "2020-01-02"]])
def test_diff_of_what_has_no_distance_says_only_that_it_changed(tmp_path, values):
    for step, value in enumerate(values):
        mc.save(tmp_path, {"x": np.array([value], dtype="M8[D]" if "-" in str(value) else None)}, step=step)

    change = mc.diff(f"{tmp_path}@0", f"{tmp_path}@1").changed[0]

    assert (change.max_change, change.mean_change) == (None, None)


def test_diff_tells_new_nan_shapes_and_dtypes(tmp_path):
    mc.save(tmp_path, {"nan": np.zeros(2), "inf": np.zeros(2), "shape": np.zeros(2), "dtype": np.zeros(2)}, step=1)
    changed = {"nan": np.array([math.nan, 0]), "inf": np.array([math.inf, 0]), "shape": np.zeros(3)}
    mc.save(tmp_path, {**changed, "dtype": np.ones(2, dtype=np.int32), "new": np.zeros(1)}, step=2)

    found = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2")
    by_name = {change.name: change for change in found.changed}

    assert math.isnan(by_name["nan"].max_change)
    assert by_name["inf"].max_change == math.inf
    assert by_name["shape"].max_change is None
    assert (by_name["dtype"].before, by_name["dtype"].after) == ("float64 [2]", "int32 [2]")
    assert by_name["dtype"].max_change == 1.0
    assert found.added == ["new"]


def test_diff_has_what_is_spoiled_first_then_what_moved_most_relative_to_its_norm(tmp_path):
    before = {"far": np.ones(4), "near": np.full(4, 1e6), "zero": np.zeros(4), "nan": np.ones(4), "shape": np.ones(2)}
    after = {"far": np.full(4, 1.5), "near": np.full(4, 1e6 + 9), "zero": np.full(4, 1e-9), "shape": np.ones(3)}
    mc.save(tmp_path, before, step=1)
    mc.save(tmp_path, {**after, "nan": np.array([1, math.nan, math.nan, 1])}, step=2)

    found = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2").changed

    assert [change.name for change in found] == ["nan", "zero", "far", "near", "shape"]
    assert [change.spoiled for change in found] == [2, 0, 0, 0, 0]
    assert [change.relative for change in found] == [0.0, math.inf, 0.5, pytest.approx(9e-6), None]


def test_diff_of_views_goes_by_what_they_show(tmp_path):
    base = np.arange(20.0)
    mc.save(tmp_path, {"left": base[:10], "right": base[10:], "all": base}, step=1)
    base[15] += 2
    mc.save(tmp_path, {"left": base[:10], "right": base[10:], "all": base}, step=2)

    found = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2")

    assert {change.name: change.max_change for change in found.changed} == {"right": 2.0, "all": 2.0}
    assert found.unchanged == 1


def test_a_moved_view_of_equal_storage_is_a_change(tmp_path):
    base = np.arange(20.0)
    mc.save(tmp_path, {"view": base[:10], "all": base}, step=1)
    mc.save(tmp_path, {"view": base[5:15], "all": base}, step=2)

    found = mc.diff(f"{tmp_path}@1", f"{tmp_path}@2")

    assert [(change.name, change.max_change) for change in found.changed] == [("view", 5.0)]


def test_a_slice_may_be_of_nothing(tmp_path):
    mc.save(tmp_path, {"all": np.arange(20.0), "empty": np.zeros((0, 3))}, step=1)

    assert mc.load_slice(tmp_path, "empty", np.s_[:, 1:]).shape == (0, 2)
    assert mc.load_slice(tmp_path, "all", np.s_[3:3]).shape == (0,)


def test_garbage_and_trash_of_no_root_are_errors(tmp_path):
    for look in (mc.collect_garbage, mc.undelete, mc.verify, mc.list_checkpoints):
        with pytest.raises(FileNotFoundError, match="no such checkpoint root"):
            look(tmp_path / "none")
    with pytest.raises(errors.WrongReference, match="nothing in the trash"):
        mc.undelete(tmp_path)
