"""Checkpoints on disk: round trip, size, replacement, and every kind of bad file refused by name."""

import pytest
import torch
from tests.ground.stored.stored_files import flip
from tests.precision.precision_models import assert_same, bits, build, options, train, wrap

import model_checkpoint as mc
from model_checkpoint.errors import (
    CheckpointNotFound,
    CorruptedCheckpoint,
    StepExists,
    StructureMismatch,
    Truncated,
)
from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import to_tree
from model_checkpoint.precision.errors import CheckpointRefused, InvalidArgument


@pytest.fixture
def saved(run, tmp_path):
    Manager.save_checkpoint(Manager.create_checkpoint(run[1], metadata={"note": "x"}), tmp_path / "ck")
    return tmp_path / "ck"


def data_file(folder):
    return next(folder.rglob("*.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("fused", [False, True])
def test_a_run_resumed_from_disk_equals_the_unbroken_one(tmp_path, precision, fused):
    def make(seed):
        model = build(seed)
        chosen = options(precision, max_consecutive_overflows=2, recovery_steps=6)
        return model, wrap(model, lambda p: torch.optim.AdamW(p, lr=1e-2, fused=fused), chosen)

    model, optimizer = make(0)
    train(model, optimizer, range(6), spoil={3, 4})
    Manager.save_checkpoint(Manager.create_checkpoint(optimizer), tmp_path / "ck")
    unbroken = train(model, optimizer, range(6, 206))

    other, fresh = make(5)
    assert Manager.load_and_restore(fresh, tmp_path / "ck") == []
    resumed = train(other, fresh, range(6, 206))

    assert resumed == unbroken
    assert_same(bits(optimizer), bits(fresh))


def test_everything_comes_back_from_disk(run, saved):
    stored = Manager.load_checkpoint(saved)

    now = Manager.create_checkpoint(run[1], metadata={"note": "x"})
    first, second = to_tree(now), to_tree(stored)
    first.pop("timestamp")
    second.pop("timestamp")
    assert_same(first, second)
    assert Manager.validate_checkpoint(stored)


def test_an_adamw_checkpoint_takes_at_most_12_05_bytes_per_parameter(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024))
    optimizer = wrap(model, chosen=options("bf16"))
    optimizer.backward(model(torch.randn(2, 1024)).square().mean())
    optimizer.step()

    Manager.save_checkpoint(Manager.create_checkpoint(optimizer), tmp_path / "ck")

    count = sum(parameter.numel() for parameter in model.parameters())
    size = sum(file.stat().st_size for file in (tmp_path / "ck").rglob("*") if file.is_file())
    assert 12.0 <= size / count <= 12.05


def test_saving_again_replaces_and_the_folder_holds_one_checkpoint(run, saved):
    model, optimizer = run
    train(model, optimizer, range(8, 10))

    Manager.save_checkpoint(Manager.create_checkpoint(optimizer), saved)

    assert Manager.load_checkpoint(saved).step_count == 10
    assert len(mc.list_checkpoints(saved)) == 1


def test_blank_paths_and_none_are_refused(run):
    checkpoint = Manager.create_checkpoint(run[1])
    for blank in (None, "", "  "):
        with pytest.raises(InvalidArgument, match="save_checkpoint: filepath is"):
            Manager.save_checkpoint(checkpoint, blank)
        with pytest.raises(InvalidArgument, match="load_checkpoint: filepath is"):
            Manager.load_checkpoint(blank)
    with pytest.raises(InvalidArgument, match="save_checkpoint: checkpoint is None"):
        Manager.save_checkpoint(None, "somewhere")
    with pytest.raises(InvalidArgument, match="load_and_restore: optimizer is None"):
        Manager.load_and_restore(None, "somewhere")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(CheckpointNotFound, match="nothing-here"):
        Manager.load_checkpoint(tmp_path / "nothing-here")


def test_one_flipped_bit_is_found(saved):
    file = data_file(saved)
    flip(file)

    with pytest.raises(CorruptedCheckpoint, match=file.name):
        Manager.load_checkpoint(saved)


def test_a_truncated_file_is_found(saved):
    file = data_file(saved)
    file.write_bytes(file.read_bytes()[:-8])

    with pytest.raises(Truncated, match=file.name):
        Manager.load_checkpoint(saved)


def test_a_lost_data_file_is_found(saved):
    data_file(saved).unlink()

    with pytest.raises(CorruptedCheckpoint, match="safetensors"):
        Manager.load_checkpoint(saved)


def test_a_damaged_manifest_is_found(saved):
    manifest = next(saved.rglob("manifest.json"))
    manifest.write_text(manifest.read_text().replace("growth_tracker", "growth_hacker"))

    with pytest.raises(CorruptedCheckpoint, match="manifest"):
        Manager.load_checkpoint(saved)


def test_a_foreign_checkpoint_is_refused_by_name(tmp_path):
    mc.save(tmp_path / "run", {"model": torch.ones(2)}, step=1)

    with pytest.raises(CorruptedCheckpoint, match=r"run: mixed-precision checkpoint: this is something else.*'model'"):
        Manager.load_checkpoint(tmp_path / "run")


def test_a_folder_of_other_checkpoints_is_not_written_into(run, tmp_path):
    mc.save(tmp_path / "run", {"model": torch.ones(2)}, step=1)

    with pytest.raises(StepExists, match=r"holds other checkpoints \(step-00000001\)"):
        Manager.save_checkpoint(Manager.create_checkpoint(run[1]), tmp_path / "run")


def test_a_refused_file_leaves_the_optimizer_as_it_was(saved):
    model = torch.nn.Linear(3, 3)
    optimizer = wrap(model)
    before = bits(optimizer)

    with pytest.raises(CheckpointRefused, match="is in the optimizer but not in the checkpoint"):
        Manager.load_and_restore(optimizer, saved)

    assert_same(before, bits(optimizer))


def test_the_optimizer_is_saved_and_loaded_as_a_part_of_any_state(run, tmp_path):
    model, optimizer = run
    mc.save(tmp_path, {"model": model, "optimizer": optimizer, "epoch": 3}, step=8)
    other = build(seed=6)
    fresh = wrap(other)

    mc.load(tmp_path, into={"model": other, "optimizer": fresh, "epoch": 0})
    for one, its in ((optimizer, model), (fresh, other)):
        train(its, one, range(8, 40))

    assert_same(bits(optimizer), bits(fresh))


def test_the_optimizer_part_alone_brings_the_whole_model_back_even_in_fallback(run, tmp_path):
    model, optimizer = run
    optimizer.fallback_to_fp32()
    mc.save(tmp_path, {"optimizer": optimizer}, step=8)
    other = build(seed=6)
    fresh = wrap(other)

    mc.load(tmp_path, into={"optimizer": fresh})

    assert fresh.has_fallback
    assert torch.equal(other.mix.weight, model.mix.weight)
    assert_same(bits(optimizer), bits(fresh))


def test_a_part_that_does_not_fit_changes_nothing(run, tmp_path):
    mc.save(tmp_path, {"optimizer": run[1]}, step=8)
    model = torch.nn.Linear(3, 3)
    fresh = wrap(model)
    before = bits(fresh)

    with pytest.raises(StructureMismatch, match="optimizer"):
        mc.load(tmp_path, into={"optimizer": fresh})

    assert_same(before, bits(fresh))


def test_the_state_of_a_plain_optimizer_is_refused_with_the_way_to_take_it_over(run):
    plain = torch.optim.AdamW(build().parameters()).state_dict()

    with pytest.raises(CorruptedCheckpoint, match=r"It is of a plain optimizer: load it into opt.base_optimizer"):
        run[1].load_state_dict(plain)


def test_background_and_incremental_saves_hold_the_same_checkpoint(run, tmp_path):
    checkpoint = Manager.create_checkpoint(run[1])

    Manager.save_checkpoint(checkpoint, tmp_path / "blocking", incremental=True)
    Manager.save_checkpoint(checkpoint, tmp_path / "blocking", incremental=True)
    Manager.save_checkpoint_async(checkpoint, tmp_path / "background").result()

    for folder in ("blocking", "background"):
        assert_same(to_tree(Manager.load_checkpoint(tmp_path / folder)), to_tree(checkpoint))
