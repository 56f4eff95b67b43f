"""The front door as a stranger tries it: odd states, roots, names and steps, and what is said when it does not fit."""

import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.ground.crowds import in_threads
from torch import nn

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.engine.root.refs import parse_ref


@dataclass
class Run:
    weights: torch.Tensor
    epoch: int


@pytest.mark.parametrize("state", [5, 2**100, "text", None, {}, [], (), 1.5, b"bytes", {"a": {}}], ids=repr)
def test_a_bare_value_is_a_state(tmp_path, state):
    info = mc.save(tmp_path, state, step=0)

    assert info.prefix == "step-00000000"
    assert mc.load(tmp_path) == state
    assert mc.load(tmp_path, into=state) == state
    assert mc.verify(tmp_path)[0].ok
    assert mc.describe(tmp_path).tensors == []


def test_a_bare_tensor_and_a_bare_module_are_states(tmp_path):
    mc.save(tmp_path / "tensor", torch.arange(3.0), step=1)
    model = nn.Linear(2, 2)
    mc.save(tmp_path / "module", model, step=1)
    live, other = torch.zeros(3), nn.Linear(2, 2)

    mc.load(tmp_path / "tensor", into=live)
    mc.load(tmp_path / "module", into=other)

    assert torch.equal(live, torch.arange(3.0))
    assert torch.equal(other.weight, model.weight)
    assert torch.equal(mc.load_slice(tmp_path / "tensor", "%r", np.s_[1:]), torch.tensor([1.0, 2.0]))


def test_a_dataclass_is_a_state_with_parts(tmp_path):
    mc.save(tmp_path, Run(torch.ones(2), 3), step=1)
    live = Run(torch.zeros(2), 0)

    mc.load(tmp_path, into=live, parts="weights")

    assert torch.equal(live.weights, torch.ones(2))
    assert live.epoch == 0
    assert mc.load(tmp_path).epoch == 3
    assert [part.name for part in mc.describe(tmp_path).parts] == ["weights", "epoch"]
    with pytest.raises(errors.StructureMismatch, match=r"^state: only some fields of .*Run are selected"):
        mc.load(tmp_path, parts="weights")


@pytest.mark.parametrize("step", [0, 10**8, 2**63, 10**40, np.int64(7), torch.tensor(7)])
def test_any_whole_number_is_a_step(tmp_path, step):
    info = mc.save(tmp_path, {"a": 1}, step=step)

    assert type(info.step) is int
    assert mc.load(tmp_path, step=int(step)) == {"a": 1}


def test_newest_is_the_highest_number_not_the_last_word(tmp_path):
    for step in (99_999_999, 100_000_000, 5):
        mc.save(tmp_path, {"at": step}, step=step)

    assert mc.load(tmp_path) == {"at": 100_000_000}
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [100_000_000, 99_999_999, 5]


@pytest.mark.parametrize("step", [True, 1.0, "3", -1, np.float32(2)])
def test_anything_else_is_no_step(tmp_path, step):
    with pytest.raises(ValueError, match="whole number of 0 or more"):
        mc.save(tmp_path, {}, step=step)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", ".", "x\n", "a" * 129, "a@b", "\u00fc"])
def test_an_unsafe_name_is_refused_and_leaves_nothing(tmp_path, name):
    with pytest.raises(errors.UnsafeName, match="expected 1 to 128 of"):
        mc.save(tmp_path, {"a": 1}, name=name)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "root", ["with space/\u00fc", "trailing/", "./x/../y", "new\nline", "a@b", "data/checkpoints/run"]
)
def test_any_path_is_a_root_and_a_reference(tmp_path, monkeypatch, root):
    monkeypatch.chdir(tmp_path)

    info = mc.save(root, {"w": np.ones(2)}, step=1)

    assert mc.load(root)["w"].sum() == 2
    for ref in (root, Path(root), f"{root}@1", f"{root}@latest", info.path, info):
        assert mc.describe(ref).info == info
    assert mc.diff(root, info).unchanged == 1


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    info = mc.save("~/run", {"a": 1}, step=1)

    assert info.path == f"{tmp_path}/home/run/checkpoints/step-00000001"
    assert mc.describe("~/run@1").info == info


def test_what_is_no_root_is_refused():
    with pytest.raises(ValueError, match=r"empty path; write '\.'"):
        mc.save("", {"a": 1}, step=1)
    for root in (None, 5, b"runs/a"):
        with pytest.raises(TypeError, match="a root is a path, a URL or a store"):
            mc.save(root, {"a": 1}, step=1)


def test_a_path_that_is_there_wins_over_a_choice(tmp_path):
    mc.save(tmp_path / "a", {"a": 1}, step=3)
    mc.save(tmp_path / "a@3", {"a": 2}, step=9)

    assert parse_ref(f"{tmp_path}/a@3").step is None
    assert mc.describe(f"{tmp_path}/a@3").info.step == 9
    assert parse_ref("/").root == "/"


def test_an_id_chooses_by_its_beginning_but_never_among_several(tmp_path):
    infos = [mc.save(tmp_path, {"a": step}, step=step) for step in (1, 2)]

    assert mc.load(tmp_path, id=infos[0].id[:12]) == {"a": 1}
    with pytest.raises(errors.WrongReference, match=r"2 checkpoints have an id that begins with ''.*Give more"):
        mc.delete(tmp_path, id="")
    assert len(mc.list_checkpoints(tmp_path)) == 2


