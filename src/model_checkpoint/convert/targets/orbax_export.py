"""Orbax export: a checkpoint as a folder that Orbax opens; all of it is in memory meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from model_checkpoint.engine.common.progress import Listen
from model_checkpoint.engine.reading.export import Exported, draft_of, free_place
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.root.describe import describe
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import UnsupportedType
from model_checkpoint.flushing import flush


def export_orbax(ref: Reference, target: str | os.PathLike[str], *, progress: Listen = None) -> Exported:
    """Write a checkpoint by Orbax: arrays and numbers; what Orbax has no word for is refused by name."""
    import orbax.checkpoint as ocp

    path = free_place(Path(target).absolute())
    found = describe(ref)
    state = _plain(load(found.info, framework="numpy", progress=progress), "")
    with draft_of(path) as draft:
        with ocp.PyTreeCheckpointer() as writer:
            writer.save(draft, state)
        files = [str(path / file.relative_to(draft)) for file in sorted(draft.rglob("*")) if file.is_file()]
        for file in draft.rglob("*"):
            flush(file)
    return Exported(files=tuple(files), tensors=len(found.tensors), nbytes=sum(one.nbytes for one in found.tensors))


def _plain(value: Any, name: str) -> Any:
    import numpy as np

    if isinstance(value, dict):
        return {str(key): _plain(inner, f"{name}.{key}" if name else str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, f"{name}.{i}" if name else str(i)) for i, inner in enumerate(value)]
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, str)) or value is None:
        return value
    raise UnsupportedType(
        f"{name}: a {type(value).__qualname__} has no place in a checkpoint of Orbax. Convert a state without it."
    )
