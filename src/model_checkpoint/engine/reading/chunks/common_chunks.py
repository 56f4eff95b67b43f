"""Common chunks: which chunks several ranks want, as all of them call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from model_checkpoint.manifest import Manifest
from model_checkpoint.plan import ChunkRead

Wanted = Mapping[str, Sequence[Sequence[int]]]  # chunks of files, by name, as runs [first, stop)
Agree = Callable[[Wanted], Wanted]  # from what this rank wants to what all that hand chunks on want
ChunkKey = tuple[str, int]  # a chunk, by file and number, as all ranks call it


def chunk_key(manifest: Manifest, read: ChunkRead) -> ChunkKey:
    """What all ranks call a chunk: they number files each in their own way."""
    return manifest.files[read.file].name, read.chunk


def wanted_by_all(reads: Sequence[ChunkRead], manifest: Manifest, agree: Agree) -> list[ChunkRead]:
    """Those of ``reads`` that are whole chunks and that all ranks want, in an order that is the same on all of them."""
    whole = {chunk_key(manifest, read): read for read in reads if _is_whole(manifest, read)}
    return [whole[key] for key in _chunks(agree(_runs(whole)))]


def without(reads: Sequence[ChunkRead], some: Sequence[ChunkRead]) -> list[ChunkRead]:
    """The reads that are none of ``some``."""
    gone = {id(read) for read in some}
    return [read for read in reads if id(read) not in gone]


def in_common(wanted: Sequence[Wanted]) -> Wanted:
    """The chunks that everybody wants.

    Example:
        >>> in_common([{"a": [[1, 5]], "b": [[1, 2]]}, {"a": [[0, 2], [3, 9]]}])
        {'a': [[1, 2], [3, 5]]}
    """
    common = set(_chunks(wanted[0]))
    for one in wanted[1:]:
        common &= set(_chunks(one))
    return _runs(dict.fromkeys(common))


def _is_whole(manifest: Manifest, read: ChunkRead) -> bool:
    ends = manifest.files[read.file].ends
    return read.chunk > 0 and (read.start, read.stop) == (ends[read.chunk - 1], ends[read.chunk])


def _runs(keys: Mapping[ChunkKey, object]) -> dict[str, list[list[int]]]:
    """Chunks as runs, which takes little to tell."""
    made: dict[str, list[list[int]]] = {}
    for name, chunk in sorted(keys):
        runs = made.setdefault(name, [])
        if runs and runs[-1][1] == chunk:
            runs[-1][1] = chunk + 1
        else:
            runs.append([chunk, chunk + 1])
    return made


def _chunks(wanted: Wanted) -> Iterator[ChunkKey]:
    for name in sorted(wanted):
        for first, stop in wanted[name]:
            yield from ((name, chunk) for chunk in range(first, stop))
