"""Formats: which format lies at a path, told by its files and not by hope."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from model_checkpoint.convert.errors import SourceUnreadable
from model_checkpoint.convert.sources.huggingface_folder import weight_files
from model_checkpoint.convert.sources.imported import Imported
from model_checkpoint.convert.sources.orbax_folder import MARKS
from model_checkpoint.convert.sources.trainer_folder import TRAINER_STATE

NATIVE = "native"
_IMPORTERS = {
    "dcp": ("dcp_folder", "import_dcp"),
    "pt": ("torch_file", "import_torch"),
    "safetensors": ("safetensors_file", "import_safetensors"),
    "hf": ("huggingface_folder", "import_huggingface"),
    "trainer": ("trainer_folder", "import_trainer"),
    "orbax": ("orbax_folder", "import_orbax"),
}
_DCP_MARK = ".metadata"
TORCH_FILES = (".pt", ".pth", ".ckpt", ".bin")


def import_as(found: str, source: str | os.PathLike[str]) -> Imported:
    """Read a checkpoint of a format; what that needs (torch for ``pt`` and ``dcp``) is imported here and not before."""
    module, function = _IMPORTERS[found]
    told: Imported = getattr(import_module(f"model_checkpoint.convert.sources.{module}"), function)(source)
    return told


def format_of(source: str | os.PathLike[str]) -> str:
    """Tell what lies at a path; what does not exist is taken for a reference to a checkpoint of ours.

    Example:
        >>> format_of("runs/a@100")
        'native'
    """
    path = Path(source)
    if path.is_dir():
        return folder_format(path) or NATIVE
    if not path.is_file():
        return NATIVE
    found = file_format(path)
    if found is None:
        raise SourceUnreadable(
            f"{path}: is neither a file of torch.save (.pt, .pth, .ckpt, .bin) nor .safetensors.", str(path)
        )
    return found


def file_format(path: Path) -> str | None:
    """The format that the name of a file tells."""
    if path.suffix == ".safetensors":
        return "safetensors"
    return "pt" if path.suffix in TORCH_FILES else None


def folder_format(folder: Path) -> str | None:
    """The format of a checkpoint that is a folder; None for a folder that is none."""
    if (folder / _DCP_MARK).is_file():
        return "dcp"
    if (folder / TRAINER_STATE).is_file():
        return "trainer"
    if any((folder / mark).exists() for mark in MARKS):
        return "orbax"
    if (folder / "manifest.json").is_file():
        return None  # one of ours: its weights may have the names of others
    return "hf" if weight_files(folder) else None
