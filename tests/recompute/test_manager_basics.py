"""Registering, retrieving and clearing activations, one thread at a time."""

import gc
import weakref

import numpy as np
import pytest
import torch

from model_checkpoint.recompute import (
    CheckpointManager,
    ClosedError,
    LayerExists,
    LayerNotFound,
    MemoryStats,
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


def test_clear_removes_all_and_keeps_the_peak():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("b", bytes(20))

    manager.clear_checkpoints()

    stats = manager.get_memory_stats()
    assert manager.checkpoint_count == 0
    assert not manager.has_checkpoint("a")
    assert stats.current_memory_used == 0
    assert stats.peak_memory_used == 30
    assert (stats.average_memory_per_checkpoint, stats.memory_savings) == (0, 0)
    assert (stats.total_memory_allocated, stats.total_memory_deallocated) == (30, 30)
    assert (stats.allocation_count, stats.deallocation_count) == (2, 2)


def test_a_layer_can_be_registered_again_after_clear():
    manager = CheckpointManager()
    manager.register_checkpoint("a", b"old")
    manager.clear_checkpoints()

    manager.register_checkpoint("a", b"new!")

    assert manager.retrieve_or_recompute("a") == b"new!"
    assert manager.get_access_count("a") == 1


@pytest.mark.parametrize("end", ["clear_checkpoints", "close", "dispose", "remove"])
def test_tensors_are_released_and_the_callers_own_live_on(end):
    manager = CheckpointManager()
    kept = torch.ones(4)
    manager.register_checkpoint("kept", kept)
    manager.register_checkpoint("dropped", torch.ones(4))
    watch_kept, watch_dropped = (weakref.ref(manager.retrieve_or_recompute(i)) for i in ("kept", "dropped"))

    for layer in ("kept", "dropped") if end == "remove" else ((),):
        getattr(manager, end)(*[layer] if layer else [])
    gc.collect()

    assert watch_dropped() is None
    assert watch_kept() is kept
    assert kept.sum() == 4


def test_remove_takes_one_layer_and_says_whether_it_was_there():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("b", bytes(20))

    assert manager.remove("a") is True
    assert manager.remove("a") is False

    assert not manager.has_checkpoint("a")
    assert manager.get_memory_stats().current_memory_used == 20
    assert manager.get_memory_stats().peak_memory_used == 30


def test_the_peak_is_the_most_ever_held_and_can_be_reset():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(100))
    manager.remove("a")
    manager.register_checkpoint("b", bytes(30))

    assert manager.get_memory_stats().peak_memory_used == 100
    manager.reset_peak()

    assert manager.get_memory_stats().peak_memory_used == 30


def test_the_average_is_whole_bytes_per_checkpoint():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(10))
    manager.register_checkpoint("b", bytes(15))

    assert manager.get_memory_stats().average_memory_per_checkpoint == 12


def test_an_empty_manager_has_zero_of_everything():
    manager = CheckpointManager()

    stats = manager.get_memory_stats()

    assert stats == MemoryStats(timestamp=stats.timestamp)
    assert manager.checkpoint_count == 0
    manager.clear_checkpoints()


def test_stats_name_the_most_and_the_least_accessed_layers():
    manager = CheckpointManager()
    for count, layer in enumerate(["never", "once", "twice", "thrice"]):
        manager.register_checkpoint(layer, b"x")
        for _ in range(count):
            manager.retrieve_or_recompute(layer)

    stats = manager.get_memory_stats(ranked=2)

    assert stats.most_accessed == ("thrice", "twice")
    assert stats.least_accessed == ("never", "once")
    assert manager.get_memory_stats(ranked=0).most_accessed == ()


def test_savings_are_against_all_layers_seen_or_a_given_baseline():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(100))
    manager.register_checkpoint("b", bytes(50))
    manager.remove("a")

    assert manager.get_memory_stats().memory_savings == 100
    assert manager.get_memory_stats(baseline_bytes=1000).memory_savings == 950
    assert manager.get_memory_stats(baseline_bytes=10).memory_savings == -40


