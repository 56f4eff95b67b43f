"""Disk nodes: what a model disk is made of, as programs see it and as it is on the medium."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class File:
    """Bytes as programs see them, and as they are on the medium."""

    number: int
    data: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    stamp: float = 0.0


@dataclass(eq=False)
class Folder:
    """Names as programs see them, and as they are on the medium."""

    number: int
    entries: dict[str, File | Folder] = field(default_factory=dict)
    safe: dict[str, File | Folder] = field(default_factory=dict)
    stamp: float = 0.0


@dataclass(eq=False)
class Change:
    """One name that now means something else, or nothing.

    ``needs`` is the change without which it does not come, ``also`` the one that comes with it or not at all.
    """

    folder: Folder
    name: str
    node: File | Folder | None
    needs: Change | None = None
    also: Change | None = None

    def is_in(self, folder: File | Folder) -> bool:
        """Whether a flush of the folder brings it to the medium."""
        return folder is self.folder or (self.also is not None and self.also.is_in(folder))

    def apply(self) -> None:
        """Bring it to the medium."""
        if self.node is None:
            self.folder.safe.pop(self.name, None)
        else:
            self.folder.safe[self.name] = self.node
        if self.also is not None:
            self.also.apply()


def show_medium(node: File | Folder, seen: set[int] | None = None) -> None:
    """Let programs see what is on the medium."""
    seen = set() if seen is None else seen
    if node.number in seen:
        return
    seen.add(node.number)
    if isinstance(node, File):
        node.data = bytearray(node.safe)
        return
    node.entries = dict(node.safe)
    for below in node.entries.values():
        show_medium(below, seen)


def picture(node: File | Folder, path: str, seen: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """Everything below a node, to be compared."""
    if isinstance(node, File):
        yield path, bytes(node.data)
        return
    if node.number in seen:
        yield path, seen[node.number]
        return
    seen[node.number] = path
    yield path, None
    for name in sorted(node.entries):
        yield from picture(node.entries[name], f"{path}/{name}", seen)
