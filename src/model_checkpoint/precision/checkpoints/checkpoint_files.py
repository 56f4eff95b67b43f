"""Checkpoint files: a mixed-precision checkpoint as a durable folder of the engine, replaced atomically."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from model_checkpoint.engine.background.save_async import save_async
from model_checkpoint.engine.jobs.job import SaveJob
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.root.listing import list_checkpoints
from model_checkpoint.engine.root.recover import collect_garbage
from model_checkpoint.engine.writing.save import save
from model_checkpoint.errors import CheckpointNotFound, CorruptedCheckpoint, IncompatibleVersion, StepExists
from model_checkpoint.options import Graces
from model_checkpoint.precision.checkpoints.checkpoint import MixedPrecisionCheckpoint
from model_checkpoint.precision.checkpoints.tree_codec import from_tree, to_tree
from model_checkpoint.precision.errors import InvalidArgument

_NAME = "mixed-precision"


def write_checkpoint(checkpoint: MixedPrecisionCheckpoint, filepath: str, *, incremental: bool = False) -> None:
    """Write ``filepath``, or replace what is there in one step; when this returns, it survives power loss."""
    _require_ours(filepath)
    metadata = _metadata(checkpoint)
    save(filepath, to_tree(checkpoint), name=_NAME, metadata=metadata, overwrite=True, incremental=incremental)
    # whoever still reads the version just replaced has a minute; runs that save often must not fill the disk
    collect_garbage(filepath, graces=Graces(trash=60.0))


def write_checkpoint_async(checkpoint: MixedPrecisionCheckpoint, filepath: str) -> SaveJob:
    """Write ``filepath`` in the background; the handle's ``result()`` returns when it survives power loss."""
    _require_ours(filepath)
    return save_async(filepath, to_tree(checkpoint), name=_NAME, metadata=_metadata(checkpoint), overwrite=True)


def _metadata(checkpoint: MixedPrecisionCheckpoint) -> dict[str, str | int]:
    return {"precision": checkpoint.target_precision.name, "step_count": checkpoint.step_count}


def _require_ours(filepath: str) -> None:
    try:
        others = [info.prefix for info in list_checkpoints(filepath) if info.prefix != _NAME]
    except CheckpointNotFound:
        return
    if others:
        raise StepExists(
            f"{filepath}: holds other checkpoints ({others[0]}). Choose a folder for this checkpoint alone; to keep it "
            "among others, put the optimizer into the state given to model_checkpoint.save().",
            filepath,
        )


def read_checkpoint(filepath: str) -> MixedPrecisionCheckpoint:
    """Read what :func:`write_checkpoint` wrote, every chunk verified."""
    tree = load(filepath)
    with _naming(filepath):
        return from_tree(tree)


@contextmanager
def _naming(filepath: str) -> Iterator[None]:
    """Put the path in front of errors that know only the tree."""
    try:
        yield
    except (CorruptedCheckpoint, IncompatibleVersion) as error:
        raise type(error)(f"{filepath}: {error}", filepath, inner_exception=error) from error


def require_path(filepath: object, where: str) -> str:
    """The folder meant by ``filepath``; None and blank ones are refused."""
    if filepath is None or not str(filepath).strip():
        raise InvalidArgument(f"{where}: filepath is {filepath!r}. Pass the folder of the checkpoint.")
    return str(filepath)
