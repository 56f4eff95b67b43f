"""The optimizer and its checkpoint as ordinary parts of the engine: every way of saving, every store, several ranks."""

import threading
import uuid

import pytest
import torch
from tests.precision.precision_models import assert_same, bits, build, loss_of, options, train, wrap
from tests.precision.precision_ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import model_checkpoint as mc
from model_checkpoint.errors import CorruptedCheckpoint, StructureMismatch
from model_checkpoint.precision import MixedPrecisionCheckpointManager as Manager
from model_checkpoint.precision import from_tree, to_tree

MIB = 1 << 20
FALLING = {"max_consecutive_overflows": 2, "recovery_steps": 6}  # in FP32 after step 4, on probation after step 10


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def root(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return str(tmp_path / "run")
    if request.param == "memory":
        return f"memory://precision-{uuid.uuid4()}"
    for name, value in request.getfixturevalue("moto").environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{uuid.uuid4()}"


def make(seed=0, **changes):
    model = build(seed)
    return {"model": model, "optimizer": wrap(model, chosen=options(**changes)), "epoch": 3}


def go_on(state, steps):
    train(state["model"], state["optimizer"], steps, spoil={3, 4})


def save_plainly(root, state):
    return lambda: mc.save(root, state, step=8)


def save_compressed(root, state):
    return lambda: mc.save(root, state, step=8, compression=mc.CompressionLevel.BALANCED)


def save_incrementally(root, state):
    mc.save(root, state, step=7, incremental=True)
    return lambda: mc.save(root, state, step=8, incremental=True)


def save_in_background(root, state):
    return lambda: mc.save_async(root, state, step=8).result


def save_lazily(root, state):
    return lambda: mc.save_async(root, state, step=8, lazy=True, guard=[state["optimizer"]]).result


WAYS = [save_plainly, save_compressed, save_incrementally, save_in_background, save_lazily]


@pytest.mark.parametrize("fallen", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_part_saved_in_any_way_to_any_store_resumes_bit_for_bit(root, way, fallen):
    state, fresh = make(**FALLING), make(seed=5, **FALLING)
    go_on(state, range(8 if fallen else 3))
    assert state["optimizer"].has_fallback is fallen
    save = way(root, state)
    at_the_call = bits(state["optimizer"])
    wait = save()
    go_on(state, range(8, 30))
    if callable(wait):
        wait()

    mc.load(root, into=fresh)

    assert_same(at_the_call, bits(fresh["optimizer"]))
    go_on(fresh, range(8, 30))
    assert_same(bits(state["optimizer"]), bits(fresh["optimizer"]))
    assert torch.equal(fresh["model"].seen, state["model"].seen)


@pytest.mark.parametrize("order", [["model", "optimizer", "epoch"], ["optimizer", "epoch", "model"]])
@pytest.mark.parametrize("way", [{}, {"atomic": True}], ids=["in place", "atomic"])
def test_one_call_brings_back_a_model_and_its_fallen_optimizer(root, order, way):
    state, fresh = make(**FALLING), make(seed=5, **FALLING)
    go_on(state, range(8))
    assert state["optimizer"].has_fallback
    mc.save(root, state, step=8)

    mc.load(root, into={part: fresh[part] for part in order}, **way)

    assert_same(bits(state["optimizer"]), bits(fresh["optimizer"]))
    for live in (state, fresh):
        go_on(live, range(8, 30))  # through probation, back to half
    assert_same(bits(state["optimizer"]), bits(fresh["optimizer"]))
    assert not fresh["optimizer"].has_fallback


def test_one_call_brings_a_fallen_run_back_to_half(root):
    state, fresh = make(**FALLING), make(seed=5, **FALLING)
    go_on(state, range(3))
    go_on(fresh, range(8))
    assert (state["optimizer"].has_fallback, fresh["optimizer"].has_fallback) == (False, True)
    mc.save(root, state, step=3)

    mc.load(root, into=fresh)

    assert_same(bits(state["optimizer"]), bits(fresh["optimizer"]))


@pytest.mark.parametrize("fallen", [False, True])
def test_a_load_that_is_refused_leaves_the_precision_as_it_was(root, fallen):
    state, fresh = make(**FALLING), make(seed=5, **FALLING)
    go_on(state, range(3 if fallen else 8))
    go_on(fresh, range(8 if fallen else 3))
    assert fresh["optimizer"].has_fallback is fallen
    mc.save(root, {**state, "ema": torch.zeros(3)}, step=8)
    fresh["optimizer"].backward(loss_of(fresh["model"], 9))
    parameters = list(fresh["model"].parameters())
    before = bits(fresh["optimizer"])
    held = [(one.data_ptr(), one.dtype, one.grad, one.clone()) for one in parameters]

    with pytest.raises(StructureMismatch, match=r"shape: ema: saved \[3\]"):
        mc.load(root, into={**fresh, "ema": torch.zeros(4)})

    assert_same(before, bits(fresh["optimizer"]))
    for one, (place, dtype, gradient, values) in zip(parameters, held, strict=True):
        assert (one.data_ptr(), one.dtype) == (place, dtype)
        assert one.grad is gradient
        assert torch.equal(one, values)
    fresh["optimizer"].step()  # nobody has written to its weights


def test_a_weight_that_is_no_cast_of_its_master_is_known_after_a_load_that_is_refused(root):
    state, source, fresh = make(**FALLING), make(**FALLING), make(seed=5, **FALLING)
    go_on(state, range(8))
    mc.save(root, {**state, "ema": torch.zeros(3)}, step=8)
    go_on(source, range(3))
    source["model"].mix.weight.data[0, 0] = 0.123
    Manager.restore_checkpoint(fresh["optimizer"], Manager.create_checkpoint(source["optimizer"]))

    with pytest.raises(StructureMismatch, match=r"shape: ema: saved \[3\]"):
        mc.load(root, into={**fresh, "ema": torch.zeros(4)})

    assert torch.equal(fresh["model"].mix.weight, source["model"].mix.weight)
    fresh["optimizer"].backward(loss_of(fresh["model"], 9))
    assert fresh["optimizer"].step().applied


def test_modes_that_cannot_be_read_are_a_typed_error(root):
    state, fresh = make(), make(seed=5)
    saved = state["optimizer"].state_dict()
    saved["mixed_precision"]["fallback"] = {"groups": [{"mode": "sideways"}]}
    mc.save(root, {"optimizer": saved}, step=1)

    with pytest.raises(CorruptedCheckpoint, match="the modes of its groups cannot be read"):
        mc.load(root, into={"optimizer": fresh["optimizer"]})


def test_the_optimizer_alone_is_loaded_by_its_name(root):
    state = make()
    go_on(state, range(8))
    mc.save(root, state, step=8)
    fresh = make(seed=5)
    fresh["epoch"] = 0

    mc.load(root, parts="optimizer", into={"optimizer": fresh["optimizer"]})
    loaded = mc.load(root, parts="optimizer.mixed_precision.master")

    assert_same(bits(state["optimizer"]), bits(fresh["optimizer"]))
    masters = loaded["optimizer"]["mixed_precision"]["master"]
    assert torch.equal(masters["mix.weight"], state["optimizer"].master_weights["mix.weight"])


def test_a_checkpoint_of_the_manager_is_a_part_too_and_its_folder_may_be_a_url(root):
    state = make()
    go_on(state, range(8))
    checkpoint = Manager.create_checkpoint(state["optimizer"])

    mc.save(f"{root}/parts", {"precision": to_tree(checkpoint), "epoch": 3}, step=8)
    Manager.save_checkpoint(checkpoint, f"{root}/alone")
    Manager.save_checkpoint(checkpoint, f"{root}/alone")

    for stored in (from_tree(mc.load(f"{root}/parts")["precision"]), Manager.load_checkpoint(f"{root}/alone")):
        assert_same(to_tree(checkpoint), to_tree(stored))


class Gate:
    """A progress listener that holds the writers once the guard is hooked, until the next step begins."""

    def __init__(self, optimizer):
        self.opened, self._optimizer = threading.Event(), optimizer
        self._handle = optimizer.register_step_pre_hook(lambda *_: self.opened.set())  # before the guard's own hook

    def __call__(self, event):
        if len(self._optimizer._optimizer_step_pre_hooks) > 1:
            assert self.opened.wait(60)


def test_a_lazy_copy_is_awaited_by_the_step_that_would_change_it(tmp_path):
    model = build(width=1100)  # a master of 9 MiB: more than a chunk, so that it is copied later
    optimizer = wrap(model, lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True))
    train(model, optimizer, range(2))
    at_the_call = bits(optimizer)
    gate = Gate(optimizer)

    job = mc.save_async(
        tmp_path, {"optimizer": optimizer}, step=2, lazy=True, guard=[optimizer], memory_limit=5 * MIB, progress=gate
    )
    assert job.state is mc.SaveState.STAGING
    train(model, optimizer, range(2, 5))
    job.result()

    other = build(seed=5, width=1100)
    fresh = wrap(other, lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True))
    mc.load(tmp_path, into={"optimizer": fresh})
    assert_same(at_the_call, bits(fresh))


