"""Every option of a save and a load has an effect."""

import errno
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import torch
from tests.distributed.threads import all_well, on_ranks, told
from tests.ground.stored.stored_files import flip

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CheckpointException,
    CheckpointFormat,
    CompressionLevel,
    DistributedCheckpoint,
    ExceptionType,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
    Shard,
)
from model_checkpoint.errors import CheckpointWarning, StepExists, StructureMismatch
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls


@pytest.fixture
def checkpoint(tmp_path):
    return DistributedCheckpoint(LocalCoordinator(), tmp_path)


def states(fill=1.0):
    return {"w": np.full((64, 64), fill, np.float32)}, {"m": np.full((64, 64), fill * 2, np.float32), "step": int(fill)}


def folder(tmp_path, prefix="x"):
    return tmp_path / "checkpoints" / prefix


def data_files(tmp_path):
    return sorted(path.name for path in folder(tmp_path).iterdir() if path.suffix == ".safetensors")


# --- saving ----------------------------------------------------------------------------------------------------------


def test_the_prefix_is_the_folder(checkpoint, tmp_path):
    assert checkpoint.save(*states(), SaveOptions(checkpoint_prefix="model_epoch_100")) == "model_epoch_100"

    assert (folder(tmp_path, "model_epoch_100") / "manifest.json").exists()


def test_without_a_prefix_it_is_the_time_of_rank_0_and_unique(tmp_path):
    def save_twice(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        return [checkpoint.save(*states()) for _ in range(3)]

    before = datetime.now(UTC).replace(microsecond=0)
    first, second = all_well(on_ranks(2, save_twice))

    assert first == second
    assert len(set(first)) == 3
    stamps = [datetime.strptime(name[:26], "checkpoint_%Y%m%d_%H%M%S").replace(tzinfo=UTC) for name in first]
    assert all(before <= stamp <= datetime.now(UTC) for stamp in stamps)


def test_a_single_file_is_one_file(checkpoint, tmp_path):
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x", format=CheckpointFormat.SINGLE_FILE))

    assert len(data_files(tmp_path)) == 1
    assert checkpoint.list_checkpoints()[0].format is CheckpointFormat.SINGLE_FILE


def test_a_consolidated_checkpoint_has_the_index_other_tools_read(checkpoint, tmp_path):
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x", format=CheckpointFormat.CONSOLIDATED))

    assert (folder(tmp_path) / "model.safetensors.index.json").exists()
    assert checkpoint.list_checkpoints()[0].format is CheckpointFormat.CONSOLIDATED


@pytest.mark.parametrize("level", [CompressionLevel.FAST, CompressionLevel.BALANCED, CompressionLevel.MAXIMUM])
def test_compression_makes_it_smaller_and_loses_nothing(checkpoint, level):
    for prefix, wanted in (("plain", CompressionLevel.NONE), ("x", level)):
        options = SaveOptions(checkpoint_prefix=prefix, compression_level=wanted, include_rng_state=False)
        checkpoint.save(*states(), options)
    sizes = {info.prefix: info.size_bytes for info in checkpoint.list_checkpoints()}

    model, optimizer = states(0.0)
    checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="x"))

    assert sizes["x"] < sizes["plain"] / 4
    assert np.all(model["w"] == 1)


def test_the_optimizer_and_the_generators_are_saved_only_if_asked_for(checkpoint, tmp_path):
    kept = {"all": {}, "no_optimizer": {"include_optimizer": False}, "no_rng": {"include_rng_state": False}}
    for prefix, options in kept.items():
        checkpoint.save(*states(), SaveOptions(checkpoint_prefix=prefix, **options))

    parts = {prefix: {part.name for part in mc.describe(f"{tmp_path}@{prefix}").parts} for prefix in kept}
    assert parts["all"] == {"model", "optimizer", "rng"}
    assert parts["no_optimizer"] == {"model", "rng"}
    assert parts["no_rng"] == {"model", "optimizer"}


