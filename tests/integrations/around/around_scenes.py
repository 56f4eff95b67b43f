"""Trainings whose numbers depend on what stands around the loop, left and started again."""

import random
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import model_checkpoint as mc

EPOCHS, BATCHES = 2, 4


def seed():
    """The global generators as every process begins with them."""
    for one in (torch.manual_seed, random.seed, np.random.seed):
        one(0)


class Scene:
    """A model, an optimizer, a run; ``end`` leaves the loop in the body of a step, as a bug would."""

    def __init__(self, root, *, end=None, every=3, **options):
        seed()
        self.end = end
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.data = options.pop("data", None) or DataLoader(TensorDataset(torch.randn(12, 3)), 3, shuffle=True)
        self.options = {"epochs": EPOCHS, "every": every, "model": self.model, "optimizer": self.optimizer, **options}
        self.root = root

    def run(self, **more):
        """The run over it."""
        self.made = mc.Run(self.root, data=self.data, **self.options, **more)
        return self.made

    def step(self, batch, scale=1.0):
        """Train on one batch; the loss is ``scale`` times as large."""
        if self.made.step == self.end:
            raise KeyError("a bug")
        self.optimizer.zero_grad()
        (self.model(batch[0]).square().mean() * float(scale)).backward()
        self.optimizer.step()

    @property
    def weights(self):
        """All of the model, as one number."""
        words = [one.detach().numpy().tobytes() for one in self.model.state_dict().values()]
        return zlib.crc32(b"".join(words))


def ended(train, root, **options):
    """How a training ended that was not interrupted, and how one that was left in its sixth step and started again."""
    whole = train(Scene(root / "whole", **options))
    cut = Scene(root / "cut", end=5, **options)
    try:
        train(cut)
    except KeyError:
        mc.finish_saves(root / "cut")
    again = train(Scene(root / "cut", **options))
    assert again.made.resumed_from == 3
    return whole, again
