"""Lazy staging: what is saved is, bit for bit, the state at the call, whatever the training loop does next."""

import copy
import threading

import pytest
from tests.ground.stored.equal_values import same

torch = pytest.importorskip("torch")

from tests.distributed.threads import all_well, on_ranks  # noqa: E402
from tests.engine.background.lazy_training import MIB, TIGHT, WIDTH, frozen_copy, hooks, loss_of, make, train  # noqa: E402

import model_checkpoint as mc  # noqa: E402
from model_checkpoint.engine.background.save_async import save_async  # noqa: E402
from model_checkpoint.engine.jobs.running_save import SaveState  # noqa: E402

OPTIMIZERS = {
    "adam-plain": (torch.optim.Adam, {"foreach": False, "fused": False}),
    "adam-foreach": (torch.optim.Adam, {"foreach": True}),
    "adam-fused": (torch.optim.Adam, {"fused": True}),
    "adamw-amsgrad-foreach": (torch.optim.AdamW, {"foreach": True, "amsgrad": True}),
    "sgd-momentum-fused": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "sgd-momentum-foreach": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "foreach": True}),
    "sgd-plain": (torch.optim.SGD, {"lr": 0.1, "foreach": False}),
    "adagrad-fused": (torch.optim.Adagrad, {"fused": True}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_at_the_call_is_saved_while_training_goes_on(tmp_path, gate, name):
    kind, options = OPTIMIZERS[name]
    state = make(kind, **options)
    expected = frozen_copy(state)

    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    assert job.state is SaveState.STAGING
    gate.open_soon()
    train(state, steps=3)
    job.result()

    assert same(mc.load(tmp_path), expected)
    assert not same(frozen_copy(state), expected)
    assert hooks(state["optimizer"]) == 0


def test_the_steps_of_a_rank_wait_for_its_copy_too(tmp_path, gate):
    states = [make(), make()]
    expected = frozen_copy(states[0])
    gate.guards = [states[0]["optimizer"]]

    def work(ranks):
        state, listen = states[ranks.rank], gate if ranks.rank == 0 else None
        job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=listen, coordinator=ranks)
        held = job.state, hooks(state["optimizer"])
        if ranks.rank == 0:
            gate.open_soon()
        train(state, steps=1)
        job.result()
        return held

    held = all_well(on_ranks(2, work))

    assert held[0] == (SaveState.STAGING, 1)
    assert same(mc.load(tmp_path), expected)
    assert not same(frozen_copy(states[0]), expected)


def test_a_step_waits_for_the_copy_and_counts_it_as_stall(tmp_path, gate):
    state = make()
    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    loss_of(state["model"]).backward()
    at_call = job.stall

    stepped = threading.Thread(target=state["optimizer"].step)
    stepped.start()
    stepped.join(0.2)

    assert stepped.is_alive()
    assert job.state is SaveState.STAGING
    gate.opened.set()
    stepped.join(30)
    assert not stepped.is_alive()
    job.result()
    assert job.stall - at_call > 0.1


def test_without_memory_pressure_the_copy_needs_no_writer(tmp_path, gate):
    state = make()
    expected = frozen_copy(state)

    job = save_async(tmp_path, state, step=1, lazy=True, progress=gate)
    job.wait_staged(30)

    assert job.state is SaveState.STAGED
    loss_of(state["model"]).backward()
    state["optimizer"].step()
    gate.opened.set()
    job.result()
    assert same(mc.load(tmp_path), expected)


def test_every_one_of_several_optimizers_waits(tmp_path, gate):
    torch.manual_seed(0)
    nets = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    one, two = (torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets[:2])
    three = torch.optim.Adam(nets[2].parameters())
    state = {"nets": [net.state_dict() for net in nets], "one": one, "two": two}
    expected = copy.deepcopy([net.state_dict() for net in nets])

    gate.guards = [three, one]
    job = save_async(tmp_path, state, step=1, lazy=True, guard=[three, one], memory_limit=TIGHT, progress=gate)
    assert hooks(one, two, three) == 3
    gate.open_soon()
    for net in nets:
        net(torch.randn(2, WIDTH)).square().mean().backward()
    for optimizer in (three, two, one):
        optimizer.step()
    job.result()

    assert same(mc.load(tmp_path)["nets"], expected)
    assert hooks(one, two, three) == 0


def test_gradient_accumulation_runs_through_the_copy(tmp_path, gate):
    state = make()
    expected = frozen_copy(state)

    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    for _ in range(4):
        loss_of(state["model"]).backward()
    assert job.state is SaveState.STAGING
    gate.open_soon()
    state["optimizer"].step()
    job.result()

    assert same(mc.load(tmp_path), expected)


