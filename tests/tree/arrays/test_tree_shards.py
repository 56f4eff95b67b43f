"""Arrays of which other ranks have parts: what this rank has of them reaches the live parts, box by box."""

import numpy as np
import pytest
import torch
from tests.tree.carrying import read

from model_checkpoint.errors import NeedsCoordinator, OptionInvalid, StructureMismatch, UnsupportedType
from model_checkpoint.manifest import Entry
from model_checkpoint.state import ShardTarget
from model_checkpoint.tree import flatten, prepare
from model_checkpoint.tree.arrays.shards.marker import Shard, ShardParts


def entries_of(flat):
    """What a manifest says of the leaves."""
    return [
        Entry(leaf.name, leaf.kind, leaf.dtype, leaf.shape, leaf.stored, leaf.stored_shape, 0, 0, leaf.nbytes, "")
        for leaf in flat.leaves
    ]


def carried(state, into, **options):
    """Carry the parts of this rank to live parts that lie alike; return the targets by name."""
    flat = flatten(state)
    restore = prepare(flat.tree, entries_of(flat), into=into, **options)
    targets = {}
    for index in restore.needed:
        leaf, target = flat.leaves[index], restore.target(index)
        targets[leaf.name] = target
        if isinstance(target, ShardTarget):
            for buffer, part in zip(target.buffers, leaf.sharding.arrays, strict=True):
                buffer[:] = part.source.window(0, part.source.nbytes)
        else:
            target.put(0, memoryview(read(leaf, np.random.default_rng(0))))
    restore.finish()
    return targets


def made(kind, values):
    return torch.tensor(values, dtype=torch.float32) if kind == "torch" else np.array(values, dtype=np.float32)


def part(array, offsets=(2, 0), whole=(4, 3)):
    return Shard(array, global_shape=whole, offsets=offsets)


SAVED = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
ZEROS = [[0.0] * 3] * 2


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("live", "options", "direct"),
    [
        (lambda kind: made(kind, ZEROS), {}, True),
        (lambda kind: made(kind, ZEROS), {"atomic": True}, False),
        (lambda kind: made(kind, [[0.0] * 2] * 3).T, {}, False),
        (lambda kind: made(kind, [[0.0] * 6] * 2)[:, ::2], {}, False),
    ],
    ids=["contiguous", "atomic", "transposed", "every second"],
)
def test_what_a_rank_has_of_an_array_fills_the_live_part(kind, live, options, direct):
    array = live(kind)

    targets = carried({"w": part(made(kind, SAVED))}, {"w": part(array)}, **options)

    assert array.tolist() == SAVED
    assert targets["w"].live is direct


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_live_part_may_have_another_dtype_if_that_is_wanted(kind):
    live = made(kind, ZEROS)
    live = live.to(torch.float64) if kind == "torch" else live.astype("f8")

    carried({"w": part(made(kind, SAVED))}, {"w": part(live)}, cast=True)

    assert live.tolist() == SAVED


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_one_array_met_twice_is_stored_once_and_fills_two_live_ones(kind):
    array, live = made(kind, SAVED), [made(kind, ZEROS), made(kind, ZEROS)]

    targets = carried([part(array), part(array)], [part(live[0]), part(live[1])])

    assert len(targets) == 1
    assert [one.tolist() for one in live] == [SAVED, SAVED]


def test_two_live_ones_over_one_memory_are_filled_once():
    array, live = made("numpy", SAVED), made("numpy", ZEROS)

    carried([part(array), part(array)], [part(live), part(live)])

    assert live.tolist() == SAVED


def test_one_array_does_not_fill_live_ones_that_lie_differently():
    array, live = made("numpy", SAVED), [made("numpy", ZEROS), made("numpy", ZEROS)]

    with pytest.raises(StructureMismatch, match=r"\n  0: saved these are one array, live they lie diff.*: 0, 1"):
        carried([part(array), part(array)], [part(live[0]), part(live[1], offsets=(1, 0))])
    with pytest.raises(StructureMismatch, match="lie differently on the ranks"):
        carried([part(array), part(array)], [part(live[0]), np.zeros((4, 3), np.float32)])


