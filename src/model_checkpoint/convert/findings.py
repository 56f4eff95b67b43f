"""Findings: the checkpoints of trainers below a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_checkpoint.convert.converting import plain_name
from model_checkpoint.convert.formats import file_format, folder_format

_OURS = ("checkpoints", ".staging", ".trash", ".marks")
_PARTS = (
    "optimizer.pt",
    "scheduler.pt",
    "scaler.pt",
    "training_args.bin",
    "meta.pt",
)  # of a checkpoint, none themselves


@dataclass(frozen=True, slots=True)
class TrainerCheckpoint:
    """One checkpoint of a trainer, and what it will be called."""

    path: Path
    format: str
    name: str

    @property
    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self._files())

    def fingerprint(self) -> str:
        """What changes when a file of it changes: names, sizes and times of change."""
        stats = [(path.relative_to(self.path.parent).as_posix(), path.stat()) for path in self._files()]
        rows = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def _files(self) -> list[Path]:
        return [self.path] if self.path.is_file() else sorted(p for p in self.path.rglob("*") if p.is_file())


@dataclass(frozen=True, slots=True)
class FolderFindings:
    """What lies in a folder: checkpoints, and files that are none."""

    checkpoints: tuple[TrainerCheckpoint, ...]
    ignored: tuple[str, ...]


def find_checkpoints(folder: Path, root: Path | None) -> FolderFindings:
    """Look through a folder and all below it; ``root`` is where ours are, which are left alone."""
    if _is_ours(folder):
        return FolderFindings((), ())
    own = folder_format(folder)
    if own is not None:
        return FolderFindings((TrainerCheckpoint(folder, own, plain_name(folder.name)),), ())
    found: list[TrainerCheckpoint] = []
    ignored: list[str] = []
    taken: set[str] = set()
    for path, kind in _walk(folder, root):
        if kind is None:
            ignored.append(str(path))
            continue
        relative = path.relative_to(folder)
        name = plain_name(".".join(relative.with_suffix("").parts if path.is_file() else relative.parts))
        if name.casefold() in taken:  # a.pt beside a.ckpt
            name = plain_name(".".join(relative.parts))
        taken.add(name.casefold())
        found.append(TrainerCheckpoint(path, kind, name))
    return FolderFindings(tuple(found), tuple(ignored))


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint of any root, or where a root has what it deleted or did not finish."""
    if folder.name in _OURS[1:]:
        return (folder.parent / _OURS[0]).is_dir()
    return folder.absolute().parent.name == _OURS[0] and (folder / "manifest.json").is_file()


def _walk(folder: Path, root: Path | None) -> Iterator[tuple[Path, str | None]]:
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            yield path, None  # what it leads to is found where it lies
        elif path.is_dir():
            if path == root or (path.parent == root and path.name in _OURS) or _is_ours(path):
                continue
            kind = folder_format(path)
            if kind is not None:
                yield path, kind
            else:
                yield from _walk(path, root)
        else:
            yield path, None if path.name in _PARTS else file_format(path)
