"""Defaults, values that are refused, and what the factory passes on."""

from datetime import timedelta

import pytest
from tests.distributed.api.test_api_options import states
from tests.distributed.threads import on_ranks

from model_checkpoint.distributed import (
    CheckpointException,
    CheckpointFormat,
    CheckpointOptions,
    CompressionLevel,
    DistributedCheckpoint,
    DistributedCheckpointFactory,
    LoadOptions,
    LocalCoordinator,
    RetryPolicy,
    SaveOptions,
    StorageOptions,
    ValidationResult,
)
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.storage.local.syscalls import SYSTEM


def test_the_defaults_are_those_that_are_documented():
    save, load, every, retry = SaveOptions(), LoadOptions(), CheckpointOptions(), RetryPolicy()

    assert (save.checkpoint_prefix, save.format, save.compression_level) == (
        None,
        CheckpointFormat.MULTI_SHARD,
        CompressionLevel.NONE,
    )
    assert (save.include_optimizer, save.include_rng_state, save.timeout) == (True, True, None)
    assert (save.custom_metadata, save.overwrite) == ({}, False)
    assert (load.checkpoint_prefix, load.load_optimizer, load.load_rng_state) == (None, True, True)
    assert (load.resharding_strategy, load.timeout, load.skip_validation, load.strict_mode) == (
        "parallel",
        None,
        False,
        True,
    )
    assert every.default_timeout == timedelta(minutes=10)
    assert every.storage == StorageOptions(provider="local", connection_settings={"basePath": "./checkpoints"})
    assert (retry.max_retries, retry.initial_delay, retry.max_delay, retry.backoff_factor) == (3, 1.0, 30.0, 2.0)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: SaveOptions(timeout=0), "timeout=0"),
        (lambda: SaveOptions(timeout=True), "timeout=True"),
        (lambda: SaveOptions(checkpoint_prefix=" "), "checkpoint_prefix=' '"),
        (lambda: SaveOptions(include_optimizer="no"), "include_optimizer='no'"),
        (lambda: LoadOptions(timeout=timedelta(0)), "timeout="),
        (lambda: LoadOptions(checkpoint_prefix=""), "checkpoint_prefix=''"),
        (lambda: LoadOptions(strict_mode=1), "strict_mode=1"),
        (lambda: CheckpointOptions(default_timeout=-1), "default_timeout=-1"),
        (lambda: RetryPolicy(max_retries=-1), "max_retries=-1"),
        (lambda: RetryPolicy(backoff_factor=0.5), "backoff_factor=0.5"),
        (lambda: DistributedCheckpoint(None), "coordinator=None"),
        (lambda: DistributedCheckpoint(LocalCoordinator(), default_timeout=0), "default_timeout=0"),
    ],
)
def test_a_value_an_option_does_not_take_is_refused(make, what):
    with pytest.raises(ValueError, match=what):
        make()


def test_the_factory_passes_place_and_checkers_on(tmp_path):
    asked = []

    class Listed:
        name = "listed"

        def check_compatibility(self, metadata):
            asked.append(metadata.prefix)
            return ValidationResult()

    options = CheckpointOptions(
        storage=StorageOptions(connection_settings={"basePath": str(tmp_path / "place")}),
        integrity_checkers=[],
        compatibility_checkers=[Listed()],
    )
    checkpoint = DistributedCheckpointFactory.create(LocalCoordinator(), options)
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x"))
    for path in (tmp_path / "place" / "checkpoints" / "x").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")

    with pytest.raises(CheckpointException, match="digest"):  # no checker looked; the load itself did
        checkpoint.load(*states(), LoadOptions(checkpoint_prefix="x"))
    assert asked == ["x"]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (StorageOptions(provider="tape"), "provider='tape': expected local"),
        (StorageOptions(connection_settings={}), "lack 'basePath'"),
        (StorageOptions(connection_settings={"basePath": "x", "basepath": "y"}), "'basepath', which nothing reads"),
    ],
)
def test_a_storage_nobody_knows_is_refused(options, what):
    with pytest.raises(OptionInvalid, match=what):
        DistributedCheckpointFactory.create(LocalCoordinator(), CheckpointOptions(storage=options))


def test_the_factory_passes_the_retry_policy_on(tmp_path, monkeypatch):
    tries = []

    def preadv(fd, buffer, offset):
        tries.append(offset)
        raise OSError(5, "for ever")

    storage = StorageOptions(connection_settings={"basePath": str(tmp_path)})
    policy = RetryPolicy(max_retries=4, initial_delay=1e-6, backoff_factor=1)
    options = CheckpointOptions(storage=storage, retry_policy=policy)
    checkpoint = DistributedCheckpointFactory.create(LocalCoordinator(), options)
    checkpoint.save(*states(), SaveOptions(checkpoint_prefix="x"))
    monkeypatch.setattr(SYSTEM, "preadv", preadv, raising=False)

    with pytest.raises(CheckpointException, match="Input/output error"):
        checkpoint.load(*states(), LoadOptions(checkpoint_prefix="x", skip_validation=True))
    assert len(tries) == 5


def test_the_factory_passes_the_default_timeout_on(tmp_path):
    storage = StorageOptions(connection_settings={"basePath": str(tmp_path)})
    options = CheckpointOptions(storage=storage, default_timeout=timedelta(milliseconds=300))

    def save(coordinator):
        if coordinator.rank == 0:
            DistributedCheckpointFactory.create(coordinator, options).save(*states())

    assert "0.3 s" in str(on_ranks(2, save, patience=300)[0])
