"""Hugging Face ways: ``TrainerRun``, and ``resume_from_checkpoint`` of the Trainer itself."""

from __future__ import annotations

from pathlib import Path

from tests.integrations.huggingface import hf_training
from tests.integrations.trainer_data import weights
from transformers.trainer_utils import get_last_checkpoint

from proof.resuming.way import Way, ours


def by_trainer(root: str | Path, out: str | Path, *, kind: str, pause: float) -> None:
    """Train as the Trainer's documentation has it: seeds set, resumed from the newest folder if there is one."""
    folder = Path(f"{root}.hf")
    trainer = hf_training.make(root, kind, [hf_training.Watched(out, pause)], data_seed=3)
    newest = get_last_checkpoint(str(folder)) if folder.exists() else None
    trainer.train(resume_from_checkpoint=newest)
    Path(out).write_text(f"{trainer.state.global_step} {weights(trainer.model)}")


def saved(root: Path) -> bool:
    """Whether a checkpoint is whole; its state is written last."""
    return any(Path(f"{root}.hf").glob("checkpoint-*/trainer_state.json"))


KINDS = tuple(hf_training.KINDS)
WAYS = [ours("TrainerRun", hf_training.train, KINDS), Way("resume_from_checkpoint", by_trainer, KINDS, saved)]
__all__ = ["WAYS"]
