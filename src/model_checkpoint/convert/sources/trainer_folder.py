"""Trainer folder: a checkpoint of the Hugging Face Trainer: weights, optimizer, scheduler, generators, its log."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.huggingface_folder import FILES, read_weights, small_files, weight_files
from model_checkpoint.convert.sources.imported import Imported

TRAINER_STATE = "trainer_state.json"
_BESIDE = {"optimizer.pt": "optimizer", "scheduler.pt": "scheduler", "scaler.pt": "scaler"}
_NO_METRICS = ("step", "epoch")


def import_trainer(folder: str | os.PathLike[str]) -> Imported:
    """A folder ``checkpoint-N`` as a checkpoint: each file that can be read safely is a part of it."""
    from model_checkpoint.convert.sources.torch_file import read_torch  # brings torch

    path = Path(folder)
    told = _trainer_state(path / TRAINER_STATE)
    state: dict[str, Any] = {"model": read_weights(path)} if weight_files(path) else {}
    notes: list[str] = []
    for name, part in _BESIDE.items():
        if (path / name).is_file():
            state[part] = read_torch(path / name)
    for file in sorted(path.glob("rng_state*.pth")):
        state.setdefault("rng", {})[file.stem] = read_torch(file)
    if (path / "training_args.bin").is_file():
        notes.append("training_args.bin: left out, since it is a pickled object that only running code would restore")
    step = told.get("global_step")
    state["trainer_state"] = told
    state[FILES] = small_files(path)
    return Imported(
        state=state, step=step if type(step) is int else None, metrics=_metrics(told, step), notes=tuple(notes)
    )


def _trainer_state(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())  # the Trainer writes NaN, which stricter readers refuse
    except (ValueError, OSError, RecursionError) as error:
        raise SourceUnreadable(f"{path}: is torn, or no state of a Trainer ({error}).", str(path)) from error
    if not isinstance(told, dict):
        raise SourceUnreadable(f"{path}: is no state of a Trainer, but a {type(told).__qualname__}.", str(path))
    return told


def _metrics(told: dict[str, Any], step: Any) -> dict[str, float]:
    """What was logged at the step of the checkpoint."""
    logged = told.get("log_history")
    rows = [row for row in logged if isinstance(row, dict)] if isinstance(logged, list) else []
    return {
        key: value
        for row in rows
        if row.get("step") == step
        for key, value in row.items()
        if key not in _NO_METRICS and type(value) in (int, float) and math.isfinite(value)
    }
