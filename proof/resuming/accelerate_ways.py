"""Accelerate ways: ``AcceleratedRun``, and ``save_state`` with ``load_state``.

The place is found as in its examples, by ``skip_first_batches``, or by ``use_stateful_dataloader=True``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.integrations.accelerate import accelerated_training
from tests.integrations.accelerate.accelerated_training import EPOCHS, body
from tests.integrations.trainer_data import take_time, tell_start, weights

from proof.resuming.way import Way, ours

EVERY = 4  # batches; gradients of two are stepped together


def by_accelerate(root: str | Path, out: str | Path, *, kind: str, pause: float, stateful: bool) -> None:
    """Train as Accelerate's examples do: all seeds set, the newest folder loaded, its name tells the place."""
    accelerator, tokens, (model, optimizer, schedule, loader) = accelerated_training.make(
        kind, use_seedable_sampler=True, use_stateful_dataloader=stateful
    )
    first, had = 0, 0
    folders = sorted(Path(root).glob("epoch_*"), key=lambda folder: folder.stat().st_mtime)
    if folders:
        accelerator.load_state(str(folders[-1]))
        first, had = (int(word) for word in folders[-1].name.split("_")[1::2])
    tell_start(out, tokens.seen)
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        skip = had if epoch == first else 0
        batches = accelerator.skip_first_batches(loader, skip) if skip and not stateful else loader
        for number, batch in enumerate(batches, skip + 1):
            body(accelerator, model, optimizer, schedule, batch)
            tokens.seen += len(batch["x"])
            if number % EVERY == 0:
                accelerator.save_state(str(Path(root) / f"epoch_{epoch}_batch_{number}"))
            take_time(out, pause)
    Path(out).write_text(f"{tokens.seen} {weights(model)}")


def saved(root: Path) -> bool:
    """Whether a checkpoint is whole; what was registered is written last."""
    return any(root.glob("epoch_*/custom_checkpoint_0.pkl"))


KINDS = tuple(accelerated_training.KINDS)
INDEXED = tuple(kind for kind in KINDS if kind != "stream")  # a stream has no state by itself
WAYS = [
    ours("AcceleratedRun", accelerated_training.train, KINDS),
    Way("load_state, skip_first_batches", partial(by_accelerate, stateful=False), KINDS, saved),
    Way("load_state, use_stateful_dataloader", partial(by_accelerate, stateful=True), INDEXED, saved),
]
__all__ = ["WAYS"]
