"""The error tree: builtin bases, types, pickling."""

import pickle

import pytest

from model_checkpoint import errors


def every_error():
    seen, queue = [], [errors.CheckpointException]
    while queue:
        cls = queue.pop()
        seen.append(cls)
        queue.extend(cls.__subclasses__())
    return [cls for cls in seen if cls.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", every_error(), ids=lambda c: c.__name__)
def test_every_error_survives_pickling_with_its_fields(cls):
    error = cls("runs/a: broken. Next step.", "runs/a")
    error.extra = 7

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is cls
    assert str(copy) == "runs/a: broken. Next step."
    assert vars(copy) == vars(error)


def test_errors_are_the_builtins_callers_expect():
    assert issubclass(errors.CheckpointNotFound, FileNotFoundError)
    assert issubclass(errors.StepExists, FileExistsError)
    assert issubclass(errors.UnsupportedType, TypeError)
    assert issubclass(errors.PermissionRefused, PermissionError)
    assert issubclass(errors.DiskFull, OSError)
    assert issubclass(errors.CorruptedCheckpoint, ValueError)


@pytest.mark.parametrize("cls", [errors.StorageFailure, errors.DiskFull, errors.PermissionRefused])
def test_the_system_code_survives_pickling(cls):
    assert pickle.loads(pickle.dumps(cls("runs/a: broken", code=28))).errno == 28


def test_errors_carry_the_system_code():
    assert errors.DiskFull("full", code=28, needed=5, free=1).errno == 28
