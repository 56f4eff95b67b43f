"""Trainer rules: what is refused, and what becomes of the arguments that speak of checkpoints.

Methods of a Trainer are replaced, so only versions whose insides were looked at are accepted, and no class that has
changed these insides itself. What would silently do something else than it says is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import transformers
from transformers import Trainer, TrainingArguments

from model_checkpoint.checkpoint.retention.candidate_order import Claim, Claims, Keeper, Lineup
from model_checkpoint.checkpoint.retention.keepers import last
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.feeding.prepared_loader import require_one_process
from model_checkpoint.integrations.known_versions import require_known

# replaced without calling what was there: a class that has its own would lose it
TAKEN_OVER = (
    "_inner_training_loop", "_run_epoch", "_save_checkpoint", "_load_from_checkpoint", "_load_best_model",
    "_load_optimizer_and_scheduler", "_load_scaler", "_load_rng_state", "_init_training_state",
)  # fmt: skip
_REFUSED = {
    "save_only_model": "nothing could be resumed from weights alone",
    "auto_find_batch_size": "another batch size gives other numbers; find it first",
    "ignore_data_skip": "the place in the data is what a resume is about, and finding it reads no samples",
    "enable_jit_checkpoint": "the run itself saves when it is told to end, at a clean boundary",
    "fsdp": "a resume is known to be exact with one process",
    "deepspeed": "a resume is known to be exact with one process",
}


def require_resumable(trainer: Trainer) -> None:
    """Refuse by name whatever would not resume exactly."""
    require_known("transformers", transformers.__version__)
    if not isinstance(trainer, Trainer):
        raise OptionInvalid(f"trainer: a transformers.Trainer is needed, got a {type(trainer).__qualname__}.")
    require_one_process()
    own = [name for name in TAKEN_OVER if getattr(type(trainer), name) is not getattr(Trainer, name)]
    if own:
        raise TrainerUnknown(
            f"{type(trainer).__qualname__} has its own {', '.join(own)}, which a resume would have to replace. "
            "Use transformers.Trainer, or a class that leaves these as they are."
        )
    _require_arguments(trainer.args)


def _require_arguments(args: TrainingArguments) -> None:
    for name, why in _REFUSED.items():
        if getattr(args, name):
            raise TrainerUnknown(f"TrainingArguments({name}={getattr(args, name)!r}): {why}. Leave it out.")
    if args.push_to_hub and args.hub_strategy != "end":
        raise TrainerUnknown(
            f'TrainingArguments(hub_strategy="{args.hub_strategy.value}"): checkpoints are no folders of Hugging Face, '
            'so they are not pushed. Use hub_strategy="end", which pushes the model once.'
        )


def keepers_for(args: TrainingArguments, keep: Sequence[Keeper], *, best: Callable[[], int | None]) -> list[Keeper]:
    """The keepers asked for, by ``keep`` or by ``save_total_limit``, and one for the model loaded at the end."""
    if keep and args.save_total_limit:
        raise OptionInvalid(
            f"save_total_limit={args.save_total_limit} and keep= both say what is kept. Leave save_total_limit out."
        )
    kept = list(keep) or ([last(args.save_total_limit)] if args.save_total_limit else [])
    return [*kept, KeepBestModel(best)] if kept and args.load_best_model_at_end else kept


class KeepBestModel:
    """The checkpoint whose weights the Trainer will load at its end."""

    def __init__(self, step: Callable[[], int | None]) -> None:
        self._step = step

    def judge(self, lineup: Lineup) -> Claims:
        """By its step, as the Trainer has chosen it."""
        step = self._step()
        said = {True: f"{self}", False: "not the best model"}
        return {one.name: Claim(keep, said[keep]) for one in lineup.every for keep in [one.step == step]}

    def __str__(self) -> str:
        return "the best model, which is loaded at the end"


def require_own_resume(resume_from_checkpoint: Any, trial: Any) -> None:
    """Refuse another place to resume from than the run's own root, and searches, whose trials would share it."""
    if isinstance(resume_from_checkpoint, str):
        raise OptionInvalid(
            f"train(resume_from_checkpoint={resume_from_checkpoint!r}): this run resumes from its own root by itself. "
            "Leave it out; to begin from other weights, load them into the model before."
        )
    if trial is not None:
        raise TrainerUnknown("train(trial=...): the trials of a search would share one root. Make a run for each.")
