"""The callback for Lightning: what it says, keeps, resumes and refuses."""

import signal

import pytest
import torch
from tests.ground.stored.stored_files import data_file, flip, steps

pl = pytest.importorskip("lightning.pytorch")

from tests.integrations.killing import ended, start, starts_of, told_to_end, unbroken  # noqa: E402
from tests.integrations.lightning.lightning_training import quiet, train  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import model_checkpoint as mc  # noqa: E402
from model_checkpoint.errors import OptionInvalid, StructureMismatch  # noqa: E402
from model_checkpoint.integrations.errors import TrainerUnknown  # noqa: E402
from model_checkpoint.integrations.lightning import LightningRun  # noqa: E402
from model_checkpoint.integrations.lightning.trainer_checks import require_exact  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]
ROWS = 12


class CountingSteps:
    """Its one weight says how many batches it has seen; it may fail at one of them."""

    def __init__(self, fail_at=None):
        super().__init__()
        self.weight, self.fail_at = torch.nn.Parameter(torch.zeros(1)), fail_at

    @property
    def count(self):
        return self.weight.detach().item()

    def training_step(self, batch, index):
        if self.trainer.global_step == self.fail_at:
            raise KeyError("a bug")
        return -self.weight.sum()

    def validation_step(self, batch, index):
        self.log("val_loss", (self.weight - 5).abs().sum())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


class Counting(CountingSteps, pl.LightningModule):
    pass


def data():
    return DataLoader(TensorDataset(torch.zeros(ROWS)), batch_size=2)


def fit(root, *, model=None, epochs=1, trainer=None, ckpt_path=None, others=(), **options):
    run, model = LightningRun(root, **options), model or Counting()
    made = quiet(max_epochs=epochs, callbacks=[run, *others], num_sanity_val_steps=0, **(trainer or {}))
    made.fit(model, data(), data(), ckpt_path=ckpt_path)
    return run, model, made


def test_it_saves_every_so_many_steps_after_validations_and_at_the_end(tmp_path):
    run, model, _ = fit(tmp_path, epochs=2, every=4)

    assert (run.resumed_from, run.opening) == (None, f"{tmp_path}: a new run")
    assert steps(tmp_path) == [4, 6, 10, 12]
    assert model.count == 12.0
    newest = mc.load(tmp_path)
    assert float(newest["state_dict"]["weight"]) == 12.0
    assert mc.list_checkpoints(tmp_path)[0].metadata["run"]["exact"] is True


def test_metrics_of_a_validation_belong_to_the_checkpoint_of_that_step_alone(tmp_path):
    fit(tmp_path, epochs=2, every=4)

    measured = {one.step: one.metrics.get("val_loss") for one in mc.list_checkpoints(tmp_path)}
    assert measured == {4: None, 6: 1.0, 10: None, 12: 7.0}


def test_the_best_and_the_last_stay_and_lightning_finds_the_best(tmp_path):
    keep = [mc.last(1), mc.best("val_loss", 1)]
    run, model, trainer = fit(tmp_path, epochs=3, every=2, keep=keep)

    assert steps(tmp_path) == [6, 18]
    assert run.best_model_path == f"{tmp_path}@best:val_loss"
    trainer.validate(model, data(), ckpt_path="best", verbose=False)
    assert model.count == 6.0


