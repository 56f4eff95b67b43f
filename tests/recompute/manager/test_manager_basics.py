"""Registering, retrieving and clearing activations, one thread at a time."""

import numpy as np
import pytest
import torch

from model_checkpoint.recompute import (
    CheckpointManager,
    LayerExists,
    LayerNotFound,
    RecomputationException,
)


def test_a_registered_activation_is_there():
    manager = CheckpointManager()

    manager.register_checkpoint("block1", np.ones(3))

    assert manager.has_checkpoint("block1")
    assert manager.checkpoint_count == 1


def test_a_second_activation_for_a_layer_is_refused_and_changes_nothing():
    manager = CheckpointManager()
    first = np.ones(3)
    manager.register_checkpoint("block1", first)

    with pytest.raises(LayerExists, match="'block1' has a checkpoint already") as caught:
        manager.register_checkpoint("block1", np.zeros(100))

    assert isinstance(caught.value, ValueError)
    assert manager.retrieve_or_recompute("block1") is first
    assert manager.get_memory_stats().current_memory_used == 24


@pytest.mark.parametrize(
    ("activation", "nbytes"),
    [
        (np.zeros((), np.float64), 8),
        (np.zeros((2, 3, 4), np.float32), 96),
        (np.zeros((5,), np.int8), 5),
        (np.zeros((4, 0, 7), np.float32), 0),
        (np.zeros((3, 3), np.complex128), 144),
        (np.zeros((10, 10), np.float32)[::2, ::5], 40),
        (torch.zeros(2, 8, dtype=torch.bfloat16), 32),
        (torch.zeros(3, dtype=torch.bool), 3),
        (torch.zeros(4, 4, dtype=torch.float64).t(), 128),
        (torch.zeros(0, 5), 0),
        (b"abcde", 5),
        (bytearray(7), 7),
        (memoryview(b"abc"), 3),
        ((np.zeros(2, np.float32), {"k": torch.zeros(3)}, [b"x"]), 21),
    ],
    ids=lambda value: str(getattr(value, "shape", type(value).__name__)),
)
def test_an_activation_counts_its_elements_times_their_size(activation, nbytes):
    manager = CheckpointManager()

    manager.register_checkpoint("layer", activation)

    assert manager.get_memory_stats().current_memory_used == nbytes


def test_tensors_of_every_rank_up_to_eight_are_counted():
    manager = CheckpointManager()
    shapes = [tuple(range(1, rank + 1)) for rank in range(9)]

    for shape in shapes:
        manager.register_checkpoint(f"rank{len(shape)}", torch.zeros(shape))

    assert manager.get_memory_stats().current_memory_used == sum(4 * int(np.prod(shape)) for shape in shapes)


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
def test_a_sparse_tensor_counts_its_indices_and_values():
    dense = torch.eye(3)
    manager = CheckpointManager()

    manager.register_checkpoint("coo", dense.to_sparse())
    manager.register_checkpoint("csr", dense.to_sparse_csr())
    manager.register_checkpoint("csc", dense.to_sparse_csc())

    assert manager.get_memory_stats().current_memory_used == (6 * 8 + 12) + 2 * (4 * 8 + 3 * 8 + 12)


def test_a_broadcast_view_counts_its_elements_and_is_mostly_shared():
    manager = CheckpointManager()

    manager.register_checkpoint("a", torch.ones(1).expand(100))

    assert manager.get_memory_stats().current_memory_used == 400
    assert manager.get_memory_stats().resident_memory == 4


def test_an_object_with_the_shape_and_dtype_of_tensorflow_is_counted():
    class Shape:
        def num_elements(self):
            return 12

    class Tensor:
        shape = Shape()
        dtype = type("DType", (), {"size": 2})

    manager = CheckpointManager()

    manager.register_checkpoint("layer", Tensor())

    assert manager.get_memory_stats().current_memory_used == 24


