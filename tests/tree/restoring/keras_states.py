"""A Keras model and optimizer of one backend, saved, changed and loaded again, in a process of its own."""

import os
import sys

import numpy as np
import pytest

import model_checkpoint as mc

if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = sys.argv[1]  # before Keras is imported
    import keras

DATA = np.random.default_rng(0).standard_normal((16, 4)).astype("float32")


def built():
    keras.utils.set_random_seed(1)
    inner = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((4,)), *inner])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model


def train(model, epochs=2):
    model.fit(DATA, DATA[:, :1], epochs=epochs, batch_size=4, shuffle=False, verbose=0)


def values(model):
    whole = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable).tobytes() for variable in whole]


def parts(model):
    return {"model": model, "optimizer": model.optimizer}


def save_and_resume(root, backend):
    first = built()
    train(first)
    mc.save(root, parts(first), step=1)
    want = values(first)

    second = built()
    train(second, epochs=1)  # a first fit compiles, and draws seeds while it does so
    held = [variable.value for variable in second.variables]
    mc.load(root, into=parts(second))
    assert values(second) == want
    assert backend == "jax" or all(a is b.value for a, b in zip(held, second.variables, strict=True))
    for model in (first, second):
        keras.utils.set_random_seed(2)  # the torch backend draws from the generators of the program
        train(model)
    assert values(second) == values(first), "a resumed run goes another way"

    back = mc.load(root)
    arrays = (*back["model"].values(), *back["optimizer"].values())
    assert [keras.ops.convert_to_numpy(array).tobytes() for array in arrays] == want
    assert [part.kind for part in mc.describe(root).parts] == ["module", "optimizer"]
    assert list(back["model"])[:2] == ["0.kernel", "1.bias"]

    with pytest.raises(mc.CheckpointException, match="no variables yet"):
        mc.save(root, {"model": keras.Sequential([keras.layers.Dense(2)])}, step=2)
    fresh = keras.optimizers.Adam(0.01)
    with pytest.raises(mc.CheckpointException, match=r"Call its build\(\) first"):
        mc.load(root, parts="optimizer", into={"optimizer": fresh})


def load_from_another_backend(root):
    other = built()
    weights = [f"model.{i}.*" for i, variable in enumerate(other.variables) if variable.trainable]
    mc.load(root, parts=weights, into={"model": other})
    saved = mc.load(root, parts=weights, framework="numpy")["model"]
    live = [keras.ops.convert_to_numpy(variable) for variable in other.trainable_variables]
    assert [a.tobytes() for a in live] == [a.tobytes() for a in saved.values()]


if __name__ == "__main__":
    _, backend, root, saved_by = sys.argv
    if saved_by == backend:
        save_and_resume(root, backend)
    else:
        load_from_another_backend(root)
    print("fine")
