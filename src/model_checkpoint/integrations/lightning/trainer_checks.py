"""Trainer checks: ways of training with Lightning that no resume is known to be exact with are refused by name."""

from __future__ import annotations

from typing import Any

from model_checkpoint.integrations.errors import TrainerUnknown


def require_exact(trainer: Any) -> None:
    """Refuse what we do not know how to bring back, before anything is changed."""
    if trainer.world_size > 1:
        raise TrainerUnknown(
            f"Trainer with {trainer.world_size} processes: only one is known to resume exactly. Train with devices=1, "
            "or write the loop with mc.Run. Nothing was changed."
        )
    if trainer.strategy.restore_checkpoint_after_setup:
        raise TrainerUnknown(
            f"{type(trainer.strategy).__name__} loads its own files, so its state cannot come from a checkpoint of "
            "ours. Use a strategy for one device. Nothing was changed."
        )


def require_plain_batches(trainer: Any) -> None:
    """Refuse a training step that takes its batches itself: there is no moment between two of them."""
    if type(trainer.fit_loop._data_fetcher).__name__ == "_DataLoaderIterDataFetcher":
        raise TrainerUnknown(
            "training_step(dataloader_iter) takes batches by itself, so there is no moment between two of them to save "
            "at. Write training_step(batch, batch_idx)."
        )
