"""Trainers in a catalog: one experiment with all that was logged, its checkpoints, the best of them, and its end."""

import keras
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.utils.data import DataLoader, TensorDataset

import model_checkpoint as mc
from model_checkpoint import ExperimentTracker
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.accelerate import AcceleratedRun
from model_checkpoint.integrations.huggingface import TrainerRun
from model_checkpoint.integrations.keras import KerasRun
from model_checkpoint.integrations.lightning import LightningRun
from model_checkpoint.tracking.bridges import TensorboardTracker
from tests.integrations.huggingface.hf_training import Failing, make
from tests.integrations.lightning.lightning_training import quiet
from tests.tracking.bridges.event_files import scalars

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the advice of trainers

pl = pytest.importorskip("lightning.pytorch")

ROWS = torch.arange(24.0).view(24, 1) / 24


class Bug(RuntimeError):
    pass


class Net(pl.LightningModule):
    def __init__(self, fail_at):
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.fail_at = torch.nn.Linear(1, 1), fail_at

    def training_step(self, batch, index):
        if self.trainer.global_step == self.fail_at:
            raise Bug("a bug")
        loss = (self.layer(batch[0]) - 1).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", (self.layer(batch[0]) - 1).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def lightning(root, catalog, fail_at=None):
    """12 steps, validated after 6."""
    run = LightningRun(root, every=4, keep=[mc.last(1), mc.best("val_loss")], catalog=catalog)
    trainer = quiet(max_epochs=2, callbacks=[run], num_sanity_val_steps=0, log_every_n_steps=1)
    loader = DataLoader(TensorDataset(ROWS), batch_size=4)
    trainer.fit(Net(fail_at), loader, loader)
    return run


def huggingface(root, catalog, fail_at=None):
    """14 steps, evaluated and saved after 4, 8 and 12, saved at the end."""
    trainer = make(
        root, callbacks=[Failing(fail_at, Bug)], num_train_epochs=2, eval_steps=4, save_steps=4, logging_steps=1
    )
    run = TrainerRun(trainer, root, keep=[mc.last(1), mc.best("eval_loss")], catalog=catalog)
    trainer.train()
    return run


def accelerated(root, catalog, fail_at=None):
    """12 steps."""
    AcceleratorState._reset_state()
    torch.manual_seed(1)
    accelerator, model = Accelerator(cpu=True), torch.nn.Linear(1, 1)
    loader, optimizer = DataLoader(ROWS, batch_size=4), torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    keep = [mc.last(1), mc.best("val_loss")]
    run = AcceleratedRun(accelerator, root, data=loader, epochs=2, every=4, keep=keep, catalog=catalog, progress=False)
    for batch in run:
        if run.step == fail_at:
            raise Bug("a bug")
        loss = (model(batch) - 1).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        run.log(train_loss=loss, val_loss=loss)
    return run


def looped(root, catalog, fail_at=None):
    """12 steps."""
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(ROWS, batch_size=4)
    keep = [mc.last(1), mc.best("val_loss")]
    run = mc.Run(
        root, data=loader, epochs=2, every=4, keep=keep, catalog=catalog, progress=False,
        model=model, optimizer=optimizer,
    )  # fmt: skip
    for batch in run:
        if run.step == fail_at:
            raise Bug("a bug")
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.log(train_loss=loss, val_loss=loss)
    return run


class FailingFit(keras.callbacks.Callback):
    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_train_batch_begin(self, batch, logs=None):
        if self.model.optimizer.iterations == (self.at if self.at is not None else -1):
            raise Bug("a bug")


def in_keras(root, catalog, fail_at=None):
    """12 batches, validated after 6."""
    x = np.asarray(ROWS)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    run = KerasRun(root, every=4, keep=[mc.last(1), mc.best("val_loss")], catalog=catalog)
    options = {"validation_data": (x, x), "callbacks": [FailingFit(fail_at)], "verbose": 0}
    run.fit(model, x, x, batch_size=4, epochs=2, **options)
    return run


