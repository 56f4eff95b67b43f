"""Saving, loading, listing and deleting by name: round trips, results, errors, turns and cancellation."""

import numpy as np
import pytest
import torch
from tests.distributed.threads import all_well, on_ranks, told

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CheckpointException,
    DistributedCheckpoint,
    ExceptionType,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
)
from model_checkpoint.errors import (
    CheckpointWarning,
    CorruptedCheckpoint,
    DiskFull,
    OptionInvalid,
    StructureMismatch,
    WrongReference,
)
from model_checkpoint.storage.local.store import LocalStore
from model_checkpoint.storage.local.syscalls import Syscalls

X = SaveOptions(checkpoint_prefix="x")
FROM_X = LoadOptions(checkpoint_prefix="x")


def trained(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    return model, optimizer


def same(one, other):
    """Whether two modules, or optimizers, have the same state."""
    first, second = one.state_dict(), other.state_dict()
    pairs = zip(torch.utils._pytree.tree_leaves(first), torch.utils._pytree.tree_leaves(second), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_what_was_saved_is_loaded_and_every_field_of_the_result_is_filled(tmp_path, world):
    truth, saved, live = trained(), [trained() for _ in range(world)], [trained(seed=1) for _ in range(world)]

    def save_and_load(coordinator):
        checkpoint, rank = DistributedCheckpoint(coordinator, tmp_path), coordinator.rank
        checkpoint.save(*saved[rank], SaveOptions(checkpoint_prefix="x", custom_metadata={"epoch": 3}))
        return live[rank], checkpoint.load(*live[rank], FROM_X)

    for (model, optimizer), result in all_well(on_ranks(world, save_and_load)):
        assert same(model, truth[0])
        assert same(optimizer, truth[1])
        assert torch.equal(result.model_state["0.weight"], truth[0][0].weight)
        assert result.optimizer_state["param_groups"][0]["lr"] == 0.1
        assert (result.source_world_size, result.target_world_size, result.was_resharded) == (world, world, False)
        assert result.metadata.prefix == "x"
        assert result.metadata.world_size == world
        assert result.metadata.version == "1.0.0"
        assert result.metadata.custom_fields == {"epoch": 3}
        assert set(result.metadata.parts) == {"model", "optimizer", "rng"}
        assert {shard.rank for shard in result.metadata.shards} <= set(range(world))
        shapes = {tensor.name: tensor.whole_shape for tensor in result.metadata.tensors}
        assert shapes["model.0.weight"] == (8, 4)
        files = [path for path in (tmp_path / "checkpoints" / "x").iterdir() if path.name != "manifest.json"]
        assert result.metadata.size_bytes == sum(path.stat().st_size for path in files)
        assert result.rng_restored
        assert result.warnings == ()


def test_a_model_alone_is_saved_and_its_load_leaves_the_optimizer_alone_and_says_so(tmp_path):
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path)
    (model, _), (live, optimizer), untouched = trained(), trained(seed=1), trained(seed=1)[1]
    checkpoint.save_model_only(model, X)

    with pytest.warns(CheckpointWarning, match="no optimizer"):
        result = checkpoint.load(live, optimizer, FROM_X)

    assert result.metadata.parts == ("model",)
    assert same(live, model)
    assert same(optimizer, untouched)
    assert result.optimizer_state is None
    assert "left as it is" in result.warnings[0]


def test_a_checkpoint_of_other_ranks_leaves_the_generators_and_says_so(tmp_path):
    def save(coordinator):
        DistributedCheckpoint(coordinator, tmp_path).save({"w": np.ones(2)}, {"m": 1}, X)

    all_well(on_ranks(2, save))
    with pytest.warns(CheckpointWarning, match="generators are those of 2 ranks, now there are 1"):
        result = DistributedCheckpoint(LocalCoordinator(), tmp_path).load({"w": np.zeros(2)}, {"m": 0}, FROM_X)

    assert not result.rng_restored
    assert result.was_resharded


def test_the_listing_tells_what_is_there_and_nothing_where_nothing_is(tmp_path):
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path / "new")
    assert checkpoint.list_checkpoints() == []
    assert not (tmp_path / "new").exists()

    for prefix in ("a", "b"):
        checkpoint.save({"w": np.ones(100)}, {"m": 1}, SaveOptions(checkpoint_prefix=prefix))
    found = {info.prefix: info for info in checkpoint.list_checkpoints()}

    assert [info.prefix for info in checkpoint.list_checkpoints()] == ["b", "a"]
    info = found["a"]
    assert (info.version, info.world_size, info.format.value) == ("1.0.0", 1, "multi_shard")
    assert info.timestamp.tzinfo is not None
    assert info.size_bytes > 800


