"""SafeTensors files: one ``.safetensors`` file that every reader of that format opens, with the whole state in it.

Arrays are its tensors, under their dotted names; the structure around them, with all plain values, stands in the
header's metadata, where other readers leave it alone.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from model_checkpoint import tree
from model_checkpoint.backend import BaseStorageBackend
from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.format import FileLayout, Tensor, check_header, lay_out
from model_checkpoint.format.header import header_length
from model_checkpoint.manifest import Entry, Node
from model_checkpoint.options import MIB, ReaderLimits
from model_checkpoint.state import Flat, Target

_KEY = "model_checkpoint.state"
_WINDOW = 4 * MIB
_LIMITS = ReaderLimits()


class _Inside(msgspec.Struct, frozen=True):
    """What our reader needs beside the tensors; their places are counted from the end of the header."""

    tree: Node
    entries: tuple[Entry, ...]


class SafeTensorsBackend(BaseStorageBackend):
    """Any state the engine takes, as one file for tools that read safetensors.

    Example:
        >>> import tempfile, numpy as np
        >>> path = f"{tempfile.mkdtemp()}/state.safetensors"
        >>> _ = SafeTensorsBackend().save_checkpoint({"model": {"w": np.ones(2)}, "epoch": 3}, path)
        >>> SafeTensorsBackend().load_checkpoint(path)
        {'model': {'w': array([1., 1.])}, 'epoch': 3}
    """

    def get_name(self) -> str:
        """The name in catalogs and manifests."""
        return "safetensors"

    def get_file_extension(self) -> str:
        """As every tool for such files expects it."""
        return ".safetensors"

    def save_checkpoint(self, data: Any, path: str) -> None:
        """Write ``data``."""
        flat = tree.flatten(data)
        layout = _lay_out(flat)
        with open(path, "xb") as file:
            file.write(layout.header)
            for chosen in layout.order:
                source = flat.leaves[chosen].source
                for start in range(0, source.nbytes, _WINDOW):
                    file.write(source.window(start, min(start + _WINDOW, source.nbytes)))

    def load_checkpoint(self, path: str, device: Any = None) -> Any:
        """Read it back exactly as it was."""
        data = np.memmap(path, dtype=np.uint8, mode="r")
        length = header_length(bytes(data[:8]), size=data.nbytes, where=path, limits=_LIMITS)
        header = bytes(data[:length])
        inside = _inside(header, path)
        entries = [
            msgspec.structs.replace(one, start=one.start + length, stop=one.stop + length) for one in inside.entries
        ]
        check_header(header, entries, size=data.nbytes, where=path, limits=_LIMITS)
        restore = tree.prepare(inside.tree, entries, device=device)
        for index in restore.needed:
            _fill(restore.target(index), data[entries[index].start : entries[index].stop])
        return restore.finish()


def _lay_out(flat: Flat) -> FileLayout:
    """Lay the tensors out twice: where they lie does not depend on the header, but the header tells where they lie."""
    tensors = [
        Tensor(
            leaf.name,
            leaf.stored,
            leaf.shape if leaf.stored_shape is None else leaf.stored_shape,
            leaf.nbytes,
            leaf.alignment,
        )
        for leaf in flat.leaves
    ]
    bare = lay_out(tensors, metadata={}, chunk_bytes=_WINDOW)
    entries = [_entry(flat, chosen, bare, place) for place, chosen in enumerate(bare.order)]
    ordered = tuple(entry for _, entry in sorted(zip(bare.order, entries, strict=True), key=lambda pair: pair[0]))
    inside = msgspec.json.encode(_Inside(tree=flat.tree, entries=ordered)).decode()
    return lay_out(tensors, metadata={"format": "pt", _KEY: inside}, chunk_bytes=_WINDOW)


def _entry(flat: Flat, chosen: int, bare: FileLayout, place: int) -> Entry:
    leaf, base = flat.leaves[chosen], len(bare.header)
    return leaf.entry(start=bare.starts[place] - base, stop=bare.starts[place + 1] - base)


def _inside(header: bytes, path: str) -> _Inside:
    try:
        metadata = msgspec.json.decode(header[8:], type=dict[str, msgspec.Raw])["__metadata__"]
        text = msgspec.json.decode(metadata, type=dict[str, str])[_KEY]
        return msgspec.json.decode(text, type=_Inside)
    except (KeyError, msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ManifestInvalid(
            f"{path}: is a safetensors file, but not one of this backend: the structure of the state is not in its "
            f"header ({error!r}). Open it with the safetensors package.",
            path,
        ) from error


def _fill(target: Target, data: np.ndarray[Any, Any]) -> None:
    if target.buffer is None:
        target.put(0, data.data)
    elif data.nbytes:
        np.copyto(np.frombuffer(target.buffer, dtype=np.uint8), data)
