"""Other frameworks: as saved, converted without a cast, or refused by name."""

import numpy as np
import pytest
import torch
from tests.tree.carrying import fill, same, stored, trip

from model_checkpoint.errors import StructureMismatch, UnsupportedType
from model_checkpoint.tree import flatten, live_specs, prepare


def test_torch_arrays_come_back_as_numpy_and_the_other_way_round():
    base = torch.arange(6, dtype=torch.bfloat16)

    plain = trip({"a": base, "b": base[2:], "p": torch.nn.Parameter(torch.ones(1))}, framework="numpy")
    tensors = trip({"a": np.arange(3, dtype=">i4"), "b": np.arange(4.0)[::-1], "s": "text"}, framework="torch")

    assert str(plain["a"].dtype) == "bfloat16"
    assert plain["a"].astype(int).tolist() == list(range(6))
    assert np.shares_memory(plain["a"], plain["b"])
    assert type(plain["p"]) is np.ndarray
    assert tensors["a"].dtype == torch.int32
    assert tensors["a"].tolist() == [0, 1, 2]
    assert tensors["b"].tolist() == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("state", "framework", "told"),
    [
        ({"w": np.array(["a"])}, "torch", r"^w: dtype <U1 of numpy: torch cannot say it exactly"),
        ({"w": np.zeros(1, "M8[s]")}, "torch", r"^w: dtype datetime64\[s\]"),
        ({"w": torch.zeros(1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, "numpy", r"^w: dtype float4_e2m1fn_x2"),
        ({"w": torch.zeros(1, dtype=torch.int32).view(torch.complex32)}, "numpy", r"^w: dtype complex32 of torch"),
    ],
    ids=["text", "time", "fp4", "complex32"],
)
def test_what_a_framework_cannot_say_is_refused_by_name(state, framework, told):
    tree, entries, _, _ = stored(state)

    with pytest.raises(UnsupportedType, match=told):
        prepare(tree, entries, framework=framework)


def test_torch_arrays_go_to_the_asked_device():
    tree, entries, blobs, _ = stored({"a": torch.ones(2), "b": np.ones(2)})

    back = fill(prepare(tree, entries, device="meta"), blobs)

    assert back["a"].device.type == "meta"
    assert type(back["b"]) is np.ndarray


def test_jax_arrays_and_keys_come_back():
    import jax
    import jax.numpy as jnp

    state = {
        "b": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3), "i4": jnp.array([1, -2], jnp.int4), "s": jnp.float32(2),
        "key": jax.random.key(3), "rbg": jax.random.key(1, impl="rbg"), "old": jax.random.PRNGKey(1),
        "keys": jax.random.split(jax.random.key(2), 3), "z": jnp.zeros((0, 2)), "t": jnp.ones((2, 3)).T,
    }  # fmt: skip
    tree, entries, blobs, _ = stored(state)
    live = {"b": jnp.zeros((2, 3), jnp.bfloat16), "key": jax.random.key(0)}
    twice = stored([state["key"], state["key"], state["b"], state["b"]])

    back = fill(prepare(tree, entries), blobs)
    fill(prepare(tree, entries, into=live), blobs)

    assert len(twice[3].leaves) == 2
    again = fill(prepare(*twice[:2]), twice[2])
    assert again[0] is again[1]
    assert again[0].dtype == state["key"].dtype
    for key, array in state.items():
        assert (back[key].dtype, back[key].shape) == (array.dtype, array.shape)
    same(np.asarray(back["b"]), np.asarray(state["b"]))
    assert jax.random.normal(back["rbg"]) == jax.random.normal(state["rbg"])
    assert jax.random.normal(live["key"]) == jax.random.normal(state["key"])
    same(np.asarray(live["b"]), np.asarray(state["b"]))
    assert {spec.name: spec.dtype for spec in live_specs(live).specs} == {"b": "bfloat16", "key": "uint32"}
    with pytest.raises(StructureMismatch, match=r"rbg: saved as \['key', 'rbg'\], live \['key', "):
        prepare(tree, entries, into={"rbg": jax.random.wrap_key_data(jnp.zeros(4, jnp.uint32), impl="unsafe_rbg")})
    wide = stored({"w": np.ones(2)})
    with pytest.raises(UnsupportedType, match=r"^w: dtype float64: JAX as configured cannot hold it"):
        prepare(*wide[:2], framework="jax")
    narrow = stored({"w": torch.ones(2, dtype=torch.bfloat16)})
    assert fill(prepare(*narrow[:2], framework="jax"), narrow[2])["w"].dtype == jnp.bfloat16
    with pytest.raises(UnsupportedType, match=r"^x: a traced JAX value has no bytes"):
        jax.jit(lambda x: stored({"x": x}))(jnp.ones(1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorflow_tensors_and_variables_come_back():
    tf = pytest.importorskip("tensorflow")
    state = {"v": tf.Variable([1.0, 2.0], name="v", trainable=False), "c": tf.constant([[1, 2]], tf.int64),
             "h": tf.cast([1, 2], tf.bfloat16), "z": tf.zeros((0, 3))}  # fmt: skip
    tree, entries, blobs, _ = stored(state)
    live = {"v": tf.Variable([0.0, 0.0]), "c": tf.constant([[0, 0]], tf.int64)}
    variable = live["v"]

    back = fill(prepare(tree, entries), blobs)
    fill(prepare(tree, entries, into=live), blobs)

    assert isinstance(back["v"], tf.Variable)
    assert not back["v"].trainable
    assert back["v"].numpy().tolist() == [1, 2]
    assert (back["h"].dtype, back["z"].shape) == (tf.bfloat16, (0, 3))
    assert live["v"] is variable
    assert variable.numpy().tolist() == [1, 2]
    assert live["c"].numpy().tolist() == [[1, 2]]
    assert type(trip({"t": torch.ones(1)}, framework="tensorflow")["t"].numpy()) is np.ndarray
    with pytest.raises(UnsupportedType, match=r"^s: .*string.*register_codec"):
        stored({"s": tf.constant("text")})


def test_a_jax_array_on_the_host_shows_its_own_memory():
    import jax.numpy as jnp

    array = jnp.arange(6, dtype=jnp.float32)
    source = flatten({"w": array}).leaves[0].source

    assert np.shares_memory(np.frombuffer(source.window(4, 20), np.uint8), np.asarray(array))
    assert flatten({"w": jnp.zeros((0, 2))}).leaves[0].source.window(0, 0).nbytes == 0


def test_a_live_key_and_live_numbers_are_not_taken_for_each_other():
    import jax

    key = jax.random.key(3)
    numbers = jax.random.key_data(key)

    with pytest.raises(StructureMismatch, match=r"k: saved as numbers, live \['key', "):
        prepare(*stored({"k": numbers})[:2], into={"k": key})
    with pytest.raises(StructureMismatch, match=r"k: saved as \['key', .*live numbers"):
        prepare(*stored({"k": key})[:2], into={"k": numbers})
    with pytest.raises(StructureMismatch, match=r"k: saved as numbers, live \['key', "):
        prepare(*stored({"k": np.asarray(numbers)})[:2], into={"k": key})


def test_devices_and_dtypes_a_framework_does_not_have_are_refused():
    import jax
    import jax.numpy as jnp

    tree, entries, blobs, _ = stored({"w": jnp.ones(2)})
    text = stored({"w": np.array(["a"])})[:2]

    with pytest.raises(UnsupportedType, match=r"^device: JAX cannot use 'moon' here \(.*Choose another device"):
        prepare(tree, entries, device="moon")
    with pytest.raises(UnsupportedType, match=r"^device: torch cannot use 'moon' here \(.*Choose another device"):
        prepare(*stored({"w": torch.ones(2)})[:2], device="moon")
    with pytest.raises(UnsupportedType, match=r"^w: dtype <U1: JAX as configured cannot hold it"):
        prepare(*text, framework="jax")
    with pytest.raises(UnsupportedType, match=r"^w: dtype <U1: TensorFlow cannot hold it"):
        prepare(*text, framework="tensorflow")
    for device in ("cpu", jax.devices()[0]):
        assert fill(prepare(tree, entries, device=device), blobs)["w"].devices() == {jax.devices()[0]}


def test_a_view_comes_back_in_the_framework_that_is_asked_for():
    base = np.arange(6.0, dtype=np.float32)
    state = {"whole": base, "back": base[::-1], "odd": base[1::2], "bytes": base.view(np.uint8)[1:5]}

    for framework in ("jax", "tensorflow", "torch"):
        back = trip(state, framework=framework)

        assert {key: np.asarray(array).tolist() for key, array in back.items()} == {
            key: array.tolist() for key, array in state.items()
        }
        assert {type(array).__module__.split(".")[0].removesuffix("lib") for array in back.values()} == {framework}


def test_tensorflow_values_that_are_not_there_yet_are_refused():
    import tensorflow as tf

    told = []

    @tf.function(autograph=False)
    def traced(x):
        with pytest.raises(UnsupportedType, match=r"^x: a symbolic TensorFlow tensor has no values") as caught:
            flatten({"x": x})
        told.append(caught.value)
        return x

    traced(tf.constant([1.0]))

    assert told
