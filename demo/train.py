"""One training process: resume from the newest checkpoint if there is one, train, save every few steps.

Usage: python -m demo.train ROOT LOSSES STEPS EVERY
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import model_checkpoint as mc


def build() -> dict[str, Any]:
    """A small network with dropout, so that a resume with the wrong random state would show at once."""
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Linear(64, 1536), nn.GELU(), nn.Dropout(0.1), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "rng": mc.rng_state(), "step": 0}


def train_step(run: dict[str, Any]) -> float:
    """One step on a random batch; returns the loss."""
    inputs = torch.randn(64, 64)
    loss = (run["model"](inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
    run["optimizer"].zero_grad()
    loss.backward()
    run["optimizer"].step()
    run["scheduler"].step()
    run["step"] += 1
    return float(loss.detach())


def main(root: str, losses: str, steps: int, every: int) -> None:
    """Train to ``steps``; append each loss, exactly, to ``losses``."""
    torch.set_num_threads(1)
    run = build()
    if Path(root).exists() and mc.list_checkpoints(root):
        mc.load(root, into=run)
    with Path(losses).open("a", buffering=1) as log:
        while run["step"] < steps:
            loss = train_step(run)
            log.write(f"{run['step']} {loss.hex()}\n")
            if every and run["step"] % every == 0:
                run["rng"] = mc.rng_state()
                mc.save(root, run, step=run["step"], metrics={"loss": loss})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
