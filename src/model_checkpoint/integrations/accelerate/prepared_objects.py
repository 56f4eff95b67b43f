"""Prepared objects: all that an Accelerator keeps and a resume must bring back, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import accelerate
from accelerate import Accelerator

from model_checkpoint.errors import OptionInvalid
from model_checkpoint.integrations.feeding.prepared_loader import require_one_process
from model_checkpoint.integrations.known_versions import require_known


class AccumulationCount:
    """How many batches an Accelerator has accumulated gradients of.

    Example:
        >>> count = AccumulationCount(Accelerator(cpu=True))
        >>> count.load_state_dict({"step": 3})
        >>> count.state_dict()
        {'step': 3}
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def state_dict(self) -> dict[str, int]:
        """The count."""
        return {"step": self._accelerator.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the count."""
        self._accelerator.step = int(state["step"])


def prepared_objects(accelerator: Accelerator) -> dict[str, Any]:
    """Models, optimizers, schedulers, scaler, registered objects and the count of accumulated batches, by name.

    Example:
        >>> import torch
        >>> accelerator = Accelerator(cpu=True)
        >>> model = accelerator.prepare(torch.nn.Linear(2, 1))
        >>> sorted(prepared_objects(accelerator))
        ['accelerator', 'model']
    """
    require_known("accelerate", accelerate.__version__)
    require_one_process()
    found = {
        **_named("model", accelerator._models),
        **_named("optimizer", [one.optimizer for one in accelerator._optimizers]),
        **_named("scheduler", [one.scheduler for one in accelerator._schedulers]),
        **_named("registered", accelerator._custom_objects),
        "accelerator": AccumulationCount(accelerator),
    }
    if len(found) == 1:
        raise OptionInvalid(
            "accelerator: nothing was prepared yet, so there is nothing to save. Call accelerator.prepare first."
        )
    return found if accelerator.scaler is None else {**found, "scaler": accelerator.scaler}


def _named(kind: str, objects: list[Any]) -> dict[str, Any]:
    return {kind if not number else f"{kind}_{number}": one for number, one in enumerate(objects)}
