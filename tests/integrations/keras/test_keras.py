"""The run for Keras: what it says, keeps, resumes and refuses."""

import signal
from itertools import count

import keras
import numpy as np
import pytest
import torch
from tests.ground.stored.stored_files import flip, steps

import model_checkpoint as mc
from model_checkpoint.errors import OptionInvalid, StructureMismatch
from model_checkpoint.integrations.errors import TrainerUnknown
from model_checkpoint.integrations.keras import KerasRun
from model_checkpoint.integrations.keras.exact_batches import batches_of

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")

X = np.arange(12, dtype="float32").reshape(12, 1)


class Failing(keras.callbacks.Callback):
    def __init__(self, at):
        super().__init__()
        self.at, self.batches = at, count()  # no plain value, so that a resume does not bring it back

    def on_train_batch_begin(self, batch, logs=None):
        if next(self.batches) == self.at:
            raise KeyError("a bug")


class Telling(keras.callbacks.Callback):
    """Sends a signal at a moment of the last epoch."""

    def __init__(self, number, moment):
        super().__init__()
        setattr(self, moment, lambda at=None, logs=None: self.tell(number, at))

    def tell(self, number, at):
        if at != 0:  # which is the first epoch
            signal.raise_signal(number)


def small():
    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    model.compile(keras.optimizers.SGD(1e-4, momentum=0.9), "mse")
    return model


def fit(root, *, epochs=2, callbacks=(), run=None, data=(X, 2 * X), **options):
    run, model = KerasRun(root, **(run or {})), small()
    options |= {"batch_size": 2} if len(data) == 2 else {}
    history = run.fit(model, *data, epochs=epochs, verbose=0, callbacks=list(callbacks), **options)
    return run, [float(one) for one in model.get_weights()[0].ravel()], history.history


def failing(root, at, **more):
    with pytest.raises(KeyError, match="a bug"):
        fit(root, callbacks=[Failing(at)], **more)


def test_it_saves_every_so_many_batches_after_validations_and_at_the_end(tmp_path):
    run, _, history = fit(tmp_path, run={"every": 4}, validation_data=(X, X))

    assert (run.resumed_from, run.opening, run.step) == (None, f"{tmp_path}: a new run", 12)
    assert steps(tmp_path) == [4, 6, 10, 12]
    measured = {one.step: one.metrics.get("val_loss") for one in mc.list_checkpoints(tmp_path)}
    assert measured == {4: None, 6: history["val_loss"][0], 10: None, 12: history["val_loss"][1]}


def test_an_exception_saves_nothing_half_done_and_the_next_fit_goes_on_within_the_epoch(tmp_path):
    _, whole, history = fit(tmp_path / "whole", callbacks=[Failing(99)])
    failing(tmp_path, 9, run={"every": 4})
    assert steps(tmp_path) == [4, 8]

    run, weights, again = fit(tmp_path, callbacks=[Failing(99)])

    assert (run.resumed_from, run.step) == (8, 12)
    assert "resumed at step 8 (epoch 1, batch 2) from " in run.opening
    assert (weights, again) == (whole, history)
    assert run.exact is True


def loader():
    from torch.utils.data import DataLoader, TensorDataset

    keras.utils.set_random_seed(5)
    return (DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(2 * X)), batch_size=2, shuffle=True),)


@pytest.mark.parametrize("data", [lambda: (X, 2 * X), loader])
def test_a_finished_fit_has_nothing_left_to_do_and_goes_on_with_more_epochs(tmp_path, data):
    _, whole, _ = fit(tmp_path / "whole", epochs=3, data=data())
    _, first, history = fit(tmp_path, epochs=2, data=data())
    again, same, told = fit(tmp_path, epochs=2, data=data())
    run, more, _ = fit(tmp_path, epochs=3, data=data())

    assert (again.resumed_from, same, told) == (12, first, history)
    assert (run.resumed_from, run.step, more) == (12, 18, whole)


def test_early_stopping_stays_stopped(tmp_path):
    def stop():
        early = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=1e9)
        run, weights, history = fit(tmp_path, epochs=9, callbacks=[early])
        return run.step, weights, history

    first = stop()
    assert first[0] == 12
    assert stop() == first


def test_only_what_a_keeper_claims_stays(tmp_path):
    keep = [mc.last(1), mc.best("val_loss", 1)]
    fit(tmp_path, epochs=3, run={"every": 2, "keep": keep}, validation_data=(X, X))

    assert steps(tmp_path) == [6, 18]


def test_a_damaged_newest_save_is_passed_over_and_said(tmp_path):
    failing(tmp_path, 9, run={"every": 4})
    assert steps(tmp_path) == [4, 8]
    broken = max((tmp_path / "checkpoints" / "step-00000008").glob("*.safetensors"))
    flip(broken)

    with pytest.warns(mc.CheckpointWarning, match="step-00000008"):
        run, _, _ = fit(tmp_path, callbacks=[Failing(99)])

    assert (run.resumed_from, run.step) == (4, 12)
    assert "passing over" in run.opening


