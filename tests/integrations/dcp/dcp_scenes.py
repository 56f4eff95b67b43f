"""What ranks do in the tests of the plug for DCP: each function runs in every process of a group."""

import logging
import os
import signal
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from tests.distributed import scenes
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import model_checkpoint as mc
from model_checkpoint.distributed import TorchCoordinator
from model_checkpoint.integrations.dcp import StorageReader, StorageWriter

PATIENCE = 30.0
ROWS = Shard(0)


def join(seconds=1800):
    warnings.simplefilter("ignore")
    logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    return init_device_mesh("cpu", (dist.get_world_size(),))


def writer(root, **how):
    return StorageWriter(root, patience=PATIENCE, **how)


def whole(shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def state(mesh, *, filled=True, rows=ROWS):
    def make(shape, placement):
        return distribute_tensor(whole(shape) if filled else torch.zeros(shape), mesh, [placement])

    return {
        "model": {
            "rows": make((10, 6), rows),
            "columns": make((5, 7), Shard(1)),
            "few": make((2, 3), Shard(0)),  # fewer rows than ranks: some have nothing
            "same": make((4, 4), Replicate()),
            "half": make((6, 2), Shard(0)).to(torch.bfloat16),
            "empty": make((0, 3), Replicate()),
            "plain": torch.ones(3) if filled else torch.zeros(3),
            "scalar": torch.tensor(2.0 if filled else 0.0),
        },
        "nested": [1, {"x": torch.full((2,), 5.0 if filled else 0.0)}],
        "words": {"names": ["a", "b"], "pair": (1, 2.5)} if filled else {"names": [], "pair": ()},
        "epoch": 3 if filled else 0,
    }


def same(one, other):
    """Whether two states are equal, tensors by what this rank has of them."""
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in other)
    if isinstance(other, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, DTensor):
        return torch.equal(one.to_local(), other.to_local())
    return torch.equal(one, other) if isinstance(other, torch.Tensor) else one == other


def failure(call):
    """The classes and texts of what every rank is told, if the call fails."""
    try:
        call()
    except CheckpointException as error:
        return sorted({f"{type(one).__name__}: {one}" for one, _ in error.failures.values()})
    except mc.CheckpointException as error:
        return [f"{type(error).__name__}: {error}"]
    return []


def save(rank, world, folder, *, root, how="plain"):
    mesh = join()
    made = state(mesh)
    if how == "async":
        dcp.async_save(made, storage_writer=writer(root, step=1)).result()
    elif how == "process":
        kind = AsyncCheckpointerType.PROCESS
        dcp.async_save(made, storage_writer=writer(root, step=1), async_checkpointer_type=kind).result()
    elif how == "uncollected":
        dcp.save(made, storage_writer=writer(root, step=1), use_collectives=False)
    elif how == "id":
        dcp.save(made, checkpoint_id=f"{root}/step-1", storage_writer=writer("nowhere"))
    else:
        dcp.save(made, storage_writer=writer(root, step=1, metrics={"loss": 0.5}))
    return loads(mesh, root)


def loads(mesh, root, **how):
    """Whether the checkpoint comes back into zeros as it was, rows also as columns."""
    found = []
    for rows in (Shard(0), Shard(1), Replicate()):
        target = state(mesh, filled=False, rows=rows)
        dcp.load(target, storage_reader=StorageReader(root, **how))
        found.append(same(target, state(mesh, rows=rows)))
    return found


def load(rank, world, folder, *, root):
    mesh = join()
    found = loads(mesh, root)
    target = state(mesh, filled=False)
    mc.load(root, into=target, coordinator=TorchCoordinator(patience=PATIENCE))
    return [*found, same(target, state(mesh))]


def load_by_id(rank, world, folder, *, root):
    mesh = join()
    target = state(mesh, filled=False)
    dcp.load(target, checkpoint_id=f"{root}/step-1", storage_reader=StorageReader("nowhere"))
    return same(target, state(mesh))


def cached_plans(rank, world, folder, *, root):
    """Three saves of one structure, whose plans DCP takes from its cache from the second on; values differ by rank."""
    mesh = join()
    planner = DefaultSavePlanner(enable_plan_caching=True)
    found = []
    for step in range(3):
        made = {**state(mesh), "epoch": step, "seed": 10 * step + rank}
        dcp.save(made, storage_writer=writer(root, step=step), planner=planner)
        target = {**state(mesh, filled=False), "seed": -1}
        dcp.load(target, storage_reader=StorageReader(root, step=step))
        found.append(same(target, {**state(mesh), "epoch": step, "seed": 10 * step + rank}))
    return found


