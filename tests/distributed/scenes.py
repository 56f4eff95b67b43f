"""What ranks do in tests: each function runs in every process of a group."""

import os
import random
import resource
import signal
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tests.distributed.counted_calls import CountedCalls
from tests.distributed.reading.cold_reads import ColdReads
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import model_checkpoint as mc
from model_checkpoint.distributed import Shard as RowsOf
from model_checkpoint.distributed import TorchCoordinator
from model_checkpoint.storage.local.store import LocalStore

PATIENCE = 30.0


def join(patience=PATIENCE):
    """Become a rank of a gloo group; the coordinator of it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return TorchCoordinator(patience=patience)


def network(width=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))


def wrapped(kind, world, width=8, seed=0):
    """The network under one kind of parallelism, and its mesh."""
    net = network(width, seed)
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if kind == "fsdp":
        for layer in (net[0], net[2]):
            fully_shard(layer)
        return fully_shard(net)
    names = ("replicate", "shard") if kind == "hsdp" else ("dp", "tp")
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=names)
    if kind == "hsdp":
        return fully_shard(net, mesh=mesh)
    parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return fully_shard(net, mesh=mesh["dp"]) if kind == "fsdp+tp" else net


def batch(step):
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randn(8, 5, generator=generator), torch.randn(8, 3, generator=generator)


def train(model, optimizer, steps):
    """One loss for each step; every rank sees the same data, so that any number of ranks computes the same."""
    losses = []
    for step in steps:
        inputs, wanted = batch(step)
        loss = nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def everything(model, optimizer):
    """All values of a model and its optimizer, unsharded, by name."""
    made = {name.removeprefix("module."): whole(p) for name, p in model.named_parameters()}
    for number, parameter in enumerate(model.parameters()):
        for key, value in optimizer.state[parameter].items():
            made[f"{number}.{key}"] = whole(value) if isinstance(value, torch.Tensor) else value
    return made


def save_trained(rank, world, folder, *, root, kind, width=8, steps=2, more=2):
    """Train, save, train on; tell the losses after the save."""
    coordinator = join()
    model = wrapped(kind, world, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, range(steps))
    torch.manual_seed(100 + rank)
    state = {"model": model, "optimizer": optimizer, "rng": mc.rng_state(), "step": steps}
    info = mc.save(root, state, step=steps, coordinator=coordinator)
    if rank == 0:
        torch.save({k: v for k, v in everything(model, optimizer).items()}, Path(root) / "truth.pt")
    else:
        everything(model, optimizer)
    seed = torch.rand(1).item()
    return {"world": info.world_size, "losses": train(model, optimizer, range(steps, steps + more)), "seed": seed}


def resume(rank, world, folder, *, root, kind, width=8, steps=2, more=2, rng=False):
    """Load into fresh objects, compare with what was saved, train on; tell the losses."""
    coordinator = join()
    model = wrapped(kind, world, width, seed=7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if steps:
        train(model, optimizer, range(1))  # a used optimizer takes a state as a fresh one does
    into = {"model": model, "optimizer": optimizer, "step": 0}
    if rng:
        into["rng"] = mc.rng_state()
    parts = None if rng else ["model", "optimizer", "step"]
    mc.load(root, into=into, parts=parts, coordinator=coordinator)
    seed = torch.rand(1).item()
    truth, mine = torch.load(Path(root) / "truth.pt"), everything(model, optimizer)
    assert truth.keys() == mine.keys()
    wrong = [name for name in truth if not torch.equal(torch.as_tensor(truth[name]), torch.as_tensor(mine[name]))]
    assert not wrong, wrong
    return {"step": into["step"], "losses": train(model, optimizer, range(steps, steps + more)), "seed": seed}


def seven_rows(rank, world, folder, *, root):
    """FSDP2 over tensor parallelism with seven rows on a (3, 2) mesh, whose spec tells other rows than ranks hold."""
    coordinator = join()
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("dp", "tp"))

    def layer(fill):
        net = nn.Sequential(nn.Linear(5, 7, bias=False))
        with torch.no_grad():
            net[0].weight.copy_(torch.arange(35.0).reshape(7, 5) if fill is None else torch.full((7, 5), fill))
        parallelize_module(net, mesh["tp"], {"0": ColwiseParallel()})
        return fully_shard(net, mesh=mesh["dp"])

    source, target = layer(None), layer(-1.0)
    mc.save(root, {"model": source}, step=1, coordinator=coordinator)
    mc.load(root, into={"model": target}, coordinator=coordinator)
    assert torch.equal(source[0].weight.to_local(), target[0].weight.to_local())
    return source[0].weight.to_local().reshape(-1).tolist()


LAYOUTS = {
    "rows": ((4,), [Shard(0)]),
    "columns": ((4,), [Shard(1)]),
    "copies": ((4,), [Replicate()]),
    "rows by columns": ((2, 2), [Shard(0), Shard(1)]),
    "twice rows": ((2, 2), [Shard(0), Shard(0)]),
    "copies of rows": ((2, 2), [Replicate(), Shard(0)]),
}


def reshard_all(rank, world, folder, *, root, shape):
    """Save a tensor in every layout, load each into every other; bytes must be those of the unsharded one."""
    coordinator = join()
    truth = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)

    def laid(name, values):
        sides, placements = LAYOUTS[name]
        return distribute_tensor(values.clone(), init_device_mesh("cpu", sides), placements)

    state = {name: laid(name, truth + i) for i, name in enumerate(LAYOUTS)}
    mc.save(root, state, step=1, coordinator=coordinator)
    for turn in range(len(LAYOUTS)):
        names = list(LAYOUTS)[turn:] + list(LAYOUTS)[:turn]
        into = {saved: laid(live, torch.zeros(shape)) for saved, live in zip(LAYOUTS, names, strict=True)}
        mc.load(root, into=into, coordinator=coordinator)
        for i, (name, tensor) in enumerate(into.items()):
            want = laid(names[i], truth + i).to_local()
            assert torch.equal(tensor.to_local(), want), (name, names[i])
    return True


def save_alone(rank, world, folder, *, root):
    """Every rank saves the same step without a coordinator, one after the other."""
    join()
    for turn in range(world):
        if turn == rank:
            try:
                mc.save(root, {"a": 1}, step=1)
                said = "saved"
            except mc.CheckpointException as error:
                said = str(error)
        dist.barrier()
    return said


def save_to_own_folder(rank, world, folder, *, root):
    """The ranks are given one root, but each means a disk of its own."""
    coordinator = join()
    try:
        mc.save(Path(root) / str(rank), {"a": 1}, step=1, coordinator=coordinator)
    except mc.CheckpointException as error:
        return f"{type(error).__name__}: {error}"
    return "saved"


def save_in_halves(rank, world, folder, *, root):
    """Two groups of two ranks save apart, each to a root of its own; then all of them make a new group and save."""
    join()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("half", "shard"))["shard"]
    truth = torch.arange(12.0).reshape(6, 2) + 100 * (rank // 2)
    half = {"x": distribute_tensor(truth, mesh, [Shard(0)])}
    coordinator = TorchCoordinator(groups[rank // 2], patience=PATIENCE)
    place = Path(root) / f"half{rank // 2}"
    info = mc.save(place, half, step=1, coordinator=coordinator)
    live = {"x": distribute_tensor(torch.zeros(6, 2), mesh, [Shard(1)])}
    mc.load(place, into=live, coordinator=TorchCoordinator(groups[rank // 2], patience=PATIENCE))
    assert torch.equal(live["x"].to_local(), truth[:, rank % 2 : rank % 2 + 1])
    assert torch.equal(mc.load(place)["x"], truth)
    return info.world_size


def save_lazily(rank, world, folder, *, root):
    """Train on while each save is copied and written; then load every one, and compare with what it was at its call."""
    coordinator = join()
    model = wrapped("fsdp", world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, range(1))
    truths, jobs = [], []
    for step in range(3):
        state = {"model": model, "optimizer": optimizer, "rng": mc.rng_state(), "at": rank}
        truths.append(everything(model, optimizer))
        jobs.append(mc.save_async(root, state, step=step, coordinator=coordinator, lazy=True, busy="queue"))
        train(model, optimizer, range(step, step + 1))
    assert [job.result().step for job in jobs] == [0, 1, 2]
    for step, truth in enumerate(truths):
        fresh = wrapped("fsdp", world, seed=7)
        other = torch.optim.AdamW(fresh.parameters(), lr=0.1)
        into = {"model": fresh, "optimizer": other, "rng": mc.rng_state(), "at": -1}
        mc.load(root, step=step, into=into, coordinator=coordinator)
        mine = everything(fresh, other)
        assert all(torch.equal(torch.as_tensor(truth[name]), torch.as_tensor(mine[name])) for name in truth)
        assert into["at"] == rank
    return True


MESHES = {
    2: [(2,)],
    3: [(3,)],
    4: [(4,), (2, 2)],
    6: [(6,), (2, 3), (3, 2)],
    8: [(8,), (2, 4), (2, 2, 2)],
}
EVEN = 24  # rows that every mesh of two sides divides, so that strided shards are what their placements say


def random_truths(seed, turn):
    """Whole tensors, the same for everybody who knows the seed; the last ones are cut evenly by every mesh."""
    draw = random.Random(f"{seed} {turn}")
    shapes = [[draw.randint(1, 9) for _ in range(draw.randint(1, 3))] for _ in range(4)]
    shapes += [[EVEN, draw.randint(1, 5)], [draw.randint(1, 5), EVEN]]
    kinds = [draw.choice([torch.float32, torch.bfloat16, torch.int8, torch.float64]) for _ in shapes]
    return {
        f"x{i}": torch.arange(torch.Size(shape).numel()).reshape(shape).to(kind)
        for i, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
    }


def drawn_layout(draw, meshes, shape):
    """A mesh, and placements on it: any shards and replicas, or the strided shards of FSDP2 over tensor parallelism."""
    mesh, even = draw.choice(meshes), [dim for dim, side in enumerate(shape) if side == EVEN]
    if mesh.ndim == 2 and even and draw.random() < 0.7:
        return mesh, [_StridedShard(even[0], split_factor=mesh.size(1)), Shard(even[0])]
    return mesh, [draw.choice([Replicate(), *map(Shard, range(len(shape)))]) for _ in range(mesh.ndim)]


def laid_out(values, mesh, placements):
    """The values as a DTensor; strided shards are cut by the second side of the mesh, then by the first."""
    if not isinstance(placements[0], _StridedShard):
        return distribute_tensor(values.clone(), mesh, placements)
    local = values
    for side in (1, 0):
        local = local.chunk(mesh.size(side), placements[0].dim)[mesh.get_local_rank(side)]
    whole = {"shape": values.shape, "stride": values.stride()}
    return DTensor.from_local(local.clone().contiguous(), mesh, placements, run_check=False, **whole)


def save_random_layouts(rank, world, folder, *, root, seed, turns):
    """Save tensors on meshes and placements drawn at random."""
    coordinator, draw = join(), random.Random(f"{seed} saves")
    meshes = [init_device_mesh("cpu", sides) for sides in MESHES[world]]
    for turn in range(turns):
        truths = random_truths(seed, turn)
        state = {name: laid_out(truth, *drawn_layout(draw, meshes, truth.shape)) for name, truth in truths.items()}
        mc.save(root, state, step=turn, coordinator=coordinator)
    return True


def load_random_layouts(rank, world, folder, *, root, seed, turns):
    """Load each on others; bytes must be the truth's."""
    coordinator, draw = join(), random.Random(f"{seed} loads")
    meshes = [init_device_mesh("cpu", sides) for sides in MESHES[world]]
    for turn in range(turns):
        truths = random_truths(seed, turn)
        layouts = {name: drawn_layout(draw, meshes, truth.shape) for name, truth in truths.items()}
        into = {name: laid_out(torch.zeros_like(truth), *layouts[name]) for name, truth in truths.items()}
        mc.load(root, step=turn, into=into, coordinator=coordinator)
        alone = mc.load(root, step=turn)
        for name, truth in truths.items():
            want = laid_out(truth, *layouts[name]).to_local()
            assert torch.equal(into[name].to_local(), want), (seed, turn, name, layouts[name])
            assert torch.equal(alone[name], truth), (seed, turn, name)
    return True


