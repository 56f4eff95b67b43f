"""Trainer methods: the methods of one Trainer that are replaced, each under its own name, and what they ask of the run.

Callbacks are asked nothing when a Trainer loads, and the place in the data is computed before the first of them is
called: so a callback alone cannot resume exactly. These methods are replaced on one object, never on the class.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

from transformers import Trainer

from model_checkpoint.integrations.huggingface.trainer_rules import require_own_resume

REPLACED = (
    "train", "get_train_dataloader", "get_eval_dataloader", "_init_training_state", "_load_from_checkpoint",
    "_load_optimizer_and_scheduler", "_load_scaler", "_load_rng_state", "_run_epoch", "_maybe_log_save_evaluate",
    "_save_checkpoint", "_load_best_model",
)  # fmt: skip


class Resumer(Protocol):
    """What the methods ask of a run."""

    def train(self, go: Callable[[str | None], Any]) -> Any:
        """Let the Trainer ``go`` on, from a folder with its saved state or from the beginning."""
        ...

    def feed_with(self, loader: Any) -> Any:
        """The loader of the training, begun where the run is."""
        ...

    def evaluate_with(self, loader: Any) -> Any:
        """A loader of evaluations, apart from all else."""
        ...

    def place(self, *, epochs: int, max_steps: int) -> tuple[int, int]:
        """Epoch and batch where the run goes on."""
        ...

    def restore(self) -> None:
        """Fill all objects, now that they are there."""
        ...

    def open_epoch(self) -> None:
        """Find the place in the data."""
        ...

    def leave_if_told(self) -> None:
        """Save and end the program if a signal has come."""
        ...

    def save(self) -> None:
        """Save in the background."""
        ...

    def load_best(self) -> None:
        """Load the weights of the best evaluation."""
        ...


class TrainerMethods:
    """Stand in for methods of ``trainer``; what was there is called where it still has something to do."""

    def __init__(self, trainer: Trainer, run: Resumer) -> None:
        self._run = run
        self._was = {name: getattr(trainer, name) for name in REPLACED}
        self._epoch = _without_skipping(trainer)
        for name in REPLACED:
            setattr(trainer, name, getattr(self, name))

    def train(
        self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: list[str] | None = None
    ) -> Any:
        """Resume from the run's own root, whatever the flag says."""
        require_own_resume(resume_from_checkpoint, trial)
        return self._run.train(lambda folder: self._was["train"](folder, ignore_keys_for_eval=ignore_keys_for_eval))

    def get_train_dataloader(self) -> Any:
        """The Trainer's loader, begun where the run is."""
        return self._run.feed_with(self._was["get_train_dataloader"]())

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The Trainer's loader, whose draws leave the training alone."""
        return self._run.evaluate_with(self._was["get_eval_dataloader"](eval_dataset))

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, folder: str | None, trial: Any
    ) -> tuple[int, int]:
        counted: tuple[int, int] = self._was["_init_training_state"](
            max_steps, num_update_steps_per_epoch, num_train_epochs, folder, trial
        )
        return counted if folder is None else self._run.place(epochs=num_train_epochs, max_steps=max_steps)

    def _load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """The model is filled with all the rest."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            self._run.restore()

    def _load_scaler(self, *_: Any) -> None:
        """The scaler is filled with all the rest."""

    def _load_rng_state(self, *_: Any) -> None:
        """Generators are put in force when the place in the data is found, and reading leaves them alone."""

    def _run_epoch(self, **call: Any) -> None:
        self._run.open_epoch()
        self._epoch(**call)

    def _maybe_log_save_evaluate(self, *given: Any, **named: Any) -> None:
        self._was["_maybe_log_save_evaluate"](*given, **named)
        self._run.leave_if_told()  # the step is done with all that belongs to it

    def _save_checkpoint(self, *_: Any, **__: Any) -> None:
        self._run.save()

    def _load_best_model(self) -> None:
        self._run.load_best()


def _without_skipping(trainer: Trainer) -> Callable[..., None]:
    """The Trainer's own epoch, but for its skipping: its loader was begun at the place already.

    The function it skips by is a global name of its module, so this one method gets names of its own.
    """
    method = Trainer._run_epoch
    names = {**method.__globals__, "skip_first_batches": lambda loader, _: loader}
    epoch = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    bound: Callable[..., None] = epoch.__get__(trainer)
    return bound