def test_one_rank_may_list_alone(tmp_path):
    def save_and_list(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        checkpoint.save({"w": 1}, {"m": 1}, X)
        return [info.prefix for info in checkpoint.list_checkpoints()] if coordinator.rank == 1 else None

    assert all_well(on_ranks(2, save_and_list, patience=5)) == [None, ["x"]]


def test_a_deletion_is_made_once_and_every_rank_learns_of_it(tmp_path):
    def save_and_delete(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        checkpoint.save({"w": 1}, {"m": 1}, X)
        checkpoint.delete_checkpoint("x")
        assert [info.prefix for info in checkpoint.list_checkpoints()] == []
        checkpoint.delete_checkpoint("x")

    error = told(on_ranks(3, save_and_delete))

    assert isinstance(error, WrongReference)
    assert "x: no such checkpoint; there are 0: none" in str(error)
    assert error.type is ExceptionType.STORAGE_ERROR
    assert error.checkpoint_path == str(tmp_path / "checkpoints" / "x")
    assert mc.list_checkpoints(tmp_path) == []
    assert mc.undelete(tmp_path, name="x").prefix == "x"


def test_deleting_where_nothing_is_raises(tmp_path):
    with pytest.raises(LookupError, match="no such checkpoint"):
        DistributedCheckpoint(LocalCoordinator(), tmp_path / "new").delete_checkpoint("x")


# --- errors ----------------------------------------------------------------------------------------------------------


class FailingDisk(Syscalls):
    def __init__(self, code):
        super().__init__()
        self.code = code

    def pwrite(self, fd, data, offset):
        raise OSError(self.code, "as the test will have it")


class Unwilling:
    """A model whose state cannot be had, or not be taken."""

    def __init__(self, *, gives=True):
        self.gives = gives

    def get_state_dict(self):
        if not self.gives:
            raise RuntimeError("out of order")
        return {"w": np.ones(2)}

    def load_state_dict(self, state):
        raise RuntimeError("not taken")


def test_a_full_disk_of_one_rank_is_raised_on_all(tmp_path):
    def save(coordinator):
        store = LocalStore(tmp_path, calls=FailingDisk(28)) if coordinator.rank == 1 else LocalStore(tmp_path)
        DistributedCheckpoint(coordinator, store).save({"w": np.ones((64, 64))}, {"m": 1}, X)

    error = told(on_ranks(3, save))

    assert isinstance(error, DiskFull)
    assert error.type is ExceptionType.STORAGE_ERROR
    assert str(error).startswith("rank 1 of 3: ")
    assert mc.list_checkpoints(tmp_path) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_state_that_cannot_be_had_is_raised_on_all(tmp_path, rank):
    def save(coordinator):
        model = Unwilling(gives=coordinator.rank != rank)
        DistributedCheckpoint(coordinator, tmp_path).save(model, {"m": 1}, X)

    error = told(on_ranks(2, save))

    assert f"rank {rank} of 2: RuntimeError: out of order" in str(error)
    assert error.type is ExceptionType.SAVE_FAILED
    assert error.checkpoint_path.endswith("/checkpoints/x")


def test_an_error_of_the_users_own_code_has_its_cause(tmp_path):
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path)
    with pytest.raises(CheckpointException, match="out of order") as caught:
        checkpoint.save(Unwilling(gives=False), {"m": 1}, X)
    assert isinstance(caught.value.inner_exception, RuntimeError)

    checkpoint.save(Unwilling(), {"m": 1}, X)
    with pytest.raises(CheckpointException, match="not taken") as caught:
        checkpoint.load(Unwilling(), {"m": 0}, FROM_X)
    assert caught.value.type is ExceptionType.LOAD_FAILED
    assert isinstance(caught.value.inner_exception, RuntimeError)


def test_a_checkpoint_that_is_not_there_is_raised_on_all(tmp_path):
    def load(coordinator):
        DistributedCheckpoint(coordinator, tmp_path).load({"w": 1}, {"m": 1}, LoadOptions(checkpoint_prefix="y"))

    error = told(on_ranks(2, load))

    assert isinstance(error, WrongReference)
    assert error.type is ExceptionType.LOAD_FAILED


@pytest.mark.parametrize("odd", [0, 2])
def test_damage_is_found_before_any_rank_changes_anything(tmp_path, odd):
    """The ranks share the files out, so only one of them sees it."""

    def save(coordinator):
        state = {"w": np.full((256, 256), 1.0), "own": np.full(1000, coordinator.rank)}
        DistributedCheckpoint(coordinator, tmp_path).save(state, {"m": 1}, X)

    all_well(on_ranks(3, save))
    files = sorted((tmp_path / "checkpoints" / "x").glob("*.safetensors"))
    files[odd].write_bytes(files[odd].read_bytes()[:-1] + b"?")
    live = [{"w": np.zeros((256, 256)), "own": np.zeros(1000, int)} for _ in range(3)]

    error = told(on_ranks(3, lambda one: DistributedCheckpoint(one, tmp_path).load(live[one.rank], {"m": 0}, FROM_X)))

    assert isinstance(error, CorruptedCheckpoint)
    assert error.type is ExceptionType.CORRUPTED_CHECKPOINT
    assert files[odd].name in str(error)
    assert not any(state["w"].any() or state["own"].any() for state in live)


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_a_state_that_does_not_fit_on_one_rank_changes_none(tmp_path, part):
    def save(coordinator):
        DistributedCheckpoint(coordinator, tmp_path).save({"w": np.ones(4)}, {"m": np.ones(4)}, X)

    all_well(on_ranks(2, save))
    live = [{"model": {"w": np.zeros(4)}, "optimizer": {"m": np.zeros(4)}} for _ in range(2)]
    live[1][part] = {key: np.zeros(5) for key in live[1][part]}

    error = told(on_ranks(2, lambda one: DistributedCheckpoint(one, tmp_path).load(*live[one.rank].values(), FROM_X)))

    assert isinstance(error, StructureMismatch)
    assert error.type is ExceptionType.VALIDATION_FAILED
    assert not any(value.any() for state in live for side in state.values() for value in side.values())


def test_ranks_that_ask_for_different_things_are_told(tmp_path):
    def save(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        checkpoint.save({"w": 1}, {"m": 1}, SaveOptions(checkpoint_prefix=f"x{coordinator.rank}"))

    error = told(on_ranks(2, save))

    assert isinstance(error, OptionInvalid)
    assert "rank 1 calls with checkpoint_prefix='x1', rank 0 with 'x0'" in str(error)


@pytest.mark.parametrize("prefix", ["../x", "a/b", "caf\u00e9"])
def test_a_prefix_that_could_leave_the_root_is_refused(tmp_path, prefix):
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path)

    with pytest.raises(CheckpointException, match="is not safe"):
        checkpoint.save({"w": 1}, {"m": 1}, SaveOptions(checkpoint_prefix=prefix))
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_a_save_without_an_optimizer_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="save_model_only"):
        DistributedCheckpoint(LocalCoordinator(), tmp_path).save({"w": 1}, None, X)
