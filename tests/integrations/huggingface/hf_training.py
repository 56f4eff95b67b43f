"""A small training by a transformers Trainer, with one line more than usual."""

from pathlib import Path

import torch
from tests.integrations.trainer_data import (
    Augmented,
    Masking,
    Stream,
    collate,
    digest,
    growing_scaler,
    net,
    steps_taken,
    take_time,
    tell_start,
)
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

import model_checkpoint as mc
from model_checkpoint.integrations.huggingface import TrainerRun

EVALUATED = {"eval_strategy": "steps", "eval_steps": 6, "save_steps": 6, "load_best_model_at_end": True}
WORKERS = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True}
KINDS = {
    "evaluated, best at the end": {"gradient_accumulation_steps": 2, **EVALUATED},
    "persistent workers": {**WORKERS, "gradient_accumulation_steps": 2, "eval_strategy": "epoch", "save_steps": 3},
    "saved by epoch, half precision": {
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
        "num_train_epochs": 5,
        "bf16": True,
        "max_grad_norm": 0.0,
    },
    "stream": {"max_steps": 31, "save_steps": 5},
}
STEPS = {"evaluated, best at the end": 21, "persistent workers": 21, "saved by epoch, half precision": 65, "stream": 31}


class Net(torch.nn.Module):
    """As models of transformers: its loss comes with what it predicts, labels or not."""

    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, return_loss=True):
        out = self.body(x)
        return {"loss": 64 * out.square().mean(), "logits": out}


class Failing(TrainerCallback):
    """Ends the training as an error would, after a step."""

    def __init__(self, step, error=KeyError):
        self.step, self.error = step, error

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise self.error("a bug")


class Watched(TrainerCallback):
    """Writes down where it came from, and takes its time for each step, so that a kill finds it at work."""

    def __init__(self, out, pause):
        self.out, self.pause = out, pause

    def on_train_begin(self, args, state, control, **_):
        tell_start(self.out, state.global_step)

    def on_step_end(self, *_, **__):
        take_time(self.out, self.pause)


def arguments(folder, **more):
    given = {
        "per_device_train_batch_size": 8, "num_train_epochs": 3, "save_steps": 4, "logging_steps": 5, "seed": 3,
        "learning_rate": 1e-2, "report_to": [], "disable_tqdm": True, "log_level": "error", "use_cpu": True,
        "dataloader_pin_memory": False, "remove_unused_columns": False,
    }  # fmt: skip
    return TrainingArguments(output_dir=str(folder), **{**given, **more})


def make(root, kind="evaluated, best at the end", callbacks=(), **more):
    """A Trainer as anybody would make it."""
    trainer = Trainer(
        Net(), arguments(f"{root}.hf", **{**KINDS[kind], **more}),
        data_collator=collate if kind == "stream" else Masking(5),
        train_dataset=Stream() if kind == "stream" else Augmented(), eval_dataset=Augmented(),
        callbacks=list(callbacks),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    if "half precision" in kind:
        trainer.accelerator.scaler = growing_scaler()  # a Trainer itself makes one on a GPU only
    return trainer


def train(root, out, *, kind, pause=0.0, **more):
    """Train to the end, and write down the number of steps and a digest of everything."""
    trainer = make(root, kind, [Watched(out, pause)], **more)
    run = TrainerRun(trainer, root, keep=[mc.last(2)])
    trainer.train()
    scaler = trainer.accelerator.scaler and trainer.accelerator.scaler.state_dict()
    same = digest(trainer.model, trainer.optimizer, trainer.lr_scheduler, history(trainer), scaler)
    taken = steps_taken(trainer.optimizer.optimizer)
    Path(out).write_text(f"{run.step} {run.exact} {taken} {same}")


def history(trainer):
    """What was logged, but for how long it took and what is of one process only."""
    timed = ("runtime", "per_second", "train_loss", "total_flos")
    return [
        {name: value for name, value in entry.items() if not name.endswith(timed)}
        for entry in trainer.state.log_history
    ]