def test_a_read_only_part_is_refused():
    live = made("numpy", ZEROS)
    live.flags.writeable = False

    with pytest.raises(StructureMismatch, match=r"w: the live array is read-only"):
        carried({"w": part(made("numpy", SAVED))}, {"w": part(live)})


def test_any_number_of_parts_is_told_in_the_order_of_their_places():
    rows = [part(made("numpy", [row]), offsets=(i, 0)) for i, row in ((3, SAVED[1]), (0, SAVED[0]))]
    empty = part(np.empty((0, 3), np.float32), offsets=(1, 0))
    several = ShardParts([*rows, empty], global_shape=(4, 3), like=rows[0].array)

    (leaf,) = flatten([several]).leaves

    regions = [(region.offsets, region.sizes) for region in leaf.sharding.layout.regions]
    assert regions == [((0, 0), (1, 3)), ((3, 0), (1, 3))]
    held = [np.frombuffer(one.source.window(0, one.source.nbytes), np.float32).tolist() for one in leaf.sharding.arrays]
    assert held == SAVED
    assert (leaf.shape, leaf.nbytes, leaf.sharding.declared) == ((4, 3), 48, False)


def test_no_part_at_all_has_a_dtype_and_no_region():
    none = ShardParts([], global_shape=(4, 3), like=np.empty(0, np.float16))

    (leaf,) = flatten([none]).leaves

    assert (leaf.dtype, leaf.shape, leaf.sharding.layout.regions) == ("float16", (4, 3), ())


def test_an_empty_part_takes_no_region():
    (leaf,) = flatten([part(np.empty((0, 3), np.float32))]).leaves

    assert leaf.sharding.layout.regions == ()


@pytest.mark.parametrize(
    ("offsets", "whole"), [((3, 0), (4, 3)), ((2, 1), (4, 3)), ((-1, 0), (4, 3)), ((0,), (4, 3)), ((0, 0), (4,))]
)
def test_a_part_that_does_not_lie_in_the_whole_is_refused(offsets, whole):
    with pytest.raises(OptionInvalid, match=r"Shard: a part of shape \[2, 3\] at .* does not lie in an array of shape"):
        part(made("numpy", SAVED), offsets=offsets, whole=whole)


@pytest.mark.parametrize("array", [np.zeros(2, ">f4"), torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)])
def test_a_part_of_what_is_no_native_number_is_refused(array):
    with pytest.raises(UnsupportedType, match=r"w: a Shard holds a NumPy array or a torch tensor of native numbers"):
        flatten({"w": Shard(array, global_shape=(4,), offsets=(0,))})


def test_a_part_of_what_is_no_array_is_refused():
    odd = type("Odd", (), {"shape": (2,)})()

    with pytest.raises(UnsupportedType, match=r"w: a Shard holds a NumPy array or a torch tensor, got Odd"):
        flatten({"w": Shard(odd, global_shape=(4,), offsets=(0,))})
    with pytest.raises(UnsupportedType, match=r"w: a Shard holds a NumPy array or a torch tensor, got Odd"):
        flatten({"w": ShardParts([], global_shape=(4,), like=odd)})


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_fresh_memory_is_taken_for_the_part_of_this_rank_only(kind):
    flat = flatten({"w": part(made(kind, SAVED))})
    entries = [Entry("w", kind, "float32", (4, 3), "F32", None, 0, 0, 48, "")]

    direct = prepare(flat.tree, entries, into={"w": part(made(kind, ZEROS))})
    staged = prepare(flat.tree, entries, into={"w": part(made(kind, ZEROS))}, atomic=True)

    assert (direct.fresh_bytes(), staged.fresh_bytes()) == (0, 24)
    assert direct.shard_names() == ["w"]
    assert list(staged.layouts()) == [0]
    ((shape, layout, here),) = staged.laid_out()
    assert (shape, layout.regions[0].offsets, here) == ((4, 3), (2, 0), [(2, 3)])
    assert not staged.adopt(0, memoryview(bytearray(48)))
    assert prepare(["a", 0], entries).fresh_bytes() == 48


def test_nobody_has_all_bytes_of_it():
    (leaf,) = flatten([part(made("numpy", SAVED))]).leaves

    with pytest.raises(NeedsCoordinator, match=r"shape \[4, 3\] is spread over many ranks. Pass coordinator="):
        leaf.source.window(0, 4)


