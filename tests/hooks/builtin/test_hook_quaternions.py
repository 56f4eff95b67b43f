"""Quaternion validation: NumPy and torch alike, without importing torch; what can be put right is, the rest is told."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from model_checkpoint.hooks import HookPriority, QuaternionValidationHook, RotationLossValidationHook

UNIT = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]])


def as_numpy(values, dtype="float32"):
    return np.asarray(values, dtype=dtype)


def as_torch(values, dtype="float32"):
    torch = pytest.importorskip("torch")
    return torch.tensor(np.asarray(values, dtype="float64")).to(getattr(torch, dtype))


KINDS = pytest.mark.parametrize("kind", [as_numpy, as_torch])


def test_nothing_of_torch_is_imported():
    script = """
import sys
import numpy as np
from model_checkpoint.hooks import HookManager, QuaternionValidationHook, RotationLossValidationHook
manager = HookManager()
manager.register_hook(QuaternionValidationHook()); manager.register_hook(RotationLossValidationHook())
manager.fire_hook("before_checkpoint_save", batch={"quaternion": np.ones((2, 4))}, loss=0.5, rotation_loss=0.1,
                  loss_config={"rotation_loss": "geodesic"})
assert manager.dead_letters() == (), manager.dead_letters()
assert not {"torch", "jax", "tensorflow", "sqlalchemy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@KINDS
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_unit_quaternions_pass_in_every_precision(kind, dtype):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1000, 4))
    values /= np.linalg.norm(values, axis=-1, keepdims=True)
    batch = {"quaternion": kind(values, dtype)}
    hook = QuaternionValidationHook()

    assert hook.validate_input(batch) is batch
    assert hook.get_validation_summary()["success_rate"] == 1.0


def test_unit_quaternions_in_bfloat16_pass():
    hook = QuaternionValidationHook()

    assert hook.validate_output(as_torch(UNIT, "bfloat16")) == []


@KINDS
def test_quaternions_off_by_a_factor_are_put_right_in_a_copy_of_their_own_kind(kind):
    quaternions = kind(3 * UNIT)
    batch = {"quaternion": quaternions, "label": 5}
    hook = QuaternionValidationHook()

    fixed = hook.validate_input(batch)

    assert fixed["label"] == 5
    assert batch["quaternion"] is quaternions
    assert (type(fixed["quaternion"]), fixed["quaternion"].dtype) == (type(quaternions), quaternions.dtype)
    np.testing.assert_allclose(np.asarray(fixed["quaternion"]), UNIT, atol=1e-6)
    assert hook.get_validation_summary()["normalization_fixes"] == 1


def test_gradients_pass_through_the_repair():
    quaternions = as_torch(3 * UNIT).requires_grad_()

    QuaternionValidationHook().validate_input(quaternions).sum().backward()

    assert quaternions.grad is not None


@KINDS
@pytest.mark.parametrize("bad", [0.0, 1e-9, math.nan, math.inf])
def test_quaternions_that_cannot_be_put_right_are_an_error(kind, bad):
    values = UNIT.copy()
    values[1] *= 0
    values[1, 0] = bad
    hook = QuaternionValidationHook()

    with pytest.raises(ValueError, match=r"batch entry 'rotation': .* it cannot be put right"):
        hook.validate_input({"rotation": kind(values)})
    assert hook.get_validation_summary()["input_failures"] == 1


@KINDS
def test_an_entry_called_quaternion_has_four_numbers_and_other_rotations_may_have_more(kind):
    hook = QuaternionValidationHook()
    matrices = {"rotation": kind(np.zeros((2, 3, 3)))}

    assert hook.validate_input(matrices) is matrices
    with pytest.raises(ValueError, match=r"the last dimension of a quaternion array is 4, got shape \(2, 3\)"):
        hook.validate_input({"quaternion": kind(np.zeros((2, 3)))})


@settings(deadline=None)
@given(arrays.arrays(np.float64, (5, 4), elements=st.floats(-1e3, 1e3)))
def test_whatever_is_accepted_has_norm_one(values):
    hook = QuaternionValidationHook()
    try:
        fixed = hook.validate_input(values)
    except ValueError:
        assert (np.linalg.norm(values, axis=-1) <= 1e-8).any()
    else:
        np.testing.assert_allclose(np.linalg.norm(fixed, axis=-1), 1.0, atol=2e-6)


def test_outputs_and_losses_are_told_and_counted_but_change_nothing(caplog):
    hook = QuaternionValidationHook()

    assert hook.validate_output({"quaternion": 2 * UNIT}) == [
        "output entry 'quaternion': 2 of 2 are no unit quaternions; the worst norm is off by 1"
    ]
    assert hook.validate_loss(loss=np.float32("nan")) == ["loss is nan"]
    assert "loss is nan" in caplog.text
    summary = hook.get_validation_summary()
    assert (summary["output_failures"], summary["loss_failures"], summary["success_rate"]) == (1, 1, 0.0)


