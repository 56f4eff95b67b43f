"""Tensor reader: the tensors of one checkpoint, one after the other, each verified before it is handed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from model_checkpoint import tree
from model_checkpoint.engine.common.info import info_of
from model_checkpoint.engine.reading.chunks.chunk_reader import ChunkReader
from model_checkpoint.engine.root.listing import load_manifest
from model_checkpoint.engine.root.rank_manifests import pieces_of
from model_checkpoint.engine.root.refs import Reference, choose_one
from model_checkpoint.events import ignore
from model_checkpoint.manifest import Manifest
from model_checkpoint.plan import ChunkRead, plan_reads
from model_checkpoint.state import Spec
from model_checkpoint.tree.nodes.walk import arrays

if TYPE_CHECKING:
    import numpy.typing as npt


def _every(name: str) -> bool:
    return True


class TensorReader:
    """The tensors of a checkpoint as NumPy arrays; a context manager.

    Example:
        >>> import model_checkpoint as mc, numpy as np
        >>> _ = mc.save("memory://doc-tensors", {"w": np.arange(3), "b": np.zeros(2)}, step=1)
        >>> with TensorReader("memory://doc-tensors") as tensors:
        ...     list(tensors.specs), tensors.array("w")
        (['w', 'b'], array([0, 1, 2]))
    """

    def __init__(self, ref: Reference, wanted: Callable[[str], bool] = _every, *, name: str | None = None) -> None:
        store, found = choose_one(ref) if name is None else choose_one(ref, name=name)
        self.manifest: Manifest = load_manifest(store, found.name)
        self.info = info_of(store, self.manifest)
        self.nodes = dict(arrays(self.manifest.tree))
        every = tree.specs(self.manifest.tree, self.manifest.entries)
        self.specs: dict[str, Spec] = {spec.name: spec for spec in every if wanted(spec.name)}
        self._medium = ChunkReader(store, self.manifest, full=False)
        self._checked: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._medium.close()

    def nbytes(self, name: str) -> int:
        """Bytes of the tensor itself, also where it is a part of a stored array."""
        spec = self.specs[name]
        return tree.nbytes_of(spec, self.manifest.entries[spec.entry])

    def is_view(self, name: str) -> bool:
        """Whether the tensor is a part of a stored array, or is stored in parts: then its bytes decide."""
        return bool(self.nodes[name][0] == "v") or self.specs[name].entry in self.manifest.pieces

    def fingerprint(self, name: str) -> tuple[object, ...]:
        """What is equal for an unchanged tensor; for views, the place in the stored array is part of it."""
        spec, node = self.specs[name], self.nodes[name]
        place = str(node[2:]) if node[0] == "v" else ""
        pieces = pieces_of(self.manifest, spec.entry)
        digests = tuple((offsets, self.manifest.entries[number].digest) for offsets, number in pieces)
        return spec.dtype, spec.shape, digests, place

    def array(self, name: str) -> npt.NDArray[Any]:
        """The tensor itself, verified."""
        import numpy as np  # which nobody needs who only looks at what is there

        from model_checkpoint.engine.reading.deliver import deliver
        from model_checkpoint.engine.reading.gather_boxes import NOTHING_HELD

        self._check_files(name)
        restore = tree.prepare(self.nodes[name], self.manifest.entries, framework="numpy")
        needed = list(restore.needed)
        deliver(self._medium, self.manifest, restore, needed, mapped=False, check=True, emit=ignore, boxes=NOTHING_HELD)
        return np.asarray(restore.finish())

    def stored_bytes(self, name: str, start: int, stop: int) -> memoryview:
        """Bytes ``[start, stop)`` of a tensor that is no view, as they are stored, verified."""
        self._check_files(name)
        number, room = self.specs[name].entry, memoryview(bytearray(stop - start))

        def take(read: ChunkRead, data: memoryview) -> None:
            for piece in read.pieces:
                at = piece.into - start
                room[at : at + piece.length] = data[piece.start : piece.start + piece.length]

        entries, files = self.manifest.entries, self.manifest.files
        reads = plan_reads([number], entries, files, ranges={number: [(start, stop)]}, subchunks=True)
        self._medium.read_chunks(reads, lambda _: None, take)
        return room

    def _check_files(self, name: str) -> None:
        """Open the files that hold a tensor, and check their sizes and headers, once."""
        stored = self.manifest.stored_of([self.specs[name].entry])
        if fresh := [entry for entry in stored if entry.file not in self._checked]:
            self._medium.prepare(fresh)
            self._checked.update(entry.file for entry in fresh)