TRAINERS = {
    "loop": (looped, 12, "train_loss", "val_loss"),
    "lightning": (lightning, 12, "train_loss", "val_loss"),
    "huggingface": (huggingface, 14, "loss", "eval_loss"),
    "accelerate": (accelerated, 12, "train_loss", "val_loss"),
    "keras": (in_keras, 12, "loss", "val_loss"),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainer_is_one_experiment_before_and_after_it_failed(tmp_path, url, catalog, name):
    train, steps, trained, judged = TRAINERS[name]
    with pytest.raises(Bug, match="a bug"):
        train(tmp_path / "a", url, fail_at=9)
    mc.finish_saves(tmp_path / "a")
    [failed] = catalog.list_experiments().items

    run = train(tmp_path / "a", url)

    [row] = catalog.list_experiments().items
    assert run.resumed_from > 0
    assert (row.id, row.status, row.step) == (failed.id, "completed", steps)
    assert row.id == run.tracker.experiment_id
    kept = catalog.get_checkpoints_by_experiment(row.id)
    assert [one.step for one in kept] == sorted((one.step for one in mc.list_checkpoints(tmp_path / "a")), reverse=True)
    assert kept[0].step == steps
    assert catalog.get_checkpoints_by_experiment(row.id, state="deleted")  # keepers drop rows with their files
    points = catalog.get_metrics(row.id)
    assert {trained, judged} <= {point.metric_name for point in points}
    assert max(point.step for point in points) == steps


@pytest.mark.parametrize("name", TRAINERS)
def test_the_best_checkpoint_of_a_trainer_stays_and_is_marked_in_the_catalog(tmp_path, url, catalog, name):
    train, _, _, judged = TRAINERS[name]
    train(tmp_path / "a", url)

    [row] = catalog.list_experiments().items
    rows = catalog.get_checkpoints_by_experiment(row.id)
    rows += catalog.get_checkpoints_by_experiment(row.id, state="deleted")
    values = {one.step: one.val_loss if judged == "val_loss" else one.metrics.get(judged) for one in rows}
    best = min((value, -step) for step, value in values.items() if value is not None)
    [marked] = [one for one in rows if (one.is_best_val_loss if judged == "val_loss" else one.is_best_metric)]
    assert values[marked.step] == best[0]
    assert marked.state == "committed"
    assert mc.load(tmp_path / "a", step=marked.step)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_tracker_of_the_callers_with_bridges_gets_it_all(tmp_path, url, name):
    train, steps, trained, _ = TRAINERS[name]
    other = TensorboardTracker(tmp_path / "tb")
    with ExperimentTracker("mine", "digits", database_url=url, bridges=[other]) as tracker:
        train(tmp_path / "a", tracker)
        assert tracker.experiment.status == "running"

    stored = [(point.step, float(np.float32(point.metric_value))) for point in tracker.get_metrics(trained)]
    assert len(stored) >= (2 if name == "keras" else steps)  # which logs once an epoch
    found = scalars(tmp_path / "tb" / "digits" / f"mine-{tracker.experiment_id[:8]}")
    assert sorted(found[trained]) == sorted(stored)


def test_what_is_no_catalog_is_refused_by_every_trainer(tmp_path):
    with pytest.raises(OptionInvalid, match="catalog must be the URL of a database"):
        LightningRun(tmp_path, catalog=5)
    with pytest.raises(OptionInvalid, match="catalog must be the URL of a database"):
        KerasRun(tmp_path, catalog=5)
    with pytest.raises(OptionInvalid, match="catalog must be the URL of a database"):
        TrainerRun(make(tmp_path / "a"), tmp_path / "a", catalog=5)
    with pytest.raises(OptionInvalid, match="catalog must be the URL of a database"):
        accelerated(tmp_path / "a", 5)