def test_each_check_can_be_switched_off():
    hook = QuaternionValidationHook(
        enable_input_validation=False, enable_output_validation=False, enable_loss_validation=False
    )
    broken = {"quaternion": np.zeros((2, 4))}

    assert hook.validate_input(broken) is broken
    assert hook.validate_output(broken) == []
    assert hook.validate_loss(loss=math.nan) == []


def test_a_watched_module_is_checked_at_every_call_until_that_is_stopped():
    torch = pytest.importorskip("torch")
    hook, module = QuaternionValidationHook(), torch.nn.Identity()

    stop = hook.watch(module)
    given_back = module(as_torch(2 * UNIT))
    stop()
    module(as_torch(2 * UNIT))

    np.testing.assert_allclose(given_back.numpy(), UNIT, atol=1e-6)
    assert hook.get_validation_summary()["normalization_fixes"] == 1


# --- at a save -------------------------------------------------------------------------------------------------------


def test_a_batch_is_put_right_in_the_data_of_the_event(manager):
    manager.register_hook(QuaternionValidationHook())

    result = manager.fire_hook("before_checkpoint_save", batch={"quaternion": 2 * UNIT})

    np.testing.assert_allclose(result.context.get("batch")["quaternion"], UNIT)


def test_a_batch_beyond_repair_prevents_a_save_when_the_hook_is_critical(manager):
    manager.register_hook(QuaternionValidationHook(priority=HookPriority.CRITICAL))

    result = manager.fire_hook("before_checkpoint_save", batch={"quaternion": 0 * UNIT})

    assert result.stopped_by == "QuaternionValidationHook"


@pytest.mark.parametrize("veto", [False, True])
@KINDS
def test_parameters_of_the_model_are_checked_by_name_and_may_veto(manager, kind, veto):
    manager.register_hook(QuaternionValidationHook(parameters=["*.rotation"], veto=veto))
    state = {"head.rotation": kind(2 * UNIT), "head.weight": kind(np.full((2, 4), 7.0))}

    result = manager.fire_hook("before_checkpoint_save", model=state)

    assert bool(result) is not veto
    assert result.results["QuaternionValidationHook"]["found"] == [
        "parameter 'head.rotation': 2 of 2 are no unit quaternions; the worst norm is off by 1"
    ]


def test_a_module_is_asked_for_its_state(manager):
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    module.rotation = torch.nn.Parameter(as_torch(UNIT))
    manager.register_hook(QuaternionValidationHook(parameters=["rotation"], veto=True))

    assert manager.fire_hook("before_checkpoint_save", model=module)
    with torch.no_grad():
        module.rotation.mul_(2)
    assert not manager.fire_hook("before_checkpoint_save", model=module)


def test_a_loss_that_is_no_number_may_veto(manager):
    manager.register_hook(QuaternionValidationHook(veto=True))

    assert manager.fire_hook("before_checkpoint_save", loss=0.1)
    assert not manager.fire_hook("before_checkpoint_save", loss=math.nan)


# --- rotation losses -------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    ("loss", "value", "shape", "words"),
    [
        ("geodesic", 0.5, (8, 4), None),
        ("geodesic", 0.5, (8, 3, 3), None),
        ("geodesic", math.pi, (8, 4), None),
        ("geodesic", 3.2, (8, 4), "none is above 3.14159"),
        ("geodesic", 0.5, (8, 3), r"end in \(4,\) or \(3, 3\), got shape \(8, 3\)"),
        ("quaternion", -0.1, (8, 4), "none is below 0"),
        ("quaternion", 4.5, (8, 4), "none is above 4"),
        ("quaternion", 0.1, (8, 3), r"end in \(4,\)"),
        ("euler", 1000.0, (8, 3), None),
        ("euler", math.nan, (8, 3), "euler loss is nan: look for"),
        ("euler", 0.1, (8, 4), r"end in \(3,\)"),
        ("cosine", 0.1, (8, 4), "'cosine' is none of euler, quaternion, geodesic"),
    ],
)
def test_a_rotation_loss_fits_what_it_compares(manager, kind, loss, value, shape, words):
    manager.register_hook(RotationLossValidationHook(veto=True))

    result = manager.fire_hook(
        "before_checkpoint_save",
        loss_config={"rotation_loss": loss},
        rotation_loss=kind(value, "float64"),
        outputs=kind(np.zeros(shape)),
    )

    found = result.results["RotationLossValidationHook"]["found"]
    assert bool(result) is (words is None)
    assert (len(found) == 1 and re.search(words, found[0])) if words else found == []


def test_an_event_without_a_rotation_loss_is_none_of_its_business(manager):
    manager.register_hook(RotationLossValidationHook(veto=True))

    assert manager.fire_hook("before_checkpoint_save", loss=math.nan)


def test_an_unknown_loss_cannot_be_supported():
    with pytest.raises(ValueError, match="losses are euler, quaternion, geodesic, got cosine"):
        RotationLossValidationHook(supported_losses=["cosine"])
