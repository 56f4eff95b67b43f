"""A small training under Lightning with everything its own resume gets wrong."""

import logging
import random
import warnings
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.plugins.precision import MixedPrecision
from tests.integrations.trainer_data import Augmented, Stream, collate, digest, net, take_time, tell_start
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchmetrics import MeanMetric

from model_checkpoint.integrations.lightning import LightningRun

EPOCHS = 3
WORKERS = {"num_workers": 2, "prefetch_factor": 3}


class Net(pl.LightningModule):
    """Dropout, averages written after the step, a mean over the epoch that a schedule watches, a metric object."""

    def __init__(self):
        super().__init__()
        self.body = net()
        self.average = torch.optim.swa_utils.AveragedModel(
            self.body, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        self.seen = MeanMetric()
        self.ends = []

    def training_step(self, batch, index):
        batch = batch.get("b", batch)
        loss = self.body(batch["x"]).square().mean()
        self.seen.update(loss.detach())
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch["x"]))
        return loss

    def on_train_batch_end(self, outputs, batch, index):  # after every callback
        self.average.update_parameters(self.body)

    def on_train_epoch_end(self):
        self.ends.append((float(self.trainer.callback_metrics["train_loss"]), float(self.seen.compute())))
        self.seen.reset()

    def on_save_checkpoint(self, checkpoint):
        checkpoint["ends"] = [list(end) for end in self.ends]

    def on_load_checkpoint(self, checkpoint):
        self.ends = [tuple(end) for end in checkpoint["ends"]]

    def validation_step(self, batch, index):
        self.log("val_loss", self.body(batch["x"]).square().mean() + 0 * torch.rand(()), batch_size=len(batch["x"]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.body.parameters(), 1e-2)
        watching = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
        step = {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.9), "interval": "step"}
        return [optimizer], [step, {"scheduler": watching, "monitor": "train_loss"}]


class Telling(pl.Callback):
    """Writes down what each process went on from, as soon as it trains; slow enough to be killed anywhere."""

    def __init__(self, out, pause):
        self.out, self.pause = out, pause

    def on_train_start(self, trainer, module):
        tell_start(self.out, trainer.global_step)

    def on_train_batch_start(self, trainer, module, batch, index):
        take_time(self.out, self.pause)


class Manual(Net):
    """Steps by itself, every third batch."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        optimizer = self.optimizers()
        self.manual_backward(loss / 3)
        if index % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.body.parameters(), 1e-2)


def shuffled(make, **more):
    return make(Augmented(), 8, shuffle=True, collate_fn=collate, **more)


def two(make):
    """Two loaders; the shorter one begins anew within an epoch."""
    short = make(Subset(Augmented(), range(30)), 8, shuffle=True, num_workers=1)
    return {"a": short, "b": shuffled(make, num_workers=2)}


PERSISTENT = {"persistent_workers": True, **WORKERS}
DATA = {  # the module, its data by a class of loaders, and what the trainer is told
    "no workers, half precision": (Net, shuffled, {"accumulate_grad_batches": 2}),
    "workers": (Net, lambda of: shuffled(of, **WORKERS), {"accumulate_grad_batches": 2, "val_check_interval": 5}),
    "persistent workers": (Net, lambda of: shuffled(of, **PERSISTENT), {"accumulate_grad_batches": 3}),
    "stream": (Net, lambda of: of(Stream(), 8, collate_fn=collate, **WORKERS), {}),
    "stream without workers": (Net, lambda of: of(Stream(), 8, collate_fn=collate), {"limit_train_batches": 9}),
    "distributed sampler": (
        Net,
        lambda of: of(Augmented(), 8, sampler=DistributedSampler(Augmented(), 1, 0, seed=5)),
        {"reload_dataloaders_every_n_epochs": 1, "use_distributed_sampler": False},
    ),
    "two loaders": (Net, two, {"limit_train_batches": 11}),
    "manual steps": (Manual, lambda of: shuffled(of, **WORKERS), {"max_steps": 10, "max_epochs": -1}),
}
STEPS = {  # of the optimizer; 13 batches an epoch, 14 where each of two workers has a last one
    "no workers, half precision": 21, "workers": 21, "persistent workers": 15, "stream": 42,
    "stream without workers": 27, "distributed sampler": 39, "two loaders": 33, "manual steps": 10,
}  # fmt: skip


def quiet(**options):
    """A trainer that says nothing, and does not ask MPI where it is."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    plugins = [LightningEnvironment(), *options.pop("plugins", ())]
    options = {"accelerator": "cpu", "logger": False, "plugins": plugins, **options}
    return pl.Trainer(enable_progress_bar=False, enable_model_summary=False, **options)


def seed_all():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def fit(kind, callbacks, *, loaders=DataLoader, path=None, **more):
    """Train to the end; returns the trainer, the module and the scaler."""
    warnings.simplefilter("ignore")  # Lightning's advice on workers and lengths
    make, data, options = DATA[kind]
    options = {"max_epochs": EPOCHS, **options, **more}
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=2) if "half" in kind else None
    if scaler is not None:  # overflows at once, backs off, and grows until it overflows again
        options["plugins"] = [MixedPrecision("16-mixed", "cpu", scaler)]
    net, check = make(), DataLoader(Augmented(), 16, num_workers=1, persistent_workers=True)
    trainer = quiet(callbacks=callbacks, **options)
    trainer.fit(net, data(loaders), check, ckpt_path=path)
    return trainer, net, scaler


def train(root, out, *, kind, pause=0.0, every=2, **more):
    """Train to the end, and write down the steps, the epochs' means and a digest of everything."""
    seed_all()
    run = LightningRun(root, every=every)
    trainer, net, scaler = fit(kind, [run, Telling(out, pause)], **more)
    scheduler = trainer.lr_scheduler_configs[0].scheduler if trainer.lr_scheduler_configs else None
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(trainer.optimizers[0], 1)
    found = digest(net, trainer.optimizers[0], scheduler, scaler and scaler.state_dict())
    batches = trainer.fit_loop.epoch_loop.batch_progress.total.completed
    steps = f"{trainer.global_step} {batches} {trainer.current_epoch}"
    Path(out).write_text(f"{steps} {run.exact} {rates} {net.ends} {found}")
