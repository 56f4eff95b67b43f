"""What counts as damage: only what was read and found wrong. What cannot be judged is not replaced, nor passed over."""

import errno
import logging
from pathlib import Path

import msgspec
import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.manifest import decode, encode
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.testing import Fault, Kind
from model_checkpoint.testing.faults import FaultyCalls


class Refusing:
    """An object whose state cannot be loaded."""

    def state_dict(self):
        return {"value": 1}

    def load_state_dict(self, state):
        raise RuntimeError("not today")


def replace_damaged(root, calls):
    return mc.save(LocalStore(root, calls=calls), {"w": np.ones(5000)}, step=1, overwrite="damaged")


def test_a_checkpoint_of_a_newer_format_is_not_replaced_as_damaged(tmp_path):
    path = Path(mc.save(tmp_path, {"a": 1}, step=1).path) / "manifest.json"
    path.write_bytes(encode(msgspec.structs.replace(decode(path.read_bytes(), ""), format_version=7, min_reader=7)))
    before = path.read_bytes()

    with pytest.raises(errors.StepExists, match=r"cannot be judged here, so it is kept .*format 7.*overwrite=True"):
        mc.save(tmp_path, {"a": 2}, step=1, overwrite="damaged")

    assert path.read_bytes() == before
    assert [damage.unread for health in mc.verify(tmp_path) for damage in health.damage] == [True]


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("lasting", [False, True])
def test_no_failing_read_makes_a_healthy_checkpoint_be_replaced(tmp_path, code, lasting):
    mc.save(tmp_path, {"w": np.zeros(5000)}, step=1)
    whole = FaultyCalls()
    with pytest.raises(errors.StepExists, match="it is healthy, so it is kept"):
        replace_damaged(tmp_path, whole)

    for at in range(1, len(whole.trace) + 1):
        with pytest.raises((errors.StepExists, errors.StorageFailure), match=r"kept|could not|refuses"):
            replace_damaged(tmp_path, FaultyCalls(Fault(kind=Kind.FAIL, at=at, code=code, lasting=lasting)))

    assert len(whole.trace) > 5
    assert not mc.load(tmp_path)["w"].any()


def test_a_medium_that_fails_to_give_a_file_back_is_damage(tmp_path):
    mc.save(tmp_path, {"w": np.zeros(5000)}, step=1)
    (file,) = Path(mc.list_checkpoints(tmp_path)[0].path).glob("*.safetensors")
    file.unlink()

    mc.save(tmp_path, {"w": np.ones(5000)}, step=1, overwrite="damaged")

    assert mc.load(tmp_path)["w"].all()


def test_fallback_does_not_pass_over_a_healthy_checkpoint_that_an_object_refuses(tmp_path, caplog):
    for step in (1, 2):
        mc.save(tmp_path, {"w": np.full(3, step), "object": Refusing()}, step=step)
    live = {"w": np.zeros(3, np.int64), "object": Refusing()}

    with (
        caplog.at_level(logging.WARNING, "model_checkpoint"),
        pytest.raises(errors.PartlyLoaded, match=r"object: load_state_dict failed \(not today\)") as caught,
    ):
        mc.load(tmp_path, into=live, fallback=True)

    assert caught.value.replaced == ("w",)
    assert live["w"].tolist() == [2, 2, 2]
    assert caplog.messages == []


@pytest.mark.parametrize("word", ["step", "id", "best", "name"])
def test_verify_reads_only_the_checkpoint_that_was_chosen(tmp_path, word):
    chosen = mc.save(tmp_path, {"a": 1}, step=1, metrics={"loss": 1.0})
    mc.save(tmp_path, {"a": 2}, step=2, metrics={"loss": 2.0})
    words = {"step": 1, "id": chosen.id, "best": "loss", "name": Path(chosen.path).name}

    assert [health.info.id for health in mc.verify(tmp_path, **{word: words[word]})] == [chosen.id]


def test_files_that_are_gone_are_told_each_with_its_own_tensors(tmp_path):
    state = {"model": {"w": np.ones(3), "b": np.ones(2)}, "moments": {"m": np.ones(3)}}
    mc.save(tmp_path, state, step=1, format=mc.CheckpointFormat.CONSOLIDATED)
    for file in tmp_path.rglob("*.safetensors"):
        file.unlink()

    (health,) = mc.verify(tmp_path)

    told = {damage.file.startswith("model"): sorted(damage.tensors) for damage in health.damage}
    assert told == {True: ["b", "w"], False: ["moments.m"]}