def load_once(rank, world, folder, *, root, size, dies=None):
    """Load what all ranks want through one of them; tell how many bytes this one has read."""
    join()
    coordinator = TorchCoordinator(patience=6.0 if dies is not None else PATIENCE, exchange=True)
    if rank == dies:
        coordinator.exchange = lambda buffers: os.kill(os.getpid(), signal.SIGKILL)
    calls = CountedCalls()
    names = ["x0", "x1", "x2"]
    got = mc.load(LocalStore(root, calls=calls), parts=names, coordinator=coordinator)
    assert sum(got[name].nbytes for name in names) == size
    assert all((got[name] == np.arange(len(got[name]), dtype=np.uint8) + i).all() for i, name in enumerate(names))
    return calls.nbytes


def load_shown(rank, world, folder, *, root, ends="", number=3):
    """Load columns of what was saved in rows: each chunk holds some of every rank's. One rank may end midway."""
    coordinator = join(patience=3.0 if ends else PATIENCE)

    def before(read):
        if ends and rank == 1 and read == number:
            (Path(folder) / "midway").touch()
            os.kill(os.getpid(), signal.SIGKILL if ends == "kill" else signal.SIGSTOP)

    calls, whole = ColdReads(before), np.arange(24 << 20, dtype=np.float32).reshape(4096, -1)
    width = whole.shape[1] // world
    columns = RowsOf(np.zeros((4096, width), np.float32), global_shape=whole.shape, offsets=(0, width * rank))
    mc.load(LocalStore(root, calls=calls), into={"w": columns}, coordinator=coordinator)
    assert np.array_equal(columns.array, whole[:, width * rank : width * (rank + 1)])
    return calls.nbytes


