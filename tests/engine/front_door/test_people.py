"""What a person reads when something is wrong: where, what, and what to do next. And what the log says."""

import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

import model_checkpoint as mc
from model_checkpoint import errors
from model_checkpoint.manifest import decode, encode
from model_checkpoint.testing.crash import run_in_child


def test_an_unknown_type_names_its_path_and_the_codec_call(tmp_path):
    with pytest.raises(errors.UnsupportedType, match=r"model\.layers\[1\].*register_codec"):
        mc.save(tmp_path, {"model": {"layers": [1, object()]}}, step=1)
    assert not (tmp_path / ".staging").exists() or not list((tmp_path / ".staging").iterdir())


def test_no_such_root(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"runs/none: no such checkpoint root\. Check the path"):
        mc.load(tmp_path / "runs/none")


def test_no_committed_checkpoint(tmp_path):
    with pytest.raises(errors.CheckpointNotFound, match="no committed checkpoint"):
        mc.load(tmp_path)


def test_no_such_step_lists_those_there_are(tmp_path):
    for step in (1, 5):
        mc.save(tmp_path, {"a": step}, step=step)

    with pytest.raises(errors.WrongReference, match=r"no step 3; there are 2: 5, 1\."):
        mc.load(tmp_path, step=3)


def test_no_such_metric_suggests_the_nearest(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1, metrics={"val_loss": 0.5})

    with pytest.raises(errors.WrongReference, match=r"known: val_loss\. Did you mean 'val_loss'\?"):
        mc.load(tmp_path, best="val_los")


def test_two_choices_at_once_are_refused(tmp_path):
    with pytest.raises(ValueError, match="one of step=, id=, best="):
        mc.load(tmp_path, step=1, best="x")


def test_an_existing_step_is_refused_before_anything_is_staged(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1)

    with pytest.raises(errors.StepExists, match=r'already committed; pass overwrite="damaged" .*overwrite=True'):
        mc.save(tmp_path, {"a": 2}, step=1)
    assert mc.load(tmp_path) == {"a": 1}