def test_a_part_says_what_it_is():
    assert repr(part(made("numpy", SAVED))) == "Shard(ndarray[2, 3] at (2, 0) of (4, 3))"


@pytest.fixture(scope="module")
def mesh():
    """A world of one rank."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    torch.distributed.destroy_process_group()


def spread(mesh, values, placement=None):
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(torch.tensor(values), mesh, [placement or Replicate()])


class Hooked(torch.nn.Module):
    """Loads through its own load_state_dict."""

    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.register_load_state_dict_post_hook(lambda *_: None)


@pytest.mark.parametrize("options", [{}, {"atomic": True}])
@pytest.mark.parametrize("wrap", [lambda tensor: {"w": tensor}, lambda tensor: {"m": Hooked(tensor)}])
def test_a_dtensor_is_filled_in_its_place(mesh, wrap, options):
    from torch.distributed.tensor import Shard as Sharded

    live = wrap(spread(mesh, ZEROS, Sharded(0)))

    carried(wrap(spread(mesh, SAVED, Sharded(0))), live, **options)

    weight = live["w"] if "w" in live else live["m"].weight
    assert weight.to_local().tolist() == SAVED
    assert [str(one) for one in weight.placements] == ["S(0)"]


def test_a_module_of_fsdp_takes_the_bytes_in_its_place(mesh):
    from torch.distributed.fsdp import fully_shard

    saved, live = (fully_shard(torch.nn.Linear(3, 2), mesh=mesh) for _ in range(2))

    targets = carried({"m": saved}, {"m": live})

    assert [target.live for target in targets.values()] == [True, True]
    assert live.weight.to_local().tolist() == saved.weight.to_local().tolist()


def test_the_state_of_an_optimizer_lies_as_its_parameters_do(mesh):
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as Sharded

    def made(steps):
        weight = torch.nn.Parameter(spread(mesh, SAVED, Sharded(0)))
        optimizer = torch.optim.Adam([weight])
        for _ in range(steps):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        return optimizer

    saved, live = made(2), made(1)

    carried({"o": saved}, {"o": live})

    (want,), (have,) = saved.state.values(), live.state.values()
    assert isinstance(have["exp_avg"], DTensor)
    assert [str(one) for one in have["exp_avg"].placements] == ["S(0)"]
    assert have["exp_avg"].to_local().tolist() == want["exp_avg"].to_local().tolist()
    assert have["step"] == want["step"]


def test_the_step_count_of_a_parameter_without_axes_stays_a_plain_tensor(mesh):
    optimizer = torch.optim.Adam([torch.nn.Parameter(spread(mesh, 3.0))])
    optimizer.param_groups[0]["params"][0].grad = spread(mesh, 1.0)
    optimizer.step()
    flat = flatten({"o": optimizer})
    (step,) = [number for number, leaf in enumerate(flat.leaves) if leaf.name.endswith("step")]

    target = prepare(flat.tree, entries_of(flat), into={"o": optimizer}).target(step)

    assert not isinstance(target, ShardTarget)


def test_a_dtensor_tells_its_mesh_placements_and_flags(mesh):
    from torch.distributed.tensor import Shard as Sharded

    weight = torch.nn.Parameter(spread(mesh, SAVED, Sharded(1)))
    frozen = torch.nn.Parameter(spread(mesh, SAVED), requires_grad=False)
    flat = flatten([weight, frozen, spread(mesh, SAVED).requires_grad_()])
    layout = flat.leaves[0].sharding.layout

    assert (layout.mesh, layout.ranks, layout.names) == ((1,), (0,), ("dp",))
    assert layout.placements[0].dim == 1
    assert flat.leaves[1].sharding.layout.placements[0] != layout.placements[0]
    assert [node[2] for node in flat.tree[1]] == ["p", "q", "g"]
    assert [leaf.frozen for leaf in flat.leaves] == [False, True, False]


def test_sums_that_were_not_taken_are_refused(mesh):
    from torch.distributed.tensor import Partial

    with pytest.raises(UnsupportedType, match=r"w: a Partial DTensor holds sums that were not taken yet"):
        flatten({"w": spread(mesh, SAVED, Partial())})
