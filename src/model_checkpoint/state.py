"""State: a training state in memory, taken apart into leaves (values with bytes) that the stages pass on.

A save reads leaves through :class:`Source`; a load writes them through :class:`Target`. Both speak of the bytes as
they are stored (little-endian, C order), whatever the framework holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from model_checkpoint.manifest import Entry, Layout, Node


class Source(Protocol):
    """The bytes of one leaf, readable in windows while the caller's memory stays put."""

    @property
    def nbytes(self) -> int:
        """How many bytes there are."""
        ...

    def window(self, start: int, stop: int) -> memoryview:
        """Return the bytes ``[start, stop)``: a view where they lie contiguous on the host, else a fresh copy."""
        ...


class LocalArray(NamedTuple):
    """What one rank has of an array that lies on many ranks, or one of several parts that it has."""

    shape: tuple[int, ...]
    source: Source


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """How an array lies on many ranks, and what this one has of it."""

    layout: Layout
    arrays: Sequence[LocalArray]
    declared: bool = True  # the layout tells what all ranks have; else its regions are just this rank's own


class Leaf(NamedTuple):
    """One array to store (each shared storage once)."""

    name: str  # unique; the tensor's name in the data file
    kind: str  # adapter that gives it back
    dtype: str  # logical dtype
    shape: tuple[int, ...]
    stored: str  # safetensors dtype
    stored_shape: tuple[int, ...] | None  # where it differs from shape
    source: Source
    alignment: int  # bytes its stored dtype wants to be aligned to
    attributes: Node = None
    frozen: bool = False  # known not to be trained (requires_grad is False)
    sharding: Sharding | None = None  # if other ranks have parts of it; the shape is that of the whole all the same

    @property
    def nbytes(self) -> int:
        """Raw size."""
        return self.source.nbytes

    def entry(self, *, start: int, stop: int, file: int = 0, name: str | None = None, digest: str = "") -> Entry:
        """What a manifest says of it, once it is known which bytes of which file hold it."""
        return Entry(
            name=self.name if name is None else name,
            kind=self.kind,
            dtype=self.dtype,
            shape=self.shape,
            stored=self.stored,
            stored_shape=self.stored_shape,
            file=file,
            start=start,
            stop=stop,
            digest=digest,
            attributes=self.attributes,
        )


class Flat(msgspec.Struct, frozen=True):
    """A state taken apart: its structure, where ``["a", i]`` stands for leaf ``i``, and the leaves."""

    tree: Node
    leaves: Sequence[Leaf]
    unshared: Sequence[str] = ()  # names of views stored apart because together they cover too little
    owners: Sequence[object] = ()  # the modules and optimizers met in the state
    of_rank_zero: Sequence[str] = ()  # names of what is nobody's own, so that rank 0's is kept for all ranks


class Target(Protocol):
    """Where the verified bytes of one stored array go."""

    @property
    def live(self) -> bool:
        """Whether this is memory the caller is using (so that no unverified byte may reach it)."""
        ...

    @property
    def buffer(self) -> memoryview | None:
        """All the bytes, writable, if they lie contiguous on the host; else None and ``put`` is the way."""
        ...

    @property
    def address(self) -> int:
        """Where those of ``buffer`` begin, if that is quicker told than shown; else 0."""
        ...

    def put(self, start: int, data: memoryview) -> None:
        """Write ``data`` at byte ``start``."""
        ...


class ShardTarget(NamedTuple):
    """Where the verified bytes of what one rank has of an array go."""

    layout: Layout
    shapes: Sequence[tuple[int, ...]]  # of the rank's own arrays
    buffers: Sequence[memoryview]  # all of their bytes, in C order
    live: bool
    buffer: None = None
    address: int = 0

    def put(self, start: int, data: memoryview) -> None:
        """Never called: the rank has only a part of the array, so no byte of the whole says where it goes."""
        raise AssertionError("a part of an array is filled box by box")


class Spec(msgspec.Struct, frozen=True, gc=False):
    """What one array leaf of a tree looks like, saved or live; aliases of one storage have a Spec each."""

    name: str  # dotted, escaped path in the tree
    dtype: str
    shape: tuple[int, ...]
    entry: int = -1  # index of the stored array that holds it (-1 for live leaves)
    kind: str = ""


class LiveSpecs(msgspec.Struct, frozen=True):
    """What the caller's objects expect: their leaves, and prefixes under which anything is welcome."""

    specs: Sequence[Spec]
    open_prefixes: Sequence[str] = ()  # "a.b." all below it, "a.b" just that name, "" everything