def test_a_layer_seen_twice_counts_once_in_the_baseline():
    manager = CheckpointManager()
    manager.register_checkpoint("a", bytes(100))
    manager.remove("a")
    manager.register_checkpoint("a", bytes(60))

    assert manager.get_memory_stats().baseline_memory == 60


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
def test_aliases_count_in_full_and_the_shared_part_is_told(make):
    """Two ids for one tensor are two checkpoints of its size, in memory once."""
    manager = CheckpointManager()
    base = make(100)
    size = base.nbytes
    manager.register_checkpoint("whole", base)
    manager.register_checkpoint("again", base[:])
    manager.register_checkpoint("half", base[: len(base) // 2])

    stats = manager.get_memory_stats()
    assert stats.current_memory_used == 2 * size + size // 2
    assert stats.shared_memory == size + size // 2
    assert stats.resident_memory == size

    manager.remove("whole")
    manager.remove("again")
    assert manager.get_memory_stats().shared_memory == 0
    manager.remove("half")
    assert manager.get_memory_stats().resident_memory == 0


def test_disjoint_views_share_nothing():
    manager = CheckpointManager()
    base = torch.zeros(10)

    manager.register_checkpoint("left", base[:5])
    manager.register_checkpoint("right", base[5:])

    assert manager.get_memory_stats().shared_memory == 0


def test_closing_twice_is_harmless_and_every_use_afterwards_is_refused():
    manager = CheckpointManager()
    manager.register_checkpoint("a", b"x")

    manager.close()
    manager.close()
    manager.dispose()

    for call in (
        lambda: manager.register_checkpoint("b", b"x"),
        lambda: manager.offer_checkpoint("b", b"x", 0),
        lambda: manager.retrieve_or_recompute("a"),
        lambda: manager.retrieve_or_recompute("a", lambda: b"x"),
        lambda: manager.has_checkpoint("a"),
        lambda: manager.get_access_count("a"),
        lambda: manager.remove("a"),
        lambda: manager.clear_checkpoints(),
        lambda: manager.get_memory_stats(),
        lambda: manager.reset_peak(),
        lambda: manager.checkpoint_count,
    ):
        with pytest.raises(ClosedError, match="checkpoint manager: it is closed") as caught:
            call()
        assert isinstance(caught.value, RuntimeError)


def test_a_with_block_closes_the_manager():
    with CheckpointManager() as manager:
        manager.register_checkpoint("a", b"x")

    with pytest.raises(ClosedError, match="it is closed"):
        manager.has_checkpoint("a")


def test_listeners_hear_what_happens_and_may_call_back():
    manager = CheckpointManager()
    heard = []
    manager.checkpoint_registered.subscribe(lambda layer: heard.append(("registered", layer, manager.checkpoint_count)))
    manager.checkpoint_recomputed.subscribe(lambda layer: heard.append(("recomputed", layer)))
    manager.checkpoint_hit.subscribe(lambda layer: heard.append(("hit", layer)))
    manager.checkpoint_removed.subscribe(lambda layer: heard.append(("removed", layer, manager.has_checkpoint(layer))))

    manager.register_checkpoint("a", b"x")
    manager.retrieve_or_recompute("a")
    manager.retrieve_or_recompute("b", lambda: b"y")
    manager.remove("a")
    manager.clear_checkpoints()

    assert heard == [
        ("registered", "a", 1),
        ("hit", "a"),
        ("recomputed", "b"),
        ("registered", "b", 2),
        ("removed", "a", False),
        ("removed", "b", False),
    ]


def test_a_failing_listener_is_logged_and_stops_nobody(caplog):
    manager = CheckpointManager()
    heard = []
    manager.checkpoint_registered.subscribe(lambda layer: 1 / 0)
    stop = manager.checkpoint_registered.subscribe(heard.append)

    manager.register_checkpoint("a", b"x")
    stop()
    stop()
    manager.register_checkpoint("b", b"x")

    assert heard == ["a"]
    assert "checkpoint_registered: a listener failed" in caplog.text


def test_a_hundred_thousand_activations_are_registered_found_and_dropped():
    manager = CheckpointManager()
    tensor = np.zeros(16, np.uint8)

    for index in range(100_000):
        manager.register_checkpoint(f"layer{index}", tensor)

    stats = manager.get_memory_stats()
    assert manager.checkpoint_count == 100_000
    assert stats.current_memory_used == 1_600_000
    assert stats.average_memory_per_checkpoint == 16
    assert stats.resident_memory == 16
    assert manager.retrieve_or_recompute("layer99999") is tensor
    manager.clear_checkpoints()
    assert manager.checkpoint_count == 0
