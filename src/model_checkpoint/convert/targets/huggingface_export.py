"""Hugging Face export: one part as a folder that ``from_pretrained`` opens, with the small files it came with."""

from __future__ import annotations

import os

from model_checkpoint.convert.sources.huggingface_folder import FILES
from model_checkpoint.engine.common.progress import Listen
from model_checkpoint.engine.reading.export import Exported, export_folder
from model_checkpoint.engine.reading.load import load
from model_checkpoint.engine.root.describe import describe_state
from model_checkpoint.engine.root.refs import Reference
from model_checkpoint.errors import StructureMismatch
from model_checkpoint.storage.contract.names import is_name


def export_huggingface(
    ref: Reference, target: str | os.PathLike[str], *, part: str = "model", progress: Listen = None
) -> Exported:
    """Write the weights of a checkpoint, and the configuration it was imported with, as one folder.

    Example:
        >>> import model_checkpoint as mc, numpy as np, tempfile
        >>> _ = mc.save("memory://doc-hf", {"model": {"w": np.ones(3)}, "hf_files": {"config.json": b"{}"}}, step=1)
        >>> export_huggingface("memory://doc-hf", tempfile.mkdtemp() + "/model").tensors
        1
    """
    found = describe_state(ref)
    beside: dict[str, bytes] = {}
    if any(one.name == FILES for one in found.parts):
        beside = load(found.info, parts=FILES)[FILES]
        odd = [name for name, data in beside.items() if not is_name(name) or not isinstance(data, bytes)]
        if odd:
            raise StructureMismatch(f"{found.info.path}: {FILES} holds {odd[0]!r}, which is no small file.")
    return export_folder(found.info, target, part=part, beside=beside, progress=progress)
