"""One training process: a loop that goes on from the newest checkpoint by itself, if there is one.

Usage: python -m demo.train ROOT LOSSES EVERY
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import model_checkpoint as mc

EPOCHS, BATCHES = 3, 20


class Noisy(Dataset[torch.Tensor]):
    """Samples that are another each time they are read, so that a resume at the wrong place would show at once."""

    def __init__(self, count: int) -> None:
        self._samples = torch.randn(count, 64, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._samples[index] + 0.1 * torch.randn(64)


def main(root: str, losses: str, every: int) -> None:
    """Train to the end; append each loss, exactly, to ``losses``. With 0, nothing is saved before the end."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Linear(64, 1536), nn.GELU(), nn.Dropout(0.1), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
    data = DataLoader(Noisy(64 * BATCHES), batch_size=64, shuffle=True)  # workers would complain of the kill
    run = mc.Run(
        root, data=data, epochs=EPOCHS, every=every or None, model=model, optimizer=optimizer, scheduler=scheduler,
        progress=False,
    )  # fmt: skip
    with Path(losses).open("a", buffering=1) as log:
        for batch in run:
            loss = (model(batch) - batch.sum(1, keepdim=True).sin()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.log(loss=loss)
            log.write(f"{run.step + 1} {loss.item().hex()}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
