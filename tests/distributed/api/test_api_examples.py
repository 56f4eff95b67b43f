"""The names people import, and the three examples they copy."""

import asyncio
import inspect

import pytest
import torch

import model_checkpoint as mc
from model_checkpoint import distributed
from model_checkpoint.distributed import (
    CheckpointFormat,
    DistributedCheckpoint,
    DistributedCheckpointFactory,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
)

NAMES = [
    "DistributedCheckpoint",
    "DistributedCheckpointFactory",
    "SaveOptions",
    "LoadOptions",
    "CheckpointFormat",
    "CompressionLevel",
    "CheckpointLoadResult",
    "CheckpointInfo",
    "CheckpointException",
    "ExceptionType",
    "CheckpointOptions",
    "StorageOptions",
    "StorageFactory",
    "RetryPolicy",
    "FaultToleranceHandler",
    "CheckpointValidator",
    "ValidationResult",
    "DistributedCoordinator",
    "CheckpointStorage",
    "Stateful",
    "StateDict",
    "ShardData",
    "TensorMetadata",
    "CheckpointMetadata",
    "CheckpointCoordinator",
    "CheckpointLoader",
    "IntegrityChecker",
    "CompatibilityChecker",
    "LocalCoordinator",
    "TorchCoordinator",
    "MpiCoordinator",
    "JaxCoordinator",
    "Shard",
]


@pytest.fixture
def training():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_imported_from_the_room(name):
    assert getattr(distributed, name) is not None


def test_one_class_has_one_name():
    assert distributed.CheckpointInfo is mc.CheckpointInfo
    assert distributed.CheckpointException is mc.CheckpointException
    assert distributed.DistributedCoordinator is distributed.Coordinator


def test_the_constructor_takes_the_four_parts_by_position():
    names = list(inspect.signature(DistributedCheckpoint).parameters)

    assert names[:5] == ["coordinator", "storage", "fault_handler", "validator", "logger"]


def test_the_blocking_examples_run(training, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    coordinator, (model, optimizer) = LocalCoordinator(), training
    truth = model.weight.detach().clone()

    checkpoint = DistributedCheckpointFactory.create(coordinator)
    checkpoint.save(
        model,
        optimizer,
        SaveOptions(checkpoint_prefix="model_epoch_100", format=CheckpointFormat.MULTI_SHARD, include_rng_state=True),
    )

    torch.nn.init.zeros_(model.weight)
    checkpoint = DistributedCheckpointFactory.create(coordinator)
    result = checkpoint.load(
        model, optimizer, LoadOptions(checkpoint_prefix="model_epoch_100", resharding_strategy="parallel")
    )

    checkpoint = DistributedCheckpointFactory.create(coordinator)
    checkpoints = checkpoint.list_checkpoints()
    for info in checkpoints:
        print(f"{info.prefix} - {info.timestamp} - {info.world_size} GPUs")

    assert torch.equal(model.weight, truth)
    assert torch.equal(result.model_state["weight"], truth)
    assert capsys.readouterr().out == f"model_epoch_100 - {checkpoints[0].timestamp} - 1 GPUs\n"
    assert (tmp_path / "checkpoints" / "checkpoints" / "model_epoch_100" / "manifest.json").exists()


def test_the_awaited_examples_run(training, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    coordinator, (model, optimizer) = LocalCoordinator(), training
    truth = model.weight.detach().clone()

    async def main():
        checkpoint = DistributedCheckpointFactory.create(coordinator)
        await checkpoint.save_async(model, optimizer, SaveOptions(checkpoint_prefix="model_epoch_100"))
        await checkpoint.save_model_only_async(model, SaveOptions(checkpoint_prefix="weights"))
        torch.nn.init.zeros_(model.weight)
        result = await checkpoint.load_async(model, optimizer, LoadOptions(checkpoint_prefix="model_epoch_100"))
        before = await checkpoint.list_checkpoints_async()
        await checkpoint.delete_checkpoint_async("weights")
        return result, before, await checkpoint.list_checkpoints_async()

    result, before, after = asyncio.run(main())

    assert torch.equal(model.weight, truth)
    assert result.source_world_size == 1
    assert sorted(info.prefix for info in before) == ["model_epoch_100", "weights"]
    assert [info.prefix for info in after] == ["model_epoch_100"]
