"""Torch rng: the generators of the CPU and of every CUDA device in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from model_checkpoint.errors import StructureMismatch


def capture_generators() -> dict[str, Any]:
    """Return the states of torch's global generators, as NumPy bytes so that they load without torch too."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state().numpy().copy()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [one.cpu().numpy().copy() for one in torch.cuda.get_rng_state_all()]
    return state


def restore_generators(state: dict[str, Any]) -> None:
    """Set torch's global generators."""
    devices = state.get("cuda", [])
    if len(devices) > torch.cuda.device_count():
        raise StructureMismatch(
            f"rng: saved with {len(devices)} CUDA generators, this machine has {torch.cuda.device_count()} devices. "
            "Remove 'cuda' from the snapshot's torch part to go on without."
        )
    torch.set_rng_state(_tensor(state["cpu"]))
    if devices:
        torch.cuda.set_rng_state_all([_tensor(one) for one in devices])


def _tensor(data: Any) -> torch.Tensor:
    """Return generator bytes as a tensor, whichever framework loaded them."""
    return torch.from_numpy(np.array(np.asarray(data), np.uint8))
