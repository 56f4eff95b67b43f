"""Torch export: a checkpoint as one file that ``torch.load`` opens, its tensors mapped on the way where they can be."""

from __future__ import annotations

import os
from pathlib import Path

from model_checkpoint.checkpoint.storage.torch_files import TorchBackend
from model_checkpoint.engine.reading.export import Exported, draft_of, free_place
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.root.describe import describe
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.storage.contract.failures import typed_errors


def export_torch(ref: Reference, target: str | os.PathLike[str], *, parts: str | None = None) -> Exported:
    """Write a checkpoint, or one part of it, by ``torch.save``; what its safe loader would refuse is refused here.

    Example:
        >>> import model_checkpoint as mc, tempfile, torch
        >>> _ = mc.save("memory://doc-pt", {"model": {"w": torch.ones(2)}}, step=1)
        >>> path = tempfile.mkdtemp() + "/state.pt"
        >>> export_torch("memory://doc-pt", path).tensors, torch.load(path)
        (1, {'model': {'w': tensor([1., 1.])}})
    """
    path = free_place(Path(target))
    found = describe(ref)
    state = load(found.info, parts=parts, mmap="://" not in found.info.path)
    lines = [line for line in found.tensors if parts is None or line.name.startswith(f"{parts}.")]
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        with typed_errors(str(path), "could not be written"):
            TorchBackend().save_checkpoint(state, str(draft))
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
        return Exported(files=(str(path),), tensors=len(lines), nbytes=sum(line.nbytes for line in lines))