def preempted(rank, world, folder, *, root):
    """Train until a signal comes, to whichever rank; then all save at the same step, and leave."""
    coordinator = join()
    model = wrapped("fsdp", world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    with mc.preemption(deadline=60.0) as notice:
        for step in range(1, 100_000):
            train(model, optimizer, [step])
            if step == 3:
                (Path(folder) / f"going-{rank}").touch()
            if notice.should_save(coordinator):
                state = {"model": model, "optimizer": optimizer, "step": step, "rank": rank}
                info = notice.save(root, state, step=step, coordinator=coordinator)
                again = notice.save(root, state, step=step, coordinator=coordinator)
                left, whole_model = notice.seconds_left(), everything(model, optimizer)
                if rank == 0:
                    torch.save(whole_model, Path(root) / "truth.pt")
                return {"step": step, "world": info.world_size, "same": again.id == info.id, "left": left}
    return None


def save_odd_tensors(rank, world, folder, *, root):
    """Sums that were not taken, rows that are not where the placements say, and the same of a strided layout."""
    coordinator = join()
    mesh = init_device_mesh("cpu", (world,))
    pair = init_device_mesh("cpu", (1, world), mesh_dim_names=("dp", "tp"))
    rows, whole = torch.zeros(3 - 2 * rank, 2), {"shape": torch.Size((4, 2)), "stride": (2, 1)}
    odd = [
        DTensor.from_local(torch.zeros(4, 2), mesh, [Partial()]),
        DTensor.from_local(rows, mesh, [Shard(0)], run_check=False, **whole),
        DTensor.from_local(rows, pair, [_StridedShard(0, split_factor=2), Shard(0)], run_check=False, **whole),
    ]
    told = []
    for tensor in odd:
        try:
            mc.save(root, {"x": tensor}, step=1, coordinator=coordinator)
            told.append("saved")
        except mc.CheckpointException as error:
            told.append(str(error))
    return told


def consolidate_rows(rank, world, folder, *, root, rank_bytes):
    """Save rows of one large array as a whole tensor; tell how much memory that took this rank at most."""
    coordinator = join()
    mc.save(root, {"warm": torch.arange(3 << 20)}, step=1, coordinator=coordinator)
    rows = np.zeros((rank_bytes >> 12, 1 << 10), np.float32)  # nobody writes to it, so that it takes no memory itself
    part = RowsOf(rows, global_shape=(world * len(rows), 1 << 10), offsets=(rank * len(rows), 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    whole = mc.CheckpointFormat.CONSOLIDATED
    mc.save(root, {"model": {"w": part}}, step=2, coordinator=coordinator, format=whole)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
