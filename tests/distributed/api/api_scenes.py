"""What ranks do through DistributedCheckpoint in tests: each function runs in every process of a gloo group."""

import os
import signal
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from tests.distributed.scenes import PATIENCE, batch, everything, join, network, train, wrapped
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType

import model_checkpoint as mc
from model_checkpoint.distributed import (
    CheckpointFormat,
    DistributedCheckpoint,
    LoadOptions,
    SaveOptions,
    TorchCoordinator,
)

KINDS = {
    "shards": CheckpointFormat.MULTI_SHARD,
    "file": CheckpointFormat.SINGLE_FILE,
    "hf": CheckpointFormat.CONSOLIDATED,
}


def save(rank, world, folder, *, root, format="shards"):
    """Train under FSDP2, save in the foreground and in the background, change, and load again on as many ranks."""
    checkpoint = DistributedCheckpoint(join(), root)
    model = wrapped("fsdp", world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, range(2))
    torch.manual_seed(100 + rank)
    named = checkpoint.save(model, optimizer)
    call = checkpoint.save_async(
        model, optimizer, SaveOptions(checkpoint_prefix="later", format=KINDS[format], custom_metadata={"epoch": 2})
    )
    seed = torch.rand(1).item()
    truth = everything(model, optimizer)
    if rank == 0:
        Path(root).mkdir(exist_ok=True)
        torch.save(truth, Path(root) / "truth.pt")
    train(model, optimizer, range(2, 3))
    assert call.result(60) == "later"
    result = checkpoint.load(model, optimizer, LoadOptions(checkpoint_prefix="later"))
    assert torch.rand(1).item() == seed
    assert not wrong(truth, everything(model, optimizer))
    listed = sorted(info.prefix for info in checkpoint.list_checkpoints())
    dist.barrier()
    checkpoint.delete_checkpoint(named)
    return {"named": named, "listed": listed, "worlds": [result.source_world_size, result.target_world_size]}


def wrong(truth, mine):
    """The names of values that differ."""
    assert truth.keys() == mine.keys()
    return [name for name in truth if not torch.equal(torch.as_tensor(truth[name]), torch.as_tensor(mine[name]))]


def load(rank, world, folder, *, root, strategy):
    """Load what another number of ranks saved."""
    warnings.simplefilter("ignore")
    checkpoint = DistributedCheckpoint(join(), root)
    model = wrapped("fsdp", world, seed=7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    result = checkpoint.load(
        model, optimizer, LoadOptions(checkpoint_prefix="later", resharding_strategy=strategy, load_rng_state=False)
    )
    assert not wrong(torch.load(Path(root) / "truth.pt"), everything(model, optimizer))
    assert result.metadata.custom_fields == {"epoch": 2}
    return [result.source_world_size, result.target_world_size, result.was_resharded]


def lose_a_rank(rank, world, folder, *, root, victim):
    """One rank is killed before it saves; the others tell what they raise, and what is left."""
    checkpoint = DistributedCheckpoint(join(), root)
    model = network()
    checkpoint.save_model_only(model, SaveOptions(checkpoint_prefix="first"))
    dist.barrier()
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        checkpoint.save_model_only(model, SaveOptions(checkpoint_prefix="second", timeout=4))
    except mc.CheckpointException as error:
        told = {"type": error.type.value, "path": error.checkpoint_path, "timeout": isinstance(error, TimeoutError)}
        return told | {"class": type(error).__name__, "ranks": list(error.ranks)}
    return "saved"


def fail_on_one(rank, world, folder, *, root):
    """The model of the last rank has another shape; all tell what they raise, and whether anything changed."""
    checkpoint = DistributedCheckpoint(join(), root)
    checkpoint.save_model_only(network(width=8), SaveOptions(checkpoint_prefix="x"))
    model = network(width=9 if rank == world - 1 else 8, seed=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        checkpoint.load(model, None, LoadOptions(checkpoint_prefix="x", load_optimizer=False))
    except mc.CheckpointException as error:
        told = {
            "class": type(error).__name__,
            "text": str(error),
            "type": error.type.value,
            "path": error.checkpoint_path,
        }
        return told | {"changed": bool(wrong(before, model.state_dict()))}
    return "loaded"


def fsdp1_states(world, *, mesh, seed):
    """A model under FSDP1 that was trained a little, and the states of it and its optimizer."""
    over = init_device_mesh("cpu", (world,)) if mesh else None
    model = FSDP(network(seed=seed), use_orig_params=True, device_mesh=over, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    FSDP.set_state_dict_type(
        model,
        StateDictType.SHARDED_STATE_DICT,
        ShardedStateDictConfig(_use_dtensor=mesh),
        ShardedOptimStateDictConfig(_use_dtensor=mesh),
    )
    for step in range(2):
        inputs, wanted = batch(step)
        nn.functional.mse_loss(model(inputs), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}


def fsdp1(rank, world, folder, *, root, mesh):
    """FSDP1: its ShardedTensors (or DTensors, over a mesh) are saved, changed and loaded again."""
    coordinator = join()
    model, saved = fsdp1_states(world, mesh=mesh, seed=0)
    _, live = fsdp1_states(world, mesh=mesh, seed=5)
    kinds = sorted({type(value).__name__ for value in saved["model"].values()})
    mc.save(root, saved, step=1, coordinator=coordinator)
    mc.load(root, into=live, coordinator=coordinator)
    for name, value in saved["model"].items():
        mine, other = _locals(value), _locals(live["model"][name])
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)), name
    for name, state in saved["optimizer"]["state"].items():
        for key, value in state.items():
            mine, other = _locals(value), _locals(live["optimizer"]["state"][name][key])
            assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)), (name, key)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        whole = model.state_dict()
    alone = mc.load(root, parts="model")["model"]
    assert not wrong({name: value.clone() for name, value in whole.items()}, dict(alone))
    return kinds


