"""Keras 3 models and optimizers: exact on every backend, into live ones, and from one backend to another."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tree.carrying import fill, loaded, stored

from model_checkpoint.errors import CheckpointException, StructureMismatch
from model_checkpoint.tree import flatten, live_specs, prepare, select

SCRIPT = Path(__file__).with_name("keras_states.py")


def run(backend, root, saved_by):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), backend, str(root), saved_by],
        capture_output=True, text=True, check=False, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["fine"], done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_keras_run_resumes_exactly_and_its_weights_reach_another_backend(tmp_path, backend):
    """Counters and seeds have another dtype in each backend; weights have the same in all."""
    run(backend, tmp_path, backend)
    run({"tensorflow": "jax", "jax": "torch", "torch": "tensorflow"}[backend], tmp_path, backend)


@pytest.fixture(scope="module")
def keras():
    """Keras on the backend this process has; it is imported here, so that collecting stays quick."""
    return pytest.importorskip("keras")


@pytest.fixture(scope="module")
def keras_variables(keras):
    return importlib.import_module("model_checkpoint.tree.arrays.keras_variables")


def values(keras, thing):
    return [keras.ops.convert_to_numpy(variable.value).tolist() for variable in thing.variables]


def dense(keras, *, first=0.0):
    layer = keras.layers.Dense(2, kernel_initializer=keras.initializers.Constant(first))
    layer.build((None, 3))
    return layer


def test_variables_are_named_by_position_and_without_the_counters_of_a_process(keras, keras_variables):
    named = keras_variables.named_variables(dense(keras))
    metric = keras.metrics.Mean(name="loss_12_a_3b")

    assert list(named) == ["0.kernel", "1.bias"]
    assert [spec.name for spec in live_specs({"m": dense(keras)}).specs] == ["m.0.kernel", "m.1.bias"]
    assert set(keras_variables.state_of(metric)) == set(keras_variables.named_variables(metric))


def test_objects_of_keras_are_known_by_their_kind(keras, keras_variables):
    kinds = [keras_variables.object_kind(cls) for cls in (keras.Model, keras.optimizers.Adam, keras.metrics.Mean, int)]

    assert kinds == ["keras.model", "keras.optimizer", "keras.metric", None]
    both = flatten([dense(keras), keras.metrics.Mean()]).tree[1]
    assert [node[1] for node in both] == ["keras.model", "keras.metric"]


def test_saved_variables_reach_live_ones_in_their_place(keras):
    saved, live = dense(keras, first=2.0), dense(keras)
    kernel, metric, other = live.kernel, keras.metrics.Mean(), keras.metrics.Mean()
    metric.update_state(6.0)

    loaded({"m": saved, "n": metric}, {"m": live, "n": other})

    assert live.kernel is kernel
    assert values(keras, live) == values(keras, saved)
    assert float(other.result()) == 6.0


def test_a_layer_without_variables_is_not_saved_and_an_optimizer_without_is(keras):
    with pytest.raises(CheckpointException, match=r"^m: .*the Keras Dense has no variables yet\. Call it once"):
        flatten({"m": keras.layers.Dense(2)})
    assert flatten({"o": keras.optimizers.SGD()}).tree[1][1][1] == "keras.optimizer"


def test_what_does_not_fit_live_variables_is_refused(keras):
    tree, entries, _, _ = stored({"m": dense(keras)})
    optimizer = keras.optimizers.Adam()
    optimizer.build(dense(keras).trainable_variables)
    other = keras.layers.Dense(2)
    other.build((None, 4))
    forged = ["d", ["m", ["m", "keras.model", "x", ["k", ["0.kernel", 5, "1.bias", ["a", 1]]]]]]

    with pytest.raises(StructureMismatch, match=r"m: live it is a Dense, saved were no variables"):
        loaded({"m": [1, 2]}, {"m": dense(keras)})
    with pytest.raises(StructureMismatch, match=r"m: saved with 2 variables, live it has 0: it is not built"):
        prepare(tree, entries, into={"m": keras.layers.Dense(2)})
    with pytest.raises(StructureMismatch, match=r"m\.0\.kernel: live it is a variable, saved was a plain value"):
        prepare(forged, entries, into={"m": dense(keras)})
    with pytest.raises(StructureMismatch, match=r"m\.0\.kernel: saved float32 \[3, 2\], live float32 \[4, 2\]"):
        prepare(tree, entries, into={"m": other})
    with pytest.raises(StructureMismatch, match=r"o: saved with \d+ variables, live it has \d+: it is not built"):
        loaded({"o": optimizer}, {"o": keras.optimizers.Adam()})
    assert live_specs({"m": keras.layers.Dense(2)}).open_prefixes == ("m.",)
    assert live_specs(keras.layers.Dense(2)).open_prefixes == ("",)
    assert live_specs({"m": dense(keras)}).open_prefixes == ()


def test_a_part_of_the_variables_fills_only_those(keras):
    saved, live = dense(keras, first=2.0), dense(keras, first=1.0)
    tree, entries, blobs, _ = stored({"m": saved})

    fill(prepare(select(tree, lambda name: "bias" in name), entries, into={"m": live}), blobs)

    assert values(keras, live)[0] == [[1.0, 1.0]] * 3
