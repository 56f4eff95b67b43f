"""Data content: a checksum of what a dataset holds, to see whether a resumed run reads the same.

No sample is read, since that may draw or take long: what is held in attributes is looked at, arrays, lists, and the
files they name. Of much, a part that is spread over all of it; numbers that are counted are compared elsewhere.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from types import MemberDescriptorType
from typing import Any

import numpy as np

from model_checkpoint.integrations.feeding.generators.held_generators import generator_classes, is_own_class

_MOST_BYTES = 1 << 26  # that are read whole; of more than that, blocks
_BLOCKS, _BLOCK = 512, 1 << 14
_MOST_ITEMS = 256  # of a list
_MOST_ROWS = 16  # of a table
_MOST_FILES = 32
_MOST_PARTS = 1 << 15
_DEEPEST = 12
_NUMBERS = (bool, int, float, complex)
_PLAIN = (*_NUMBERS, str, bytes, type(None))
_OPEN = ("torch.utils.data", "torchdata")  # wrappers whose attributes all are what they wrap


def content_of(data: Any, *, most: int = _MOST_BYTES, files: int = _MOST_FILES) -> int:
    """A checksum of what ``data`` holds; of arrays about so many bytes, and of so many files that texts name.

    Example:
        >>> content_of([1, 2]) == content_of([1, 2]), content_of([1, 2]) == content_of([1, 3])
        (True, False)
        >>> content_of({"a": np.zeros(3)}) == content_of({"a": np.ones(3)})
        False
    """
    content = _Content(most, files)
    content.add(data, _DEEPEST)
    return content.checksum


class _Content:
    """A checksum that grows part by part, each object once."""

    def __init__(self, most: int, files: int) -> None:
        self.checksum = 0
        self._most, self._bytes, self._files, self._parts = most, most, files, _MOST_PARTS
        self._known: dict[int, Any] = {}  # held, so that no other part gets its id

    def add(self, one: Any, depth: int) -> None:
        """Some part, and what it holds."""
        self._parts -= 1
        if self._parts < 0:
            return
        if isinstance(one, (str, PurePath)):
            self._add_text(str(one))
        elif isinstance(one, bytes):
            self._add_blocks(memoryview(one))
        elif isinstance(one, _PLAIN):
            self._add(repr(one).encode())
        elif depth and id(one) not in self._known and not isinstance(one, (type, *generator_classes())):
            self._known[id(one)] = one
            self._add_object(one, depth - 1)

    def _add(self, data: bytes | memoryview) -> None:
        self.checksum = zlib.crc32(data, self.checksum)

    def _add_text(self, text: str) -> None:
        """A text; if it names a file, what is in that, wherever it lies."""
        if os.sep in text and len(text) < 4096 and self._files:
            with suppress(OSError, ValueError):
                self._add_file(Path(text))
                return
        self._add_blocks(memoryview(text.encode(errors="surrogatepass")))

    def _add_file(self, path: Path) -> None:
        if not path.is_file():  # a folder may lie elsewhere now
            self._add(path.stat().st_mode.to_bytes(4) + path.name.encode(errors="surrogatepass"))
            return
        self._files -= 1
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            self._add(f"{path.name} {size}".encode(errors="surrogatepass"))
            for at in {0, max(0, size - _BLOCK)}:
                file.seek(at)
                self._add(file.read(_BLOCK))

    def _add_object(self, one: Any, depth: int) -> None:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(one, torch.Tensor):
            self._add_tensor(one, torch)
        elif isinstance(one, np.ndarray):
            self._add_array(one, depth)
        elif isinstance(one, dict):
            self._add_items(list(one.items()), depth)
        elif isinstance(one, (list, tuple, deque)):
            self._add_items(one, depth)
        elif isinstance(one, (set, frozenset)):
            self._add_items(sorted(map(repr, _plain(one))), depth)
        elif all(hasattr(type(one), name) for name in ("to_pydict", "slice", "num_rows")):  # of Arrow
            rows = _spread(int(one.num_rows), _MOST_ROWS)
            self._add(repr([int(one.num_rows), *(one.slice(at, 1).to_pydict() for at in rows)]).encode())
        else:
            for name, value in _attributes(one):
                if _is_content(one, name, value):
                    self._add(name.encode())
                    self.add(value, depth)

    def _add_items(self, items: Sequence[Any], depth: int) -> None:
        self._add(f"{len(items)} items".encode())
        for at in _spread(len(items), _MOST_ITEMS):
            self.add(items[at], depth)

    def _add_tensor(self, one: Any, torch: Any) -> None:
        self._add(f"{one.dtype} {tuple(one.shape)}".encode())
        if type(one) not in (torch.Tensor, torch.nn.Parameter) or one.layout is not torch.strided:
            return  # what lies on many ranks, or in another way
        if one.device.type == "meta" or not one.numel() or one.is_conj() or one.is_neg() or one.is_quantized:
            return
        if one.device.type != "cpu" or not one.is_contiguous():
            one = one[_spread(len(one), _BLOCKS)] if one.dim() else one
        flat = one.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        self._add_blocks(memoryview(flat.numpy()))

    def _add_array(self, one: np.ndarray[Any, Any], depth: int) -> None:
        self._add(f"{one.dtype} {one.shape}".encode())
        if one.dtype.hasobject:
            self._add_items([one.flat[at] for at in _spread(one.size, _MOST_ITEMS)], depth)
        if one.dtype.hasobject or not one.nbytes:
            return
        if not one.flags.c_contiguous:
            one = one[_spread(len(one), _BLOCKS)] if one.ndim else one
        self._add_blocks(np.ascontiguousarray(one).reshape(-1).view(np.uint8).data)

    def _add_blocks(self, data: memoryview) -> None:
        if len(data) <= self._bytes:
            self._bytes -= len(data)
            self._add(data)
            return
        blocks = max(1, min(_BLOCKS, (self._bytes + self._most) // _BLOCK))
        for at in _spread(max(1, len(data) - _BLOCK + 1), blocks):
            self._add(data[at : at + _BLOCK])
            self._bytes -= _BLOCK


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds by name, in slots too."""
    yield from getattr(one, "__dict__", {}).items()
    for base in type(one).__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):
                    yield name, slot.__get__(one)


def _is_content(owner: Any, name: str, value: Any) -> bool:
    """Whether an attribute is of the data, not of how it is read: of installed libraries only what anybody may see."""
    if isinstance(value, _NUMBERS) or "cache" in name:
        return False
    kind = type(owner)
    return is_own_class(kind) or kind.__module__.startswith(_OPEN) or name in ("_data", "_indices") or name[0] != "_"


def _plain(items: Iterable[Any]) -> list[Any]:
    return [one for one in items if isinstance(one, _PLAIN)]


def _spread(count: int, most: int) -> list[int]:
    """So many places out of ``count``, the first and the last among them.

    Example:
        >>> _spread(4, 8), _spread(9, 3)
        ([0, 1, 2, 3], [0, 4, 8])
    """
    if count <= most or most == 1:
        return list(range(min(count, most)))
    return [at * (count - 1) // (most - 1) for at in range(most)]