def test_custom_metadata_keeps_any_json_value(checkpoint):
    said = {"epoch": 3, "lr": 0.1, "big": 2**70, "tags": ["a", None, True], "nested": {"x": {"y": [1, [2]]}}, "": ""}

    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x", custom_metadata=said))
    result = checkpoint.load(*states(0.0), LoadOptions(checkpoint_prefix="x"))

    assert checkpoint.list_checkpoints()[0].metadata == said
    assert result.metadata.custom_fields == said


def test_a_used_prefix_is_refused_unless_it_may_be_overwritten(tmp_path):
    def save(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        checkpoint.save(*states(1.0), SaveOptions(checkpoint_prefix="x"))
        with pytest.raises(StepExists, match="already committed") as caught:
            checkpoint.save(*states(2.0), SaveOptions(checkpoint_prefix="x"))
        checkpoint.save(*states(3.0), SaveOptions(checkpoint_prefix="x", overwrite=True))
        return caught.value.type, caught.value.checkpoint_path

    assert all_well(on_ranks(2, save)) == [(ExceptionType.SAVE_FAILED, str(folder(tmp_path)))] * 2
    assert np.all(mc.load(tmp_path)["model"]["w"] == 3)


@pytest.mark.parametrize("format", list(CheckpointFormat))
def test_a_used_prefix_may_be_overwritten_in_every_format(tmp_path, format):
    def save(ranks):
        for fill in (1.0, 2.0):
            options = SaveOptions(checkpoint_prefix="x", format=format, overwrite=True)
            DistributedCheckpoint(ranks, tmp_path).save(*states(fill), options)

    all_well(on_ranks(2, save))

    assert np.all(mc.load(tmp_path, parts=["model", "optimizer"])["optimizer"]["m"] == 4)
    assert [health.ok for health in mc.verify(tmp_path)] == [True]


def test_a_consolidated_prefix_is_not_overwritten_where_folders_cannot_change_places(tmp_path):
    """As on NFS; told before a byte is written, and the old one stays."""

    class Network(Syscalls):
        def exchange(self, one, other):
            raise OSError(errno.EINVAL, "Invalid argument")

    def save(ranks):
        checkpoint = DistributedCheckpoint(ranks, LocalStore(tmp_path, calls=Network()))
        options = SaveOptions(checkpoint_prefix="x", format=CheckpointFormat.CONSOLIDATED, overwrite=True)
        for fill in (1.0, 2.0):
            checkpoint.save(*states(fill), options)

    error = told(on_ranks(2, save))

    assert type(error) is StepExists
    assert "index of a consolidated model has a fixed name" in str(error)
    assert "Delete the old one first" in str(error)
    assert np.all(mc.load(tmp_path, parts="model")["model"]["w"] == 1)
    assert list((tmp_path / ".staging").iterdir()) == []


def test_what_is_damaged_may_be_replaced_and_nothing_else(tmp_path):
    again = SaveOptions(checkpoint_prefix="x", overwrite="damaged")

    def save(value):
        def work(coordinator):
            DistributedCheckpoint(coordinator, tmp_path).save(*states(value), again)

        return on_ranks(2, work)

    all_well(save(1.0))
    assert "it is healthy, so it is kept" in str(told(save(2.0)))
    file = next(folder(tmp_path).glob("*.safetensors"))
    flip(file)
    all_well(save(3.0))

    assert np.all(mc.load(tmp_path)["model"]["w"] == 3)
    assert all(health.ok for health in mc.verify(tmp_path))


class SlowDisk(Syscalls):
    """Moves bytes so slowly that a second is over before they are there."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def pwrite(self, fd, data, offset):
        self.clock.advance()
        return super().pwrite(fd, data, offset)

    def preadv(self, fd, buffer, offset):
        self.clock.advance()
        return super().preadv(fd, buffer, offset)


@pytest.fixture
def hours(monkeypatch):
    """A clock of call limits that a slow disk moves on by an hour."""

    class Clock:
        now = 0.0

        def advance(self):
            self.now += 3600

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr("model_checkpoint.distributed.calling.call_limit.time", clock)
    return clock


@pytest.mark.parametrize("timeout", [60, timedelta(minutes=1), None])
def test_a_save_that_takes_longer_than_its_timeout_is_undone(tmp_path, hours, timeout):
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=SlowDisk(hours)))

    with pytest.raises(CheckpointException, match=r"the save took longer than (60|600) s") as caught:
        checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x", timeout=timeout))

    assert isinstance(caught.value, TimeoutError)
    assert caught.value.type is ExceptionType.TIMEOUT
    assert mc.list_checkpoints(tmp_path) == []
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x", timeout=timedelta(days=9)))


# --- loading ---------------------------------------------------------------------------------------------------------


def test_a_load_that_takes_longer_than_its_timeout_says_so(tmp_path, hours):
    DistributedCheckpoint(LocalCoordinator(), tmp_path).save(*states(), SaveOptions(checkpoint_prefix="x"))
    checkpoint = DistributedCheckpoint(LocalCoordinator(), LocalStore(tmp_path, calls=SlowDisk(hours)))

    with pytest.raises(CheckpointException, match="the load took longer than 60 s") as caught:
        checkpoint.load(*states(0.0), LoadOptions(checkpoint_prefix="x", timeout=60))
    result = checkpoint.load(*states(0.0), LoadOptions(checkpoint_prefix="x", timeout=timedelta(days=9)))

    assert caught.value.type is ExceptionType.TIMEOUT
    assert result.source_world_size == 1


def test_the_prefix_says_what_is_loaded(checkpoint):
    for fill in (1.0, 2.0):
        checkpoint.save(*states(fill), SaveOptions(checkpoint_prefix=f"x{fill:g}"))
    model, optimizer = states(0.0)

    checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="x1"))

    assert np.all(model["w"] == 1)
    assert optimizer["step"] == 1


@pytest.mark.parametrize("options", [None, LoadOptions(), LoadOptions(load_optimizer=False)])
def test_a_load_without_a_prefix_is_refused(checkpoint, options):
    with pytest.raises(ValueError, match=r"LoadOptions\(checkpoint_prefix=\.\.\.\)"):
        checkpoint.load(*states(), options)


def test_the_optimizer_is_loaded_only_if_asked_for(checkpoint):
    checkpoint.save(*states(1.0), SaveOptions(checkpoint_prefix="x"))
    model, optimizer = states(5.0)

    result = checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="x", load_optimizer=False))

    assert np.all(model["w"] == 1)
    assert np.all(optimizer["m"] == 10)
    assert result.optimizer_state is None
    assert result.warnings == ()


@pytest.mark.parametrize("wanted", [True, False])
def test_the_generators_are_set_only_if_asked_for(checkpoint, wanted):
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x"))
    first = random.random(), np.random.random(), torch.rand(1).item()

    result = checkpoint.load(*states(), LoadOptions(checkpoint_prefix="x", load_rng_state=wanted))

    assert result.rng_restored is wanted
    assert (first == (random.random(), np.random.random(), torch.rand(1).item())) is wanted


def rows(coordinator, whole):
    """This rank's rows of an array, as a state."""
    size = -(-len(whole) // coordinator.world_size)
    start = coordinator.rank * size
    part = whole[start : start + size].copy()
    return {"w": Shard(part, global_shape=whole.shape, offsets=(start, 0))}


class CountingDisk(Syscalls):
    def __init__(self):
        super().__init__()
        self.nbytes = 0

    def preadv(self, fd, buffer, offset):
        count = super().preadv(fd, buffer, offset)
        self.nbytes += count
        return count


@pytest.mark.slow
def test_both_strategies_load_the_same_and_read_differently(tmp_path):
    whole = np.arange(4096 * 1024, dtype=np.float32).reshape(4096, 1024)  # 16 MiB

    def save(coordinator):
        return DistributedCheckpoint(coordinator, tmp_path).save_model_only(
            rows(coordinator, whole), SaveOptions(checkpoint_prefix="x")
        )

    read = {}
    all_well(on_ranks(1, save))
    for strategy in ("parallel", "simple"):

        def load(coordinator, strategy=strategy):
            disk, live = CountingDisk(), rows(coordinator, np.zeros_like(whole))
            checkpoint = DistributedCheckpoint(coordinator, LocalStore(tmp_path, calls=disk, direct=False))
            options = LoadOptions(
                checkpoint_prefix="x", resharding_strategy=strategy, skip_validation=True, load_optimizer=False
            )
            result = checkpoint.load(live, None, options)
            assert np.array_equal(live["w"].array, rows(coordinator, whole)["w"].array)
            assert (result.source_world_size, result.target_world_size, result.was_resharded) == (1, 4, True)
            return disk.nbytes

        read[strategy] = all_well(on_ranks(4, load))

    assert max(read["parallel"]) < 1.3 * whole.nbytes / 4
    assert min(read["simple"]) >= whole.nbytes


def test_an_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="resharding_strategy='clever': expected 'parallel' or 'simple'"):
        LoadOptions(checkpoint_prefix="x", resharding_strategy="clever")


def test_validation_is_skipped_only_if_asked_for(checkpoint, tmp_path):
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x", include_rng_state=False))
    (file,) = (path for path in folder(tmp_path).iterdir() if path.suffix == ".safetensors")
    flip(file)  # the last byte is of the optimizer or the model; only what is read is noticed without validation
    model, optimizer = states(5.0)

    with pytest.raises(CheckpointException, match="Checkpoint validation failed") as caught:
        checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="x"))
    assert caught.value.type is ExceptionType.CORRUPTED_CHECKPOINT
    assert np.all(model["w"] == 5)
    with pytest.raises(CheckpointException, match="does not have the recorded digest") as caught:
        checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="x", skip_validation=True))
    assert "Checkpoint validation failed" not in str(caught.value)


