"""Torch export: a checkpoint as one file that ``torch.load`` opens, its tensors mapped on the way where they can be."""

from __future__ import annotations

import os
from pathlib import Path

from model_checkpoint.checkpoint.storage.torch_files import TorchBackend
from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.engine.common.progress import Listen, listening
from model_checkpoint.engine.reading.export import Exported, draft_of, free_place
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.root.describe import describe
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.storage.contract.failures import typed_errors


def export_torch(
    ref: Reference, target: str | os.PathLike[str], *, parts: str | None = None, progress: Listen = None
) -> Exported:
    """Write a checkpoint, or one part of it, by ``torch.save``; what its safe loader would refuse is refused here.

    ``progress`` is called when all is read and when all is written; of ``torch.save`` nobody knows how far it is.

    Example:
        >>> import model_checkpoint as mc, tempfile, torch
        >>> _ = mc.save("memory://doc-pt", {"model": {"w": torch.ones(2)}}, step=1)
        >>> path = tempfile.mkdtemp() + "/state.pt"
        >>> export_torch("memory://doc-pt", path).tensors, torch.load(path)
        (1, {'model': {'w': tensor([1., 1.])}})
    """
    import torch  # noqa: F401  # a load makes its tensors if it is there, and imports nothing by itself

    path = free_place(Path(target))
    found = describe(ref)
    lines = [line for line in found.tensors if parts is None or line.name.startswith(f"{parts}.")]
    nbytes = sum(line.nbytes for line in lines)
    with listening(progress, "exporting") as emit:
        meter = Meter("export", 2 * nbytes, emit)
        state = load(found.info, parts=parts, mmap="://" not in found.info.path)
        meter.add(nbytes)
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(path) as draft:
            with typed_errors(str(path), "could not be written"):
                TorchBackend().save_checkpoint(state, str(draft))
                with open(draft, "rb") as file:
                    os.fsync(file.fileno())
            meter.add(nbytes)
            return Exported(files=(str(path),), tensors=len(lines), nbytes=nbytes)