def test_data_that_cannot_be_begun_within_an_epoch_is_resumed_by_epochs_and_said(tmp_path):
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(zip(X, X, strict=True))

    def go(callbacks):
        run, options = (
            KerasRun(tmp_path, every=1),
            {"epochs": 3, "verbose": 0, "shuffle": False, "callbacks": callbacks},
        )
        run.fit(small(), DataLoader(Stream(), batch_size=2), **options)
        return run

    with (
        pytest.warns(UserWarning, match="ran out of data"),  # Keras, of every loader without a length
        pytest.raises(KeyError, match="a bug"),
    ):
        go([Failing(9)])
    assert steps(tmp_path) == [6]
    with pytest.warns(UserWarning, match="ran out of data"):
        run = go([Failing(99)])

    assert (run.resumed_from, run.step) == (6, 18)
    assert "cannot be begun within an epoch" in run.opening
    assert run.exact == ("whether an epoch of this data depends on its number alone is not known",)


def test_another_seed_or_batch_size_is_named_as_a_reason(tmp_path):
    failing(tmp_path, 5, run={"every": 4})
    run, _, _ = fit(tmp_path, run={"seed": 7}, callbacks=[Failing(99)])

    assert run.exact == ("seed of the data was 0, is 7",)


def test_another_model_is_refused_before_anything_changes(tmp_path):
    fit(tmp_path)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    with pytest.raises(StructureMismatch, match="model: saved with 1 variables, now it has 4"):
        KerasRun(tmp_path).fit(model, X, X, verbose=0)


def test_other_callbacks_are_refused(tmp_path):
    failing(tmp_path, 5, run={"every": 4})

    with pytest.raises(StructureMismatch, match=r"callbacks: the run was saved with \['Failing', 'History'\]"):
        fit(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_split": 0.1}, "validation_split=: .* Cut the arrays yourself"),
        ({"steps_per_epoch": 3}, "steps_per_epoch=: "),
        ({"callbacks": [keras.callbacks.BackupAndRestore("somewhere")]}, "BackupAndRestore would set the run back"),
    ],
)
def test_what_no_run_could_resume_is_refused_at_once(tmp_path, options, message):
    with pytest.raises(OptionInvalid, match=message):
        KerasRun(tmp_path).fit(small(), X, X, **options)
    with pytest.raises(OptionInvalid, match="every must be a whole number of batches"):
        KerasRun(tmp_path, every=0)


def test_versions_and_backends_that_are_not_known_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    with pytest.raises(TrainerUnknown, match="keras on tensorflow: not known"):
        fit(tmp_path)
    monkeypatch.setattr(keras, "__version__", "3.99.0")
    with pytest.raises(TrainerUnknown, match=r"keras 3\.99\.0 is not known .* known is 3\.15\.x"):
        fit(tmp_path)


def test_arrays_come_as_keras_would_have_them():
    x = {"a": X.astype("float64"), "b": np.arange(12)}
    [batch, y, weights] = batches_of(x, X, {"batch_size": 4, "sample_weight": X[:, 0]}, seed=1)[2]

    assert (batch["a"].dtype, batch["b"].dtype, len(y), len(weights)) == (np.float32, np.int64, 4, 4)
    assert (batch["a"][:, 0] == batch["b"]).all()
    with pytest.raises(OptionInvalid, match=r"must be of one length, got \[11, 12\]"):
        batches_of(X, X[1:], {}, seed=0)


@pytest.mark.parametrize("verbose", [0, 2])
def test_what_it_goes_on_from_is_said_unless_nothing_is_to_be(tmp_path, capsys, verbose):
    said = ""
    for epochs in (1, 2):
        run = KerasRun(tmp_path)
        run.fit(small(), X, 2 * X, batch_size=2, epochs=epochs, verbose=verbose)
        said += f"{run.opening}\n"

    assert "resumed at step 6 " in said
    assert capsys.readouterr().err == ("" if verbose == 0 else said)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
@pytest.mark.parametrize("moment", ["on_epoch_end", "on_train_end"])
def test_a_fit_that_is_told_to_end_after_the_last_boundary_saves_all_and_ends(tmp_path, moment, number, error):
    with pytest.raises(error, match="^143$" if error is SystemExit else "^$"):
        fit(tmp_path, epochs=2, callbacks=[Telling(number, moment)])

    done = mc.list_checkpoints(tmp_path)[0].metadata["run"]
    assert (done["epoch"], done["batch"]) == (2, 0)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


class Shaken(torch.utils.data.Dataset):
    """Draws in a worker."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        x = X[index] + np.float32(np.random.rand())
        return x, 2 * x


def test_a_finished_fit_given_more_epochs_is_exact_with_workers_that_would_have_lived_on(tmp_path):
    def go(root, epochs):
        keras.utils.set_random_seed(3)
        run, model = KerasRun(root), small()
        data = torch.utils.data.DataLoader(Shaken(), 2, shuffle=True, num_workers=1, persistent_workers=True)
        run.fit(model, data, epochs=epochs, verbose=0)
        return run.exact, model.get_weights()[0].tolist(), np.random.rand(), torch.rand(1).item()

    whole = go(tmp_path / "whole", 3)
    go(tmp_path / "longer", 1)

    assert go(tmp_path / "longer", 3) == whole
    assert whole[0] is True