def test_only_a_damaged_checkpoint_is_replaced_when_asked_so(tmp_path):
    mc.save(tmp_path, {"w": np.zeros(5)}, step=1)
    with pytest.raises(errors.StepExists, match="it is healthy, so it is kept"):
        mc.save(tmp_path, {"w": np.ones(5)}, step=1, overwrite="damaged")
    path = next((tmp_path / "checkpoints/step-00000001").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")

    mc.save(tmp_path, {"w": np.ones(5)}, step=1, overwrite="damaged")

    assert np.array_equal(mc.load(tmp_path)["w"], np.ones(5))


def test_a_newer_format_asks_for_an_upgrade(tmp_path):
    info = mc.save(tmp_path, {"a": 1}, step=1)
    path = Path(info.path) / "manifest.json"
    newer = msgspec.structs.replace(decode(path.read_bytes(), ""), format_version=7, min_reader=7)
    path.write_bytes(encode(newer))

    with pytest.raises(errors.IncompatibleVersion, match=r"step-00000001: written in format 7.*pip install -U"):
        mc.load(tmp_path)
    assert "written in format 7" in mc.list_checkpoints(tmp_path)[0].problem


def test_an_unreadable_manifest_is_never_passed_over_in_silence(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1)
    newest = mc.save(tmp_path, {"a": 2}, step=2)
    (Path(newest.path) / "manifest.json").write_bytes(b"garbage")

    with pytest.raises(errors.ManifestInvalid, match=r"step-00000002: the manifest cannot be used.*fallback=True"):
        mc.load(tmp_path)
    with pytest.warns(mc.CheckpointWarning, match=r"passed over: .*step-00000002: ManifestInvalid"):
        assert mc.load(tmp_path, fallback=True) == {"a": 1}


@pytest.mark.slow
def test_a_full_disk_is_known_before_the_first_byte(tiny_disk):
    mc.save(tiny_disk, {"a": 1}, step=1)
    with pytest.raises(errors.DiskFull, match=r"needs \d+ bytes, \d+ are free") as caught:
        mc.save(tiny_disk, {"w": np.zeros(1 << 20)}, step=2)
    assert caught.value.needed > 8 << 20 > caught.value.free
    assert "brought back" not in str(caught.value)  # there is nothing to bring back
    assert mc.load(tiny_disk) == {"a": 1}
    mc.save(tiny_disk, {"w": np.zeros(50_000)}, step=2)
    mc.delete(f"{tiny_disk}@2")
    with pytest.raises(errors.DiskFull, match=r"brought back take 4\d{5} bytes: `mckpt gc --trash /"):
        mc.save(tiny_disk, {"w": np.zeros(80_000)}, step=3)
    assert not list((tiny_disk / ".staging").glob("*"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_permission_denied_names_the_path(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)

    def save_as_nobody(calls):
        os.setuid(65534)
        mc.save(closed / "root", {"a": 1}, step=1)

    error = run_in_child(save_as_nobody).error

    assert isinstance(error, errors.PermissionRefused)
    assert re.search(r"/root.*the system refuses it.*Check owner, mode and mount options", str(error))


def test_not_enough_memory_is_said_before_it_hurts(tmp_path, monkeypatch):
    mc.save(tmp_path, {"w": np.zeros(1 << 20)}, step=1)
    monkeypatch.setattr("model_checkpoint.engine.reading.load.available_bytes", lambda: 1000)

    with pytest.raises(MemoryError, match=r"needs 8388608 bytes of memory, 1000 are available.*mmap=True"):
        mc.load(tmp_path)


def test_a_wrong_shape_is_reported_with_both_sides_and_nothing_changes(tmp_path):
    mc.save(tmp_path, {"model": nn.Linear(3, 4)}, step=1)
    live = nn.Linear(3, 5)
    before = live.weight.detach().clone()

    with pytest.raises(errors.StructureMismatch, match=r"model\.weight: saved \[4, 3\], live \[5, 3\]"):
        mc.load(tmp_path, into={"model": live})
    assert torch.equal(live.weight, before)


def test_a_wrong_dtype_is_never_cast(tmp_path):
    mc.save(tmp_path, {"w": torch.zeros(3)}, step=1)

    for strict in (True, False):
        with pytest.raises(errors.StructureMismatch, match="w: saved float32, live int32"):
            mc.load(tmp_path, into={"w": torch.ones(3, dtype=torch.int32)}, strict=strict)


def test_missing_and_unexpected_leaves_come_with_the_nearest_name_and_the_cures(tmp_path):
    mc.save(tmp_path, {"model": {"weight": torch.zeros(3)}, "epoch": 1}, step=1)

    with pytest.raises(
        errors.StructureMismatch, match=r"strict=False(.|\n)*model\.weigth \(nearest: model\.weight\)"
    ) as caught:
        mc.load(tmp_path, into={"model": {"weigth": torch.zeros(3)}, "epoch": 0})
    assert caught.value.report.missing == ["model.weigth"]


def test_an_idle_part_pattern_is_an_error(tmp_path):
    mc.save(tmp_path, {"model": 1, "epoch": 2}, step=1)

    with pytest.raises(errors.StructureMismatch, match=r"parts modle name nothing in it; its parts are epoch, model"):
        mc.load(tmp_path, parts=["modle"])


def test_a_wrong_step_or_metric_is_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match="whole number of 0 or more, got -1"):
        mc.save(tmp_path, {}, step=-1)
    with pytest.raises(TypeError, match="metric 'loss' must be a number, got str"):
        mc.save(tmp_path, {}, step=1, metrics={"loss": "low"})


def test_delete_deletes_nothing_by_default(tmp_path):
    mc.save(tmp_path, {"a": 1}, step=1)

    with pytest.raises(ValueError, match="say which checkpoint to delete"):
        mc.delete(tmp_path)


def test_the_log_tells_start_end_bytes_fallbacks_and_failures(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="model_checkpoint")
    mc.save(tmp_path, {"a": np.zeros(3)}, step=1)
    info = mc.save(tmp_path, {"a": np.zeros(3)}, step=2)
    next(Path(info.path).glob("*.safetensors")).unlink()
    with pytest.warns(mc.CheckpointWarning, match="passed over"):
        mc.load(tmp_path, fallback=True)
    with pytest.raises(errors.CheckpointException, match="evil"):
        mc.save(tmp_path, {"a": np.zeros(3)}, step=3, name="../evil")

    said = {(r.levelname, r.name.rpartition(".")[2]): r.getMessage() for r in caplog.records}
    assert any("saved 4120 bytes in" in r.getMessage() for r in caplog.records)
    assert "loaded 24 bytes in" in said["INFO", "load"]
    assert any(r.getMessage().startswith("falling back to") for r in caplog.records)
    assert "step-00000001: loaded, but it is not the checkpoint asked for" in said["WARNING", "load"]
    assert "save failed" in said["ERROR", "save"]


def test_nothing_is_printed(tmp_path, capfd):
    mc.save(tmp_path, {"a": np.zeros(3)}, step=1)
    mc.load(tmp_path)
    mc.verify(tmp_path)

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda root: mc.save(root, {}, step=2, overwrite="yes"), r'overwrite must be True, False or "damaged", got'),
        (lambda root: mc.save(root, {}, step=2, overwrite=1), r"overwrite must be .*got 1"),
        (lambda root: mc.save(root, {}, step=2, incremental="no"), r"incremental must be True or False, got 'no'"),
        (lambda root: mc.save(root, {}, step=2, compression="zip"), r"compression must be none, fast, .*got 'zip'"),
        (lambda root: mc.save(root, {}, step=2, progress="bar"), r"progress must be .*a callable, got 'bar'"),
        (lambda root: mc.save_async(root, {}, step=2, lazy=None), r"lazy must be True or False, got None"),
        (lambda root: mc.save_async(root, {}, step=2, overwrite="no"), r"overwrite must be .*got 'no'"),
        (lambda root: mc.load(root, mmap=0), r"mmap must be True or False, got 0"),
        (lambda root: mc.load(root, strict="no"), r"strict must be True or False, got 'no'"),
        (lambda root: mc.load(root, fallback="yes"), r"fallback must be"),
        (lambda root: mc.load(root, atomic=[]), r"atomic must be"),
        (lambda root: mc.load(root, verify=True), r'verify must be "fast", "full" or "off", got True'),
        (lambda root: mc.verify(root, progress=3), r"progress must be"),
    ],
)
def test_an_option_with_a_value_it_does_not_take_is_refused_by_name(tmp_path, call, problem):
    mc.save(tmp_path, {"epoch": 1}, step=1)

    with pytest.raises(errors.OptionInvalid, match=problem):
        call(tmp_path)

    assert [info.step for info in mc.list_checkpoints(tmp_path)] == [1]


