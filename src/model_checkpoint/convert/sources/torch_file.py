"""Torch file: a file by ``torch.save``, read by the loader that runs nothing, its tensors over the bytes of it."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from model_checkpoint.checkpoint.storage.torch_files import numpy_parts
from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.convert.sources.lightning_file import is_lightning, lightning_facts
from model_checkpoint.storage.contract.failures import typed_errors

_BROKEN = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError)


def read_torch(path: str | os.PathLike[str]) -> Any:
    """What is in a file, if it can be had without running anything."""
    with typed_errors(str(path), "could not be read"):
        archive = zipfile.is_zipfile(path)  # what torch wrote before it wrote archives cannot be mapped
        return load_safely(os.fspath(path), str(path), mapped=archive)


def load_safely(source: str | io.BytesIO, where: str, *, mapped: bool = False) -> Any:
    """Let torch read a file by the loader that runs nothing; ``where`` is what it is called."""
    try:
        with torch.serialization.safe_globals(numpy_parts()):
            return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except _BROKEN as error:
        raise SourceUnreadable(
            f"{where}: cannot be read without running code, or is torn ({_first_line(error)}). If it is whole and you "
            "trust its classes, name them with torch.serialization.add_safe_globals([...]) and try again.",
            where,
        ) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "GLOBAL" in line or "Unsupported" in line), lines[0] if lines else "")
    return f"{type(error).__name__}: {told[:200]}"


def import_torch(path: str | os.PathLike[str]) -> Imported:
    """A file as a checkpoint, as it is; of Lightning, with the step and metrics that it tells."""
    state = read_torch(path)
    if is_lightning(state):
        step, metrics = lightning_facts(state, Path(path).stem)
        return Imported(state=state, step=step, metrics=metrics)
    return Imported(state=state)