def test_arrays_of_jax_are_counted_and_come_back():
    jnp = pytest.importorskip("jax.numpy")
    manager = CheckpointManager()
    array = jnp.ones((3, 4), jnp.bfloat16)

    manager.register_checkpoint("layer", array)

    assert manager.get_memory_stats().current_memory_used == 24
    assert manager.retrieve_or_recompute("layer") is array


def test_an_object_that_says_its_element_count_and_size_is_counted():
    class Tensor:
        element_count = 6
        data_type_size = 2

    manager = CheckpointManager()

    manager.register_checkpoint("layer", Tensor())

    assert manager.get_memory_stats().current_memory_used == 12


def test_an_object_without_bytes_is_refused_by_type():
    with pytest.raises(TypeError, match=r"a object has no bytes to count.*`nbytes`"):
        CheckpointManager().register_checkpoint("layer", object())


@pytest.mark.parametrize("blank", ["", " ", "\t\n", None, 3], ids=repr)
def test_blank_ids_are_refused_everywhere(blank):
    manager = CheckpointManager()

    for call in (
        lambda: manager.register_checkpoint(blank, b"x"),
        lambda: manager.offer_checkpoint(blank, b"x", 0),
        lambda: manager.retrieve_or_recompute(blank, lambda: b"x"),
        lambda: manager.has_checkpoint(blank),
        lambda: manager.get_access_count(blank),
        lambda: manager.remove(blank),
    ):
        with pytest.raises(ValueError, match="expected a string that is not blank"):
            call()


def test_none_is_no_activation():
    with pytest.raises(ValueError, match="the activation of 'a' is None"):
        CheckpointManager().register_checkpoint("a", None)


def test_a_stored_activation_comes_back_as_the_same_object():
    manager = CheckpointManager()
    tensor = torch.ones(3, requires_grad=True) * 2
    manager.register_checkpoint("a", tensor)

    found = manager.retrieve_or_recompute("a", lambda: pytest.fail("it is stored"))

    assert found is tensor
    assert found.grad_fn is tensor.grad_fn


def test_an_absent_activation_is_recomputed_and_registered():
    manager = CheckpointManager()
    made = np.arange(4)

    first = manager.retrieve_or_recompute("a", lambda: made)
    second = manager.retrieve_or_recompute("a")

    assert first is made
    assert second is made
    assert manager.has_checkpoint("a")
    assert manager.get_memory_stats().current_memory_used == made.nbytes


def test_an_absent_activation_without_a_function_is_a_key_error():
    with pytest.raises(LayerNotFound, match="'a' has no checkpoint and there is no function") as caught:
        CheckpointManager().retrieve_or_recompute("a")

    assert isinstance(caught.value, KeyError)


def test_retrieving_counts_and_looking_does_not():
    manager = CheckpointManager()
    manager.register_checkpoint("a", b"x")

    assert manager.get_access_count("a") == 0
    for _ in range(3):
        manager.retrieve_or_recompute("a")
        manager.has_checkpoint("a")
    manager.retrieve_or_recompute("b", lambda: b"y")

    assert manager.get_access_count("a") == 3
    assert manager.get_access_count("b") == 1
    assert manager.get_access_count("unknown") == 0


def test_none_from_a_recompute_function_is_an_error_and_the_next_call_works():
    manager = CheckpointManager()

    with pytest.raises(RecomputationException, match="'a' returned None") as caught:
        manager.retrieve_or_recompute("a", lambda: None)

    assert isinstance(caught.value, RuntimeError)
    assert caught.value.layer_id == "a"
    assert not manager.has_checkpoint("a")
    assert manager.retrieve_or_recompute("a", lambda: b"x") == b"x"


def test_a_failing_recompute_function_is_an_error_with_its_cause_and_the_next_call_works():
    manager = CheckpointManager()

    def broken():
        raise OSError("no such shard")

    with pytest.raises(RecomputationException, match="'a' failed: OSError: no such shard") as caught:
        manager.retrieve_or_recompute("a", broken)

    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.inner_exception is caught.value.__cause__
    assert manager.retrieve_or_recompute("a", lambda: b"x") == b"x"
