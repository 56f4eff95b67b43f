"""What an older version wrote is read bit for bit by this one. Never regenerate one to make a test pass."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.ground.stored.equal_values import same

import model_checkpoint as mc
from model_checkpoint.manifest.record import FORMAT_VERSION

HERE = Path(__file__).parent
ROOTS = sorted(HERE.glob("format-*"))


def golden_state():
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.golden_state()


def test_every_format_version_has_a_golden_checkpoint():
    assert [root.name for root in ROOTS] == [f"format-{version}" for version in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_a_golden_checkpoint_verifies_and_loads_bit_for_bit(root):
    info = mc.list_checkpoints(root)[0]
    state = mc.load(root, verify="full")

    assert mc.verify(root)[0].ok
    assert (info.step, info.metrics, info.metadata) == (3, {"val_loss": 0.25}, {"note": ["golden", None]})
    assert f"format-{info.version.partition('.')[0]}" == root.name
    assert same(state, golden_state())


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_tensors_of_a_golden_checkpoint_share_their_memory_again(root):
    state = mc.load(root)

    state["model"]["weight"].zero_()
    state["numpy"]["base"][:] = 0

    assert not state["model"]["tied"].any()
    assert not state["model"]["row"].any()
    assert not state["numpy"]["view"].any()


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_a_golden_checkpoint_fills_live_objects(root):
    live = {"model": {"weight": torch.zeros(3, 4)}, "numpy": {"big": np.zeros(2, dtype=">u2")}, "step": 0}

    with pytest.warns(mc.CheckpointWarning, match=r"not loaded: model\.tied"):
        mc.load(root, into=live, strict=False, atomic=True)

    assert same(live["model"]["weight"], golden_state()["model"]["weight"])
    assert live["numpy"]["big"].tolist() == [1, 2]
    assert live["step"] == 3