def fsdp1_elsewhere(rank, world, folder, *, root):
    """ShardedTensors of another number of ranks are filled each with its part of what was saved."""
    coordinator = join()
    _, live = fsdp1_states(world, mesh=False, seed=5)
    mc.load(root, into=live, coordinator=coordinator)
    alone = mc.load(root)
    pairs = [(value, alone["model"][name]) for name, value in live["model"].items()]
    for name, state in live["optimizer"]["state"].items():
        pairs += [(value, alone["optimizer"]["state"][name][key]) for key, value in state.items()]
    shards = [
        (shard, whole) for value, whole in pairs if hasattr(value, "local_shards") for shard in value.local_shards()
    ]
    for shard, whole in shards:
        place = zip(shard.metadata.shard_offsets, shard.metadata.shard_sizes, strict=True)
        assert torch.equal(shard.tensor, whole[tuple(slice(start, start + size) for start, size in place)])
    return sum(shard.tensor.numel() for shard, _ in shards)


def _locals(value):
    if hasattr(value, "local_shards"):
        return [shard.tensor for shard in value.local_shards()]
    return [value.to_local() if hasattr(value, "to_local") else torch.as_tensor(value)]


def dcp_states(rank, world, folder, *, root, kind):
    """What get_state_dict gives is saved, loaded into what it gives of other objects, and set."""
    coordinator = TorchCoordinator(patience=PATIENCE) if dist.is_initialized() else join()

    def made(seed):
        model = wrapped(kind, world, seed=seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        train(model, optimizer, range(2))
        return model, optimizer

    model, optimizer = made(0)
    names, moments = get_state_dict(model, optimizer)
    checkpoint = DistributedCheckpoint(coordinator, root)
    checkpoint.save(names, moments, SaveOptions(checkpoint_prefix="x"))
    other, stepped = made(5)
    live, state = get_model_state_dict(other), get_optimizer_state_dict(other, stepped)
    result = checkpoint.load(live, state, LoadOptions(checkpoint_prefix="x"))
    set_state_dict(other, stepped, model_state_dict=live, optim_state_dict=state)
    assert not wrong(everything(model, optimizer), everything(other, stepped))
    return sorted(result.metadata.parts)
