"""A training whose state is saved lazily, and how to tell that all of it came back."""

import copy

import pytest

torch = pytest.importorskip("torch")

MIB = 1 << 20
WIDTH = 1100  # a weight of 4.6 MiB: more than a chunk, so that it is copied later
TIGHT = 5 * MIB  # room for one slab: the copy cannot go on while the gate holds the writer


class Net(torch.nn.Module):
    """Parameters, buffers that the forward changes, and a buffer as large as a weight."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self.last = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("ema", torch.zeros(WIDTH, WIDTH))

    def forward(self, x):
        self.ema.mul_(0.9).add_(self.last.weight.detach(), alpha=0.1)
        return self.last(self.norm(self.first(x)))


def loss_of(net):
    return net(torch.randn(4, WIDTH)).square().mean()


def train(state, steps):
    for _ in range(steps):
        loss_of(state["model"]).backward()
        state["optimizer"].step()
        state["optimizer"].zero_grad()


def make(optimizer=torch.optim.Adam, **options):
    torch.manual_seed(0)
    net = Net()
    one = optimizer(net.parameters(), **options)
    state = {"model": net, "optimizer": one, "step": 1}
    train(state, steps=1)
    return state


def frozen_copy(state):
    return {
        k: copy.deepcopy(v.state_dict()) if hasattr(v, "state_dict") else copy.deepcopy(v) for k, v in state.items()
    }


def hooks(*optimizers):
    return sum(len(one._optimizer_step_pre_hooks) for one in optimizers)
