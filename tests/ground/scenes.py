"""Scenes: what kills leave of a root, each kind of leavings looked at once.

Most calls of an operation only read, so a kill before one of them leaves what a kill before the next one leaves. A test
that goes on from every kill, into the recovery and into its recovery, keeps a scene only if the album does not have it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from model_checkpoint.errors import CheckpointException
from model_checkpoint.manifest import decode
from model_checkpoint.storage.local.locks import Owner

_ATTEMPT = re.compile("[0-9a-f]{32}")
_TOKEN = re.compile("~[0-9]+~[0-9a-f.~]+")

Picture = frozenset[tuple[str, str]]


def link_tree(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source`` that shares its files: no byte of a root is ever changed in place.

    What a store knows a file by (inode and time of change) stays as it was.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=os.link, symlinks=True)


class Album:
    """The scenes seen so far, of one root or of several that are alike but for the ids of their attempts.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> album = Album()
        >>> album.takes(root), album.takes(root)
        (True, False)
        >>> _ = (root / "more").write_bytes(b"1")
        >>> album.takes(root)
        True
    """

    def __init__(self) -> None:
        self._seen: set[Picture] = set()

    def __len__(self) -> int:
        return len(self._seen)

    def takes(self, root: Path, labels: Mapping[str, str] | None = None) -> bool:
        """Whether ``root`` looks like nothing seen before; from now on it does not.

        ``labels`` says what to call the attempts that were there from the beginning; all others are one.
        """
        picture = _picture(root, labels or {})
        new = picture not in self._seen
        self._seen.add(picture)
        return new


def _picture(root: Path, labels: Mapping[str, str]) -> Picture:
    def blur(text: str) -> str:
        return _TOKEN.sub("~", _ATTEMPT.sub(lambda found: labels.get(found[0], "*"), text))

    return frozenset((blur(str(path.relative_to(root))), blur(_content(path))) for path in root.rglob("*"))


def _content(path: Path) -> str:
    """All of a file that a recovery goes by."""
    if not path.is_file():
        return "folder"
    if path.suffix == ".lock":
        return _owner(path.read_bytes())
    if path.name.startswith("manifest."):
        return _committed(path.read_bytes())
    return "data" if path.stat().st_size else "empty"


def _owner(data: bytes) -> str:
    try:
        owner = msgspec.json.decode(data, type=Owner)
    except msgspec.DecodeError:
        return "cut"
    return f"{owner.name} {sorted(owner.obsolete)}"


def _committed(data: bytes) -> str:
    try:
        return decode(data, "").attempt
    except CheckpointException:
        return "cut"