def test_a_step_that_the_grad_scaler_skips_leaves_the_guard_in_place(tmp_path, gate):
    state = make()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    expected = frozen_copy(state)

    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state | {"scaler": scaler}, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    scaler.scale(loss_of(state["model"]) * float("inf")).backward()
    scaler.step(state["optimizer"])
    scaler.update()
    assert hooks(state["optimizer"]) == 1
    assert job.state is SaveState.STAGING
    state["optimizer"].zero_grad()
    gate.open_soon()
    scaler.scale(loss_of(state["model"])).backward()
    scaler.step(state["optimizer"])
    scaler.update()
    job.result()

    loaded = mc.load(tmp_path)
    assert same({k: loaded[k] for k in expected}, expected)
    assert loaded["scaler"]["scale"] == 4.0
    assert hooks(state["optimizer"]) == 0


def test_a_loop_that_never_steps_again_still_gets_its_checkpoint(tmp_path):
    state = make()
    expected = frozen_copy(state)

    job = save_async(tmp_path, state, step=1, lazy=True)
    job.result(60)

    assert same(mc.load(tmp_path), expected)


def test_an_exception_between_call_and_step_changes_nothing(tmp_path, gate):
    state = make()
    expected = frozen_copy(state)

    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=TIGHT, progress=gate)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        state["model"](torch.randn(4, WIDTH + 1))
    loss_of(state["model"]).backward()
    gate.open_soon()
    state["optimizer"].step()
    job.result()

    assert same(mc.load(tmp_path), expected)


def test_buffers_learning_rates_and_all_else_are_copied_at_the_call(tmp_path, gate):
    state = make(torch.optim.Adam, lr=torch.tensor(0.01), foreach=False)
    shadow = {k: v.detach().clone() for k, v in state["model"].named_parameters()}
    state |= {"shadow": shadow, "rng": mc.rng_state()}
    expected = frozen_copy(state)

    gate.guards = [state["optimizer"]]
    job = save_async(tmp_path, state, step=1, lazy=True, memory_limit=6 * MIB, progress=gate)
    loss_of(state["model"])  # changes BatchNorm and the average
    state["optimizer"].param_groups[0]["lr"].fill_(0.5)
    for tensor in shadow.values():
        tensor.zero_()
    gate.opened.set()
    job.result()

    loaded = mc.load(tmp_path)
    assert same(
        {k: loaded[k] for k in ("model", "optimizer", "shadow")},
        {k: expected[k] for k in ("model", "optimizer", "shadow")},
    )
    assert loaded["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.01)


def test_a_queued_lazy_save_is_copied_before_the_step_and_written_later(tmp_path, gate):
    state = make()
    first = save_async(tmp_path, {"a": torch.zeros(9)}, step=1, progress=gate)
    expected = frozen_copy(state)

    second = save_async(tmp_path, state, step=2, lazy=True, busy="queue")
    loss_of(state["model"]).backward()
    state["optimizer"].step()

    assert second.state is SaveState.STAGED
    assert not first.done()
    gate.opened.set()
    second.result()
    assert same(mc.load(tmp_path, step=2), expected)


def test_tied_weights_are_watched_and_saved_once(tmp_path):
    net = torch.nn.ModuleDict({"a": torch.nn.Linear(WIDTH, WIDTH), "b": torch.nn.Linear(WIDTH, WIDTH)})
    net["b"].weight = net["a"].weight
    optimizer = torch.optim.Adam(net.parameters())
    expected = copy.deepcopy(net.state_dict())

    job = save_async(tmp_path, {"model": net, "optimizer": optimizer}, step=1, lazy=True)
    net["b"](net["a"](torch.randn(2, WIDTH))).sum().backward()
    optimizer.step()
    job.result()

    loaded = mc.load(tmp_path)["model"]
    assert same(dict(loaded), dict(expected))
    assert loaded["a.weight"].data_ptr() == loaded["b.weight"].data_ptr()


def test_jax_arrays_donated_right_after_the_call_are_saved_as_they_were(tmp_path):
    jax = pytest.importorskip("jax")
    import numpy as np

    weight = jax.numpy.arange(2_000_000, dtype=jax.numpy.float32)
    expected = np.array(weight)
    job = save_async(tmp_path, {"w": weight}, step=1, lazy=True)

    update = jax.jit(lambda w: w * -1, donate_argnums=0)
    for _ in range(4):
        weight = update(weight)
    weight.block_until_ready()
    job.result()

    assert np.array_equal(np.asarray(mc.load(tmp_path)["w"]), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("lazy", [False, True])
def test_tensors_of_a_device_are_saved_as_they_were_at_the_call(tmp_path, lazy):
    net = torch.nn.Linear(WIDTH, WIDTH).cuda()
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    turned = torch.randn(WIDTH, WIDTH, device="cuda").T
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # the save must wait for the stream it was called on
        net(torch.randn(64, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        expected = {k: v.cpu() for k, v in net.state_dict().items()}, turned.cpu()

        job = save_async(tmp_path, {"model": net, "o": optimizer, "turned": turned}, step=1, lazy=lazy)
        for _ in range(3):
            net(torch.randn(64, WIDTH, device="cuda")).square().mean().backward()
            optimizer.step()
        turned.zero_()
    job.result()

    loaded = mc.load(tmp_path)
    assert same(dict(loaded["model"]), expected[0])
    assert same(loaded["turned"], expected[1])
