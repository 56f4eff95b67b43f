"""Parts keep their names and their kind wherever they lie: in ordered dicts, renamed optimizers and shared memory."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from tests.tree.carrying import loaded, stored, trip

import model_checkpoint as mc
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.tree import flatten, rename, specs


def test_dots_in_the_keys_of_an_ordered_dict_of_arrays_are_paths_as_in_a_dict():
    pairs = [("body.weight", np.ones(1)), ("body.bias", np.ones(1))]

    told = [[leaf.name for leaf in flatten(kind(pairs)).leaves] for kind in (OrderedDict, dict)]

    assert told == [["body.weight", "body.bias"]] * 2


def test_an_optimizer_goes_where_the_names_of_its_settings_go():
    """It is named after itself nowhere: its settings lie below its name, and its state follows the parameters."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    tree, entries, *_ = stored({"model": model, "opt": optimizer})

    moved = [spec.name for spec in specs(rename(tree, lambda name: name.replace("opt.", "adam.")), entries)]

    parts = ("step", "exp_avg", "exp_avg_sq")
    state = [f"adam.state.model.{one}.{part}" for one in ("weight", "bias") for part in parts]
    assert moved == ["model.weight", "model.bias", *state]


@pytest.mark.parametrize("first", ["numpy", "torch"])
def test_memory_that_arrays_of_two_frameworks_share_is_stored_as_the_first_ones(first):
    base = np.arange(16.0)
    parts = {"numpy": base[:10], "torch": torch.from_numpy(base)[6:]}
    state = dict(sorted(parts.items(), reverse=first == "torch"))

    (leaf,) = flatten(state).leaves
    back = trip(state)

    assert (leaf.name, leaf.kind, leaf.shape) == (first, first, (16,))
    back["torch"][0] = 99.0
    assert back["numpy"][6] == 99.0


@pytest.mark.parametrize("key", [1, None, b"weight", (1, "a")], ids=str)
@pytest.mark.parametrize("wrap", [lambda net: net, torch.nn.DataParallel], ids=["bare", "wrapped"])
def test_what_has_keys_that_no_module_has_does_not_fit_a_module(key, wrap, tmp_path):
    mc.save(tmp_path, {"model": {key: torch.ones(1)}}, step=1)

    with pytest.raises(StructureMismatch, match=r"missing: model\.bias"):
        mc.load(tmp_path, into={"model": wrap(torch.nn.Linear(1, 1))})


class Noting(torch.nn.Linear):
    """A module whose extra state is NumPy arrays that lie in one another."""

    def __init__(self, seen):
        super().__init__(1, 1)
        self.seen = seen

    def get_extra_state(self):
        return {"all": self.seen, "last": self.seen[2:]}

    def set_extra_state(self, state):
        self.seen = state["all"]
        assert np.shares_memory(state["all"], state["last"])


def test_views_of_numpy_arrays_in_the_extra_state_of_a_module_are_no_tensors_that_got_lost():
    live = Noting(np.zeros(4))

    loaded({"m": Noting(np.arange(4.0))}, {"m": live})

    assert live.seen.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_half_complex_tensor_in_the_memory_of_a_numpy_array_comes_back_in_it():
    base = np.arange(16, dtype=np.float16)
    state = {"numpy": base[:10], "torch": torch.from_numpy(base)[4:].view(torch.complex32)}

    back = trip(state)

    assert back["torch"].dtype == torch.complex32
    assert back["torch"].view(torch.float16).tolist() == [*range(4, 16)]
    back["numpy"][4] = 99.0
    assert back["torch"].view(torch.float16)[0] == 99.0


def test_a_tensor_that_negates_when_it_is_read_is_saved_as_it_reads():
    """One number has no gaps, so only its sign tells it from the memory it lies in."""
    tensor = torch.tensor([1 + 2j]).conj().imag
    assert tensor.is_contiguous()
    assert tensor.is_neg()

    assert trip({"x": tensor})["x"].tolist() == [-2.0]
