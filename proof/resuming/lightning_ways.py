"""Lightning ways: ``LightningRun``, and ``ModelCheckpoint`` with ``ckpt_path="last"``.

Lightning keeps the place in the data if the loader has a state, so torchdata's ``StatefulDataLoader`` is tried too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.integrations.lightning import lightning_training
from tests.integrations.trainer_data import weights
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from proof.resuming.way import Way, ours

EVERY = 2


def by_lightning(root: str | Path, out: str | Path, *, kind: str, pause: float, loaders: Any) -> None:
    """Train as Lightning's documentation has it: seeds set, workers included, all checkpoints kept, the last loaded."""
    pl.seed_everything(0, workers=True, verbose=False)
    saving = ModelCheckpoint(root, every_n_train_steps=EVERY, save_top_k=-1, save_last=True)
    telling = lightning_training.Telling(out, pause)
    trainer, net, _ = lightning_training.fit(kind, [saving, telling], loaders=loaders, path="last")
    Path(out).write_text(f"{trainer.global_step} {weights(net.body)}")


def saved(root: Path) -> bool:
    """Whether a checkpoint is whole; the last one is written after its own."""
    return (root / "last.ckpt").exists()


INDEXED = ("no workers, half precision", "workers", "persistent workers")
KINDS = (*INDEXED, "stream")  # which has no state by itself
WAYS = [
    ours("LightningRun", lightning_training.train, KINDS),
    Way('ckpt_path="last"', partial(by_lightning, loaders=DataLoader), KINDS, saved),
    Way('ckpt_path="last", StatefulDataLoader', partial(by_lightning, loaders=StatefulDataLoader), INDEXED, saved),
]
__all__ = ["WAYS"]
