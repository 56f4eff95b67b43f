"""A small training with Accelerate: its loader, model, optimizer and schedule prepared."""

from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DataLoaderConfiguration, set_seed
from tests.integrations.trainer_data import (
    Augmented,
    Stream,
    collate,
    digest,
    growing_scaler,
    net,
    steps_taken,
    take_time,
    tell_start,
)
from torch.utils.data import DataLoader

import model_checkpoint as mc
from model_checkpoint.integrations.accelerate import AcceleratedRun

WORKERS = {"num_workers": 2, "persistent_workers": True}
KINDS = {
    "no workers": lambda: DataLoader(Augmented(), 8, shuffle=True, collate_fn=collate),
    "persistent workers": lambda: DataLoader(Augmented(), 8, shuffle=True, collate_fn=collate, **WORKERS),
    "seedable sampler, half precision": lambda: DataLoader(Augmented(), 8, shuffle=True, collate_fn=collate),
    "stream": lambda: DataLoader(Stream(), 8, collate_fn=collate, num_workers=2),
}
EPOCHS, BATCHES = 3, 13


class Tokens:
    """Something registered for checkpointing."""

    seen = 0

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def make(kind, **loading):
    """What anybody would prepare."""
    set_seed(3)
    AcceleratorState._reset_state()  # it is one for the whole process, precision included
    config = DataLoaderConfiguration(**{"use_seedable_sampler": "seedable" in kind, **loading})
    half = "half precision" in kind
    precision = "bf16" if half else "no"
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=2, dataloader_config=config, mixed_precision=precision
    )
    accelerator.scaler = growing_scaler() if half else None  # Accelerate itself makes one on a GPU only
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 80)
    tokens = Tokens()
    accelerator.register_for_checkpointing(tokens)
    return accelerator, tokens, accelerator.prepare(model, optimizer, schedule, KINDS[kind]())


def body(accelerator, model, optimizer, schedule, batch):
    """One batch, as Accelerate wants it written."""
    with accelerator.accumulate(model):
        loss = 64 * model(batch["x"]).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return loss


def train(root, out, *, kind, pause=0.0, every=3):
    """Train to the end, and write down the number of steps and a digest of everything."""
    accelerator, tokens, (model, optimizer, schedule, loader) = make(kind)
    run = AcceleratedRun(accelerator, root, data=loader, epochs=EPOCHS, every=every, keep=[mc.last(2)], progress=False)
    tell_start(out, run.resumed_from)
    for batch in run:
        run.log(loss=body(accelerator, model, optimizer, schedule, batch))
        tokens.seen += len(batch["x"])
        take_time(out, pause)
    scaler = accelerator.scaler and accelerator.scaler.state_dict()
    same = digest(model, optimizer.optimizer, schedule, scaler)
    Path(out).write_text(f"{run.step} {run.exact} {steps_taken(optimizer.optimizer)} {tokens.seen} {same}")
