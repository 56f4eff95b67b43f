"""The determinism dial: what differs in a second run is found and named."""

import pytest
import torch
from tests.recompute.auto.auto_models import every_stage, runtime_of, step
from torch import nn

from model_checkpoint.recompute.auto.common.determinism import Determinism, fingerprint_of
from model_checkpoint.recompute.auto.common.errors import BudgetTooSmall, RecomputeDiverged


class Drifting(nn.Module):
    """Adds a global that changes between the two runs."""

    drift = 0.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        Drifting.drift += 1.0
        return self.linear((x + Drifting.drift).tanh()).tanh()


class Reshaping(Drifting):
    """Saves tensors of another shape in the second run."""

    def forward(self, x):
        Drifting.drift += 1.0
        rows = 2 if Drifting.drift % 2 else 3
        return x + self.linear(x[:rows].tanh()).sum()


@pytest.mark.parametrize("level", ["checksum", "hash"])
def test_changed_values_are_found_and_named(level):
    model, x = nn.Sequential(nn.Linear(64, 64), Drifting(), nn.Linear(64, 64)), torch.randn(64, 64)
    with runtime_of(model, determinism=Determinism(level)) as runtime:
        runtime.use(every_stage(3))

        with pytest.raises(RecomputeDiverged, match=r"^1: saved tensor \d differs in the second run") as caught:
            step(model, (x,))

    assert caught.value.layer == "1"
    assert caught.value.tensor >= 0


def test_changed_shapes_are_found_by_metadata_and_values_are_not():
    x = torch.randn(4, 64)
    model = nn.Sequential(nn.Linear(64, 64), Reshaping(), nn.Linear(64, 64))
    with runtime_of(model, determinism=Determinism.METADATA) as runtime:
        runtime.use(every_stage(3))
        with pytest.raises(RecomputeDiverged, match=r"^1: saved tensor"):
            step(model, (x,))

    model = nn.Sequential(nn.Linear(64, 64), Drifting(), nn.Linear(64, 64))
    with runtime_of(model, determinism=Determinism.METADATA) as runtime:
        runtime.use(every_stage(3))
        step(model, (x,))


@pytest.mark.parametrize(
    ("first", "message"),
    [(1.0, "only 1 tensors are saved, the first run saved 3"), (0.0, "more tensors are saved than the 1 of the first")],
    ids=["fewer", "more"],
)
def test_a_different_number_of_tensors_is_found_even_when_the_dial_is_off(first, message):
    class Growing(Drifting):
        def forward(self, x):
            Drifting.drift += 1.0
            return x.tanh() if Drifting.drift % 2 else x.tanh().tanh().sigmoid()

    Drifting.drift = first
    model, x = nn.Sequential(nn.Linear(64, 64), Growing(), nn.Linear(64, 64)), torch.randn(4, 64)
    with runtime_of(model, determinism=Determinism.OFF) as runtime:
        runtime.use(every_stage(3))
        with pytest.raises(RecomputeDiverged, match=message):
            step(model, (x,))


@pytest.mark.parametrize("level", list(Determinism))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_fingerprints_are_equal_for_equal_bits_even_nan(level, dtype):
    fingerprint = fingerprint_of(level)
    tensor = torch.ones(130, 2).to(dtype)
    if dtype.is_floating_point:
        tensor[0, 0] = float("nan")

    if fingerprint is None:
        assert level is Determinism.OFF
        return
    assert fingerprint(tensor) == fingerprint(tensor.clone())
    assert fingerprint(tensor.t()) != fingerprint(tensor)


def test_a_checksum_looks_at_every_64th_element_and_a_hash_at_all():
    tensor = torch.zeros(1000)
    checksum, full = fingerprint_of(Determinism.CHECKSUM), fingerprint_of(Determinism.HASH)
    for at in (0, 63, 64, 65, 960, 999):
        changed = tensor.clone()
        changed[at] = 1.0

        assert (checksum(changed) != checksum(tensor)) == (at % 64 == 0)
        assert full(changed) != full(tensor)


def test_errors_without_an_address_say_so():
    assert (RecomputeDiverged("x").layer, RecomputeDiverged("x").tensor) == ("", -1)
    assert BudgetTooSmall("x").floor_bytes == 0