def test_metrics_and_metadata_are_checked_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match="metric 'l' must be a number, got Tensor"):
        mc.save(tmp_path, {}, step=1, metrics={"l": torch.zeros(3)})
    with pytest.raises(TypeError, match="name of a metric must be a string, got 1"):
        mc.save(tmp_path, {}, step=1, metrics={1: 2.0})
    with pytest.raises(TypeError, match="must be mappings"):
        mc.save(tmp_path, {}, step=1, metadata=[1])
    with pytest.raises(errors.UnsupportedType, match=r"metadata\.x: .*got object"):
        mc.save(tmp_path, {}, step=1, metadata={"x": object()})
    with pytest.raises(ValueError, match=r"format must be single_file, multi_shard or consolidated, got 'zip'"):
        mc.save(tmp_path, {}, step=1, format="zip")
    assert not list(tmp_path.iterdir())

    info = mc.save(tmp_path, {}, step=1, metrics={"a": torch.tensor(0.5), "b": np.float32(2)}, format="single_file")
    assert info.metrics == {"a": 0.5, "b": 2.0}


def test_a_meta_tensor_is_refused_both_ways(tmp_path):
    with torch.device("meta"):
        empty = nn.Linear(2, 2)
    mc.save(tmp_path, {"model": nn.Linear(2, 2)}, step=1)

    with pytest.raises(errors.UnsupportedType, match=r"model\.weight: a meta tensor has no memory"):
        mc.save(tmp_path, {"model": empty}, step=2)
    with pytest.raises(errors.StructureMismatch, match=r"model\.weight: a meta tensor has no memory"):
        mc.load(tmp_path, into={"model": empty})


def test_threads_of_one_process_save_different_steps_at_once(tmp_path):
    in_threads(lambda step: mc.save(tmp_path, {"w": np.full(200_000, step)}, step=step), range(6))

    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [5, 4, 3, 2, 1, 0]
    assert all(health.ok for health in mc.verify(tmp_path))
    assert not list((tmp_path / ".staging").iterdir())


def test_one_of_many_saves_of_the_same_step_wins_and_the_others_say_so(tmp_path):
    outcomes = []

    def save(value):
        try:
            outcomes.append(mc.save(tmp_path, {"w": np.full(200_000, value)}, step=1))
        except errors.StepExists as error:
            outcomes.append(error)

    in_threads(save, range(4))

    assert len(outcomes) == 4
    assert sum(isinstance(outcome, mc.CheckpointInfo) for outcome in outcomes) == 1
    assert mc.verify(tmp_path)[0].ok
    assert not list((tmp_path / ".staging").iterdir())


def test_an_interrupt_in_the_middle_of_a_save_leaves_nothing(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1)
    seen = []

    def interrupt(progress):
        if not seen:
            seen.append(progress)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores SIGINT
    try:
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            mc.save(tmp_path, {"w": np.zeros(20 << 20)}, step=2, progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)

    assert not list((tmp_path / ".staging").iterdir())
    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [1]
    assert mc.load(tmp_path) == {"a": 1}


def test_every_error_of_the_front_door_survives_pickling(tmp_path):
    mc.save(tmp_path, {"model": nn.Linear(2, 2)}, step=1)
    calls = [
        lambda: mc.load(tmp_path, step=9),
        lambda: mc.load(tmp_path, into={"model": nn.Linear(3, 3)}),
        lambda: mc.save(tmp_path, {"x": object()}, step=2),
        lambda: mc.save(tmp_path, {}, step=1),
        lambda: mc.load("ftp://host/x"),
    ]
    for call in calls:
        with pytest.raises(mc.CheckpointException, match=":") as caught:
            call()
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (type(copy), str(copy), copy.type) == (type(caught.value), str(caught.value), caught.value.type)


def test_a_read_only_root_can_be_read_and_says_why_it_cannot_be_written(tiny_disk):
    mc.save(tiny_disk, {"a": 1}, step=1)
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)

    assert mc.load(tiny_disk) == {"a": 1}
    assert mc.verify(tiny_disk)[0].ok
    for refused in (
        lambda: mc.save(tiny_disk, {"a": 2}, step=2),
        lambda: mc.save(tiny_disk, {"a": 2}, step=1, overwrite=True),
        lambda: mc.delete(tiny_disk, step=1),
    ):
        with pytest.raises(PermissionError, match=r"Read-only file system.*Check owner, mode and mount options"):
            refused()


def test_numpy_checkpoints_need_no_framework_and_torch_ones_say_what_is_missing(tmp_path):
    mc.save(tmp_path / "np", {"w": np.arange(3.0), "n": 1}, step=1)
    mc.save(
        tmp_path / "pt", {"model": nn.Linear(2, 2), "b": torch.ones(2, dtype=torch.bfloat16), "n": np.ones(2)}, step=1
    )
    code = """
import sys
sys.modules.update(torch=None, jax=None, tensorflow=None)
import numpy as np, model_checkpoint as mc
assert mc.load("np")["w"].tolist() == [0, 1, 2]
assert mc.save("new", {"w": np.ones(2), "rng": mc.rng_state()}, step=1).step == 1
assert mc.verify("pt")[0].ok and mc.diff("pt", "pt").unchanged == 4 and len(mc.describe("pt").tensors) == 4
state = mc.load("pt", framework="numpy")
assert str(state["b"].dtype) == "bfloat16" and state["model"]["weight"].shape == (2, 2)
assert mc.load("pt", parts="n")["n"].sum() == 2
try:
    mc.load("pt")
except mc.CheckpointException as error:
    assert "saved from torch, which is not imported" in str(error) and 'framework="numpy"' in str(error), error
else:
    raise SystemExit("loaded torch tensors without torch")
"""

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