def own_values(rank, world, folder, *, root):
    """Plain values of each rank's own, of one key and of keys that only one has."""
    join()
    made = {"seed": rank, "step": torch.tensor(float(rank)), "alike": torch.ones(2), f"only{rank}": rank}
    dcp.save(made, storage_writer=writer(root, step=1))
    target = {"seed": -1, "step": torch.tensor(-1.0), "alike": torch.zeros(2), f"only{rank}": -1}
    dcp.load(target, storage_reader=StorageReader(root))
    return same(target, made)


def load_own_values(rank, world, folder, *, root):
    join()
    other = {"alike": torch.zeros(2), "only3": -1}
    dcp.load(other, storage_reader=StorageReader(root))
    told = failure(lambda: dcp.load({"seed": -1}, storage_reader=StorageReader(root)))
    chosen = {"seed": -1, "step": torch.tensor(-1.0)}
    dcp.load(chosen, storage_reader=StorageReader(root, per_rank=2))
    return [float(other["alike"][1]), other["only3"], told, chosen["seed"], float(chosen["step"])]


def without_group(rank, world, folder, *, root):
    """no_dist=True on every rank: each has parts that nobody completes; whole tensors it may save, in its own root."""
    mesh = join()
    torn = failure(lambda: dcp.save({"rows": state(mesh)["model"]["rows"]}, storage_writer=writer(root), no_dist=True))
    mine = f"{root}/{rank}"
    dcp.save({"w": torch.full((2,), float(rank))}, storage_writer=writer(mine, step=1), no_dist=True)
    target = {"w": torch.zeros(2)}
    dcp.load(target, storage_reader=StorageReader(mine), no_dist=True)
    return [torn, target["w"].tolist()]


def half_groups(rank, world, folder, *, root):
    """Two groups of two ranks, each with a checkpoint of its own; a writer that was not told is refused."""
    join()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2]
    told = failure(lambda: dcp.save({"w": torch.ones(1)}, storage_writer=writer(root, step=1), process_group=mine))
    dcp.save(
        {"w": torch.ones(1)},
        storage_writer=writer(f"{root}/{rank // 2}", step=1, process_group=mine),
        process_group=mine,
    )
    return [told, mc.list_checkpoints(f"{root}/{rank // 2}")[0].world_size]


def failing_rank(rank, world, folder, *, root):
    """One rank cannot give its data; all ranks get its error, and the checkpoint before stays the newest."""
    mesh = join()

    class Broken(DefaultSavePlanner):
        def resolve_data(self, write_item):
            if rank == 2 and write_item.index.fqn == "model.rows":
                raise OSError(5, "the device is gone")
            return super().resolve_data(write_item)

    dcp.save(state(mesh), storage_writer=writer(root, step=1))
    told = failure(lambda: dcp.save(state(mesh), storage_writer=writer(root, step=2), planner=Broken()))
    return [told, [info.step for info in mc.list_checkpoints(root)]]


def killed_rank(rank, world, folder, *, root, victim):
    """One rank dies in the middle of its second save; DCP's own waiting for it ends with the group's patience."""
    mesh = join(seconds=4)
    dcp.save(state(mesh), storage_writer=writer(root, step=1))

    class Dying(DefaultSavePlanner):
        def resolve_data(self, write_item):
            if rank == victim and write_item.index.fqn.startswith("model"):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().resolve_data(write_item)

    try:
        dcp.save(state(mesh), storage_writer=StorageWriter(root, step=2, patience=2.0), planner=Dying())
    except BaseException as error:  # noqa: BLE001  # DCP's own is none of Exception
        return f"{type(error).__name__}"
    return "saved"


def train_through_dcp(rank, world, folder, *, root):
    """FSDP2 as torchtitan does it: two steps, a save, two more; then all again from the checkpoint."""
    join()

    def fresh():
        model = scenes.wrapped("fsdp", world)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    model, optimizer = fresh()
    scenes.train(model, optimizer, range(2))
    weights, moments = get_state_dict(model, optimizer)
    dcp.async_save({"model": weights, "optimizer": moments}, storage_writer=writer(root, step=2)).result()
    unbroken = scenes.train(model, optimizer, range(2, 4))
    return [unbroken, resumed(world, root)]


def resumed(world, root):
    model = scenes.wrapped("fsdp", world, seed=7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, storage_reader=StorageReader(root))
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return scenes.train(model, optimizer, range(2, 4))


def resume_through_dcp(rank, world, folder, *, root):
    join()
    return resumed(world, root)


def uneven_strides(rank, world, folder, *, root):
    """FSDP2 over tensor parallelism with seven rows: DCP's plan tells of other rows than the ranks hold."""
    join()
    model = scenes.wrapped("fsdp+tp", world, width=7)
    return failure(lambda: dcp.save({"model": model.state_dict()}, storage_writer=writer(Path(root), step=1)))
