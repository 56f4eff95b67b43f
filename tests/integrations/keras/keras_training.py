"""A small training under Keras with everything its own resume gets wrong; the backend is what KERAS_BACKEND says.

As a program, ``python -m tests.integrations.keras.keras_training FOLDER KIND...``, it trains each kind unbroken, then
killed in random batches, and prints for each what both ended with and the batches that were resumed from; on torch some
kinds are also told to end, workers and all. A start with JAX takes seconds, so there is one kill of each kind.
"""

import hashlib
import json
import random
import signal
import sys
from functools import partial
from pathlib import Path

import keras
import numpy as np
from tests.integrations.killing import ended, start, starts_of, told_to_end, whole_and_killed
from tests.integrations.trainer_data import take_time, tell_start

from model_checkpoint.integrations.keras import KerasRun

SAMPLES, BATCH, EPOCHS = 99, 8, 3
BATCHES = -(-SAMPLES // BATCH)


class Noisy(keras.utils.PyDataset):
    """Draws from every generator there is, and shuffles its samples between epochs."""

    def __init__(self, x, y, **workers):
        super().__init__(**workers)
        self.x, self.y, self.own = x, y, np.random.default_rng(3)
        self.order = np.arange(len(x))

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        some = self.order[index * BATCH : (index + 1) * BATCH]
        noise = np.random.rand(len(some), 6) + random.random() + self.own.random()
        return self.x[some] + 0.1 * noise.astype("float32"), self.y[some]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class Drawing(keras.callbacks.Callback):
    """Draws before and after every batch, as the next callback of a user will."""

    def on_train_batch_begin(self, batch, logs=None):
        self.before = float(np.random.rand())

    def on_train_batch_end(self, batch, logs=None):
        self.after = random.random()


class Telling(keras.callbacks.Callback):
    """Writes down what each process went on from, as soon as it trains; slow enough to be killed anywhere."""

    def __init__(self, out, pause, place):
        super().__init__()
        self._out, self._pause, self._place = out, pause, place

    def on_train_begin(self, logs=None):
        tell_start(self._out, self._place())

    def on_train_batch_begin(self, batch, logs=None):
        take_time(self._out, self._pause)


def arrays():
    x = np.random.default_rng(1).random((SAMPLES, 6), np.float32)
    return x, x.sum(1, keepdims=True)


def loader(**workers):
    from torch.utils.data import DataLoader, Dataset

    class Augmented(Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            x = arrays()[0][index] + np.float32(0.1 * (np.random.rand() + random.random()))
            return x, x.sum(keepdims=True)

    return DataLoader(Augmented(), BATCH, shuffle=True, **workers)


DATA = {
    "arrays": lambda: arrays(),
    "dataset": lambda: (Noisy(*arrays()), None),
    "processes": lambda: (Noisy(*arrays(), workers=2, use_multiprocessing=True, max_queue_size=3), None),
    "loader": lambda: (loader(), None),
    "persistent workers": lambda: (loader(num_workers=2, persistent_workers=True), None),
}


TOLD = [(signal.SIGTERM, "persistent workers"), (signal.SIGTERM, "processes"), (signal.SIGINT, "processes")]
HALF = ("dataset", "loader")  # kinds that are trained in mixed_float16


def build(kind="arrays"):
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy("mixed_float16" if kind in HALF else "float32")  # the former scales the loss
    layers = keras.layers
    noisy = [layers.Input((6,)), layers.GaussianNoise(0.1), layers.Dense(16, "relu"), layers.BatchNormalization()]
    model = keras.Sequential([*noisy, layers.Dropout(0.3), layers.Dense(1)])
    optimizer = keras.optimizers.AdamW(1e-2, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def fit(call, kind, out, pause, *, place, first=()):
    """Train to the end by ``call``, which is a ``fit`` that begins at ``place()``; returns its history."""
    callbacks = [
        *first,
        Telling(out, pause, place),
        Drawing(),
        keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=0, min_delta=1.0),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.EarlyStopping("val_loss", patience=5),
    ]
    x, y = DATA[kind]()
    options = {"batch_size": BATCH} if kind == "arrays" else {}
    return call(x, y, epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=arrays(), **options)


def train(root, out, *, kind, pause=0.0, every=3):
    """Train to the end, and write down the steps, the history and a digest of everything."""
    model, run = build(kind), KerasRun(root, every=every)
    # Not by steps of the optimizer: in half precision the first ones are skipped, however many batches there were.
    history = fit(partial(run.fit, model), kind, out, pause, place=lambda: run.resumed_from)
    found = weights([*model.variables, *model.optimizer.variables])
    found.update(repr((random.getstate(), np.random.get_state()[1].tolist(), history.history)).encode())
    epochs = len(history.history["val_loss"])
    Path(out).write_text(f"{run.step} {int(model.optimizer.iterations)} {epochs} {run.exact} {found.hexdigest()}")


def weights(variables):
    """A digest of variables, to go on with."""
    found = hashlib.sha256()
    for one in variables:
        found.update(keras.ops.convert_to_numpy(one.value).tobytes())
    return found


def main(folder, kinds):
    """Print a line of JSON for each kind."""
    warm = keras.backend.backend() == "torch"
    if warm:
        build()  # imports what is imported late, before the children are forked; JAX must not have begun to compute
    wholes = {}
    for kind in kinds:
        own = Path(folder, kind.replace(" ", "-"))
        own.mkdir()
        told = whole_and_killed(train, own, kills=1 + warm, seed=kind, kind=kind, pause=0.01)
        wholes[kind] = told[0]
        print(json.dumps([kind, *told]), flush=True)
    for number, kind in TOLD if warm else ():
        own = Path(folder, kind.replace(" ", "-"))
        root, out, options = own / number.name, own / f"{number.name}.out", {"kind": kind, "pause": 0.01}
        code = told_to_end(train, root, out, number=number, batches=5, every=1000, **options)
        assert ended(start(train, root, out, **options)) == 0
        print(json.dumps([number.name, wholes[kind], out.read_text(), [code, *starts_of(out)]]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
