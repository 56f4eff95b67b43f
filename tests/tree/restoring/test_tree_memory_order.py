"""Optimizer state lies in memory as its parameters do: torch's fused steps go through memory, not by index."""

import pytest
import torch
from tests.tree.carrying import loaded, same

BASES = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, fused=True),
    "loop": lambda p: torch.optim.AdamW(p, lr=1e-2),
}


def run(state, steps):
    for step in steps:
        data = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(step))
        state["optimizer"].zero_grad()
        state["model"](data.to(memory_format=torch.channels_last)).square().mean().backward()
        state["optimizer"].step()
    return state


def start(base, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 2))
    model = model.to(memory_format=torch.channels_last)
    return {"model": model, "optimizer": BASES[base](model.parameters())}


@pytest.mark.parametrize("used", [0, 2], ids=["fresh", "used"])
@pytest.mark.parametrize("base", BASES)
def test_a_model_in_channels_last_goes_on_as_if_it_had_not_been_stopped(base, used):
    saved, live = run(start(base), range(3)), run(start(base, seed=1), range(used))

    loaded(saved, live)
    for one in (saved, live):
        run(one, range(3, 6))

    same(dict(saved["model"].state_dict()), dict(live["model"].state_dict()))
    same(saved["optimizer"].state_dict(), live["optimizer"].state_dict())


def test_state_of_another_shape_than_its_parameter_stays_as_it_was_saved():
    saved, live = start("adamw"), start("adamw")
    moments = saved["optimizer"].state[saved["model"][0].weight]
    moments["step"], moments["rows"] = torch.tensor(2.0), torch.arange(6.0).reshape(2, 3).t()

    loaded(saved, live)

    same(live["optimizer"].state[live["model"][0].weight], moments)