def test_keys_of_one_side_are_errors_or_warnings_by_the_mode(checkpoint):
    checkpoint.save({"w": np.ones(3), "old": np.ones(2)}, {"m": 1}, SaveOptions(checkpoint_prefix="x"))
    model = {"w": np.zeros(3), "new": np.zeros(2)}

    with pytest.raises(StructureMismatch, match="nothing was changed") as caught:
        checkpoint.load(model, {"m": 0}, LoadOptions(checkpoint_prefix="x"))
    assert caught.value.type is ExceptionType.VALIDATION_FAILED
    assert np.all(model["w"] == 0)
    with pytest.warns(CheckpointWarning, match="not all of it fits"):
        result = checkpoint.load(model, {"m": 0}, LoadOptions(checkpoint_prefix="x", strict_mode=False))

    assert np.all(model["w"] == 1)
    assert "model.new" in result.warnings[0]
    assert "model.old" in result.warnings[0]


def test_values_of_other_ranks_are_taken_from_the_rank_that_is_named(tmp_path):
    def save(coordinator):
        own = {"w": np.ones(2), "seed": 100 + coordinator.rank}
        DistributedCheckpoint(coordinator, tmp_path).save_model_only(own, SaveOptions(checkpoint_prefix="x"))

    all_well(on_ranks(2, save))
    checkpoint, model = DistributedCheckpoint(LocalCoordinator(), tmp_path), {"w": np.zeros(2), "seed": 0}
    with pytest.raises(StructureMismatch, match=r"model\.seed"):
        checkpoint.load(model, None, LoadOptions(checkpoint_prefix="x", load_optimizer=False))

    checkpoint.load(model, None, LoadOptions(checkpoint_prefix="x", load_optimizer=False, per_rank=1))

    assert model["seed"] == 101