def test_an_exception_saves_nothing_half_done_and_the_next_fit_goes_on_from_the_newest_save(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        fit(tmp_path, epochs=2, every=4, model=Counting(fail_at=5))
    assert steps(tmp_path) == [4]

    run, model, trainer = fit(tmp_path, epochs=2, every=4)

    assert (run.resumed_from, trainer.global_step, model.count) == (4, 12, 12.0)
    assert "resumed at step 4 (epoch 0, batch 4) from " in run.opening


def test_a_finished_fit_has_nothing_left_to_do_and_goes_on_with_more_epochs(tmp_path):
    fit(tmp_path, epochs=1)
    again, same, _ = fit(tmp_path, epochs=1)
    run, more, trainer = fit(tmp_path, epochs=3)

    assert (again.resumed_from, same.count) == (6, 6.0)
    assert (run.resumed_from, trainer.global_step, more.count) == (6, 18, 18.0)


def test_early_stopping_stays_stopped(tmp_path):
    def stop():
        early = pl.callbacks.EarlyStopping("val_loss", patience=1)
        run, model = LightningRun(tmp_path), Counting()
        trainer = quiet(max_epochs=9, callbacks=[early, run], num_sanity_val_steps=0)
        trainer.fit(model, data(), data())
        return run.resumed_from, trainer.global_step, model.count

    assert stop() == (None, 12, 12.0)
    assert stop() == (12, 12, 12.0)


def test_a_damaged_newest_save_is_passed_over_and_said(tmp_path):
    fit(tmp_path, epochs=1, every=3)
    flip(data_file(tmp_path, 6))

    with pytest.warns(mc.CheckpointWarning, match="step-00000006"):
        run, model, _ = fit(tmp_path, epochs=1, every=3)

    assert (run.resumed_from, model.count) == (3, 6.0)
    assert "passing over" in run.opening


def test_a_path_is_passed_over_where_the_run_has_more_to_go_on_from_and_taken_where_not(tmp_path, caplog):
    _, _, trainer = fit(tmp_path / "a", epochs=1)
    trainer.save_checkpoint(tmp_path / "own.ckpt")  # a file of Lightning's own, as ever

    _, begun, _ = fit(tmp_path / "b", epochs=2, every=2, ckpt_path=str(tmp_path / "own.ckpt"))
    run, again, _ = fit(tmp_path / "b", epochs=3, ckpt_path=str(tmp_path / "own.ckpt"))

    assert begun.count == 12.0
    assert (run.resumed_from, again.count) == (12, 18.0)
    assert "own.ckpt is passed over" in caplog.text


def test_a_trial_of_one_batch_leaves_no_trace(tmp_path):
    quiet(fast_dev_run=True, callbacks=[LightningRun(tmp_path / "a", every=1)]).fit(Counting(), data())

    assert not (tmp_path / "a").exists()


def test_checkpoints_of_something_else_are_refused(tmp_path):
    mc.save(tmp_path, {"weights": [1.0]}, step=1)

    with pytest.raises(StructureMismatch, match="was not saved by a LightningRun"):
        fit(tmp_path)


def test_other_loaders_than_were_saved_are_refused(tmp_path):
    with pytest.raises(KeyError, match="a bug"):
        fit(tmp_path, every=2, model=Counting(fail_at=4))
    run = LightningRun(tmp_path)
    trainer = quiet(max_epochs=1, callbacks=[run])

    with pytest.raises(StructureMismatch, match="saved with 1 training loaders, now there are 2"):
        trainer.fit(Counting(), [data(), data()])


@pytest.mark.parametrize(("module", "package"), [("lightning.pytorch", "lightning"), ("pytorch_lightning",) * 2])
def test_a_version_that_is_not_known_is_refused_by_name(tmp_path, monkeypatch, module, package):
    monkeypatch.setattr(pytest.importorskip(module), "__version__", "2.9.1")

    with pytest.raises(TrainerUnknown, match=rf"^{package} 2\.9\.1 is not known .* known is 2\.6\.x"):
        LightningRun(tmp_path)


def test_ways_of_training_that_are_not_known_are_refused(tmp_path):
    with pytest.raises(TrainerUnknown, match="Trainer with 2 processes: only one is known"):
        require_exact(quiet(devices=2))
    with pytest.raises(OptionInvalid, match="every must be a whole number of steps"):
        LightningRun(tmp_path, every=0)


def test_a_step_that_takes_batches_itself_is_refused(tmp_path):
    class Taking(Counting):
        def training_step(self, dataloader_iter):
            return -self.weight.sum()

    with (
        pytest.warns(UserWarning, match="dataloader_iter"),
        pytest.raises(TrainerUnknown, match="takes batches by itself"),
    ):
        fit(tmp_path, model=Taking())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_a_fit_that_is_told_to_end_saves_at_the_next_boundary_and_goes_on_from_there(tmp_path, number, code):
    whole, _ = unbroken(train, tmp_path, kind="persistent workers")
    root, out = tmp_path / "told", tmp_path / "told.out"

    options = {"kind": "persistent workers", "pause": 0.02, "every": 1000}
    assert told_to_end(train, root, out, number=number, batches=8, **options) == code
    [saved] = [one.step for one in mc.list_checkpoints(root)]
    assert ended(start(train, root, out, kind="persistent workers")) == 0

    assert out.read_text() == whole
    assert starts_of(out) == [0, saved]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
@pytest.mark.parametrize("moment", ["on_train_batch_end", "on_train_end"])
def test_a_fit_that_is_told_to_end_after_the_last_boundary_saves_all_and_ends(tmp_path, moment, number, code):
    def tell(self, trainer, *_):
        if trainer.global_step == 6:
            signal.raise_signal(number)

    telling = type("Telling", (pl.Callback,), {moment: tell})()
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit, match=f"^{code}$"):
            fit(tmp_path, others=[telling])
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning leaves it ignored

    assert steps(tmp_path)[-1] == 6
    assert fit(tmp_path)[0].resumed_from == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # the advice of the other package
def test_it_is_a_callback_of_the_other_package_too(tmp_path):
    other = pytest.importorskip("pytorch_lightning")

    class Net(CountingSteps, other.LightningModule):
        pass

    run, model = LightningRun(tmp_path, every=4), Net()
    assert isinstance(run, other.callbacks.Checkpoint)
    from lightning_fabric.plugins.environments import LightningEnvironment

    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    other.Trainer(max_epochs=1, callbacks=[run], plugins=[LightningEnvironment()], **options).fit(model, data())

    assert steps(tmp_path) == [4, 6]