def own_parts_rank(rank, world, root):
    """Each rank trains a model of its own, saves it under one root, and resumes from there."""
    model = build(seed=rank)
    optimizer = wrap(model, chosen=options(**FALLING), process_group=None)
    train(model, optimizer, range(8), spoil={3, 4} if rank else set())
    mc.save(root, {"rank": rank, "optimizer": optimizer}, step=8, name=f"rank-{rank}")
    torch.distributed.barrier()
    other = build(seed=9)
    fresh = wrap(other, chosen=options(**FALLING), process_group=None)
    mc.load(root, name=f"rank-{rank}", into={"rank": rank, "optimizer": fresh})
    for its, one in ((model, optimizer), (other, fresh)):
        train(its, one, range(8, 20))
    assert_same(bits(optimizer), bits(fresh))
    return optimizer.skipped_steps, len(mc.list_checkpoints(root))


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_save_their_own_parts_of_one_run_under_one_root(tmp_path):
    outcomes = run_ranks(own_parts_rank, tmp_path, str(tmp_path / "run"))

    assert outcomes == [(0, 2), (2, 2)]


def replicated_rank(rank, world, root, cut):
    """One run under DDP; rank 0 saves at ``cut``, all ranks resume from there."""
    unbroken = train_replica(rank, until=24, **({"root": root, "cut": cut} if rank == 0 else {"cut": cut}))
    resumed = train_replica(rank, since=cut, until=24, root=root)
    assert_same(bits(unbroken), bits(resumed))
    return resumed.session.fallback.to_tree()


def train_replica(rank, *, since=0, until, root=None, cut=None):
    model = build(seed=since)
    optimizer = wrap(model, chosen=options(**FALLING))
    wrapper = DistributedDataParallel(model)
    if since:
        mc.load(root, into={"optimizer": optimizer})
    for step in range(since, until):
        if step == cut:
            if root is not None:
                mc.save(root, {"optimizer": optimizer}, step=step)
            torch.distributed.barrier()
        optimizer.zero_grad()
        loss = loss_of(wrapper, 2 * step + rank)
        optimizer.backward(loss * 1e7 if rank == 1 and step in (3, 4) else loss)
        optimizer.step()
    return optimizer


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("cut", [4, 8, 12])
def test_a_replicated_run_resumes_on_all_ranks_from_one_part_in_every_mode(tmp_path, cut):
    first, second = run_ranks(replicated_rank, tmp_path, str(tmp_path / "run"), cut)

    assert first == second
