"""Orbax folder: a checkpoint of Orbax, read by Orbax itself, its arrays as NumPy's."""

from __future__ import annotations

import os
from pathlib import Path

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.plan import trainer_step

MARKS = ("_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt")


def import_orbax(folder: str | os.PathLike[str]) -> Imported:
    """A folder as a checkpoint; all of it comes into memory, since Orbax gives it so."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    path = Path(folder).absolute()
    name = int(path.name) if path.name.isdecimal() else trainer_step(path.name)
    inner = path / "default" if (path / "default").is_dir() else path  # what a CheckpointManager makes of a step
    try:
        with ocp.PyTreeCheckpointer() as reader:
            told = reader.metadata(inner).item_metadata.tree
            wanted = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), told)
            state = reader.restore(inner, ocp.args.PyTreeRestore(restore_args=wanted))
    except Exception as error:  # whatever a foreign library raises on a torn folder
        raise SourceUnreadable(
            f"{folder}: Orbax cannot read it ({type(error).__name__}: {str(error)[:200]}).", str(folder)
        ) from error
    return Imported(state=state, step=name)