def test_a_step_is_undeleted_whatever_its_folder_was_called(tmp_path):
    mc.save(tmp_path, {"epoch": 1}, step=7, name="before-the-change")
    mc.save(tmp_path, {"epoch": 2}, step=8, name="after-the-change")
    mc.delete(tmp_path, step=7)
    mc.delete(tmp_path, step=8)

    assert mc.undelete(tmp_path, step=7).prefix == "before-the-change"
    with pytest.raises(errors.WrongReference, match=r"nothing of step 7 in the trash.*mckpt trash"):
        mc.undelete(tmp_path, step=7)
    with pytest.raises(ValueError, match=r"by step= or name=, not by both"):
        mc.undelete(tmp_path, step=8, name="after-the-change")
    assert mc.load(tmp_path, step=7) == {"epoch": 1}


def test_a_step_whose_manifest_is_damaged_is_undeleted_by_the_name_of_its_folder(tmp_path):
    info = mc.save(tmp_path, {"epoch": 1}, step=7)
    (Path(info.path) / "manifest.json").write_bytes(b"{}")
    mc.delete(tmp_path, step=7)

    assert mc.undelete(tmp_path, step=7).problem


def test_a_save_returns_all_that_is_to_be_known_of_the_checkpoint(tmp_path):
    before = datetime.now(UTC)
    info = mc.save(
        tmp_path, {"w": np.zeros(3)}, step=7, metrics={"val_loss": 0.5}, metadata={"host": "a"}, format="single_file"
    )

    assert (info.prefix, info.version, info.world_size, info.step) == ("step-00000007", "1.0.0", 1, 7)
    assert info.format is mc.CheckpointFormat.SINGLE_FILE
    assert before <= info.timestamp <= datetime.now(UTC)
    assert info.size_bytes == sum(path.stat().st_size for path in Path(info.path).glob("*.safetensors"))
    assert Path(info.path) == tmp_path / "checkpoints" / "step-00000007"
    assert (info.metrics, info.metadata, info.problem) == ({"val_loss": 0.5}, {"host": "a"}, "")
    assert re.fullmatch(r"[0-9a-f]{32}", info.id)
    assert mc.list_checkpoints(tmp_path) == [info]


def test_the_plan_of_a_load_is_made_before_any_data_is_read(tmp_path):
    info = mc.save(tmp_path, {"layers": {"weight": np.zeros(3)}}, step=1)
    next(Path(info.path).glob("*.safetensors")).unlink()
    live = {"layers": {"wieght": np.ones(3)}}

    with pytest.raises(errors.StructureMismatch, match=r"missing: layers.wieght \(nearest: layers.weight\)") as caught:
        mc.load(tmp_path, into=live)

    assert caught.value.report.suggestions == [("layers.wieght", "layers.weight")]
    assert live["layers"]["wieght"].all()
