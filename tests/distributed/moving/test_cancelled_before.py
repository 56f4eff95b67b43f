"""What is cancelled before it has begun asks nobody for anything."""

import threading

import pytest

from model_checkpoint.distributed import (
    CallCancelled,
    DistributedCheckpoint,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
    ValidationResult,
)


class Asked:
    """A state, and a validator, that note who asks them."""

    def __init__(self):
        self.asked = []

    def get_state_dict(self):
        self.asked.append("state")
        return {"w": 1}

    def load_state_dict(self, state):
        self.asked.append("load")

    def validate_checkpoint(self, path):
        self.asked.append("validator")
        return ValidationResult(path)


@pytest.mark.parametrize("call", ["save", "load", "delete"])
def test_a_call_that_was_cancelled_before_it_began_asks_for_nothing(tmp_path, call):
    cancel, owner = threading.Event(), Asked()
    cancel.set()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path, validator=owner)
    calls = {
        "save": lambda: checkpoint.save_model_only(owner, SaveOptions(checkpoint_prefix="x"), cancel=cancel),
        "load": lambda: checkpoint.load(owner, None, LoadOptions(checkpoint_prefix="x"), cancel=cancel),
        "delete": lambda: checkpoint.delete_checkpoint("x", cancel=cancel),  # there is none
    }
    checkpoint.save_model_only({"w": 1}, SaveOptions(checkpoint_prefix="kept"))

    with pytest.raises(CallCancelled, match="was cancelled"):
        calls[call]()

    assert owner.asked == []
    assert [info.prefix for info in checkpoint.list_checkpoints()] == ["kept"]
