"""Record: the values a manifest is made of.

Everything below the top level is an array in JSON (``array_like``): smaller, faster, and without room for duplicate
keys. New fields go to the end of a record, with a default, so that older manifests stay readable. A record can be part
of no cycle, and there may be a million of them, so the cycle collector is told to leave them alone (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from model_checkpoint.manifest.layout_record import Layout
from model_checkpoint.manifest.scalars import Node

FORMAT_VERSION = 1
SUBCHUNK_BYTES = 256 << 10  # what a chunk is cut into where its parts have digests of their own

PARITY_SUMS = {"xor": ("p",), "pq": ("p", "q")}  # which sums each scheme keeps, one file each


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stored array: what it is, and the bytes ``[start, stop)`` of one data file that hold it."""

    name: str
    kind: str  # which adapter gives it back: "torch", "numpy", "jax", "tensorflow", "bytes", ...
    dtype: str  # logical dtype, in the adapter's words
    shape: tuple[int, ...]
    stored: str  # dtype in the safetensors header
    stored_shape: tuple[int, ...] | None  # shape in the header where it differs
    file: int
    start: int
    stop: int
    digest: str  # xxh3-128 of the content: of its bytes, or of its chunks' digests when longer than one chunk
    attributes: Node = None  # the adapter's own remarks

    @property
    def nbytes(self) -> int:
        """Raw size."""
        return self.stop - self.start


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where one chunk of a compressed file lies, and how it is packed."""

    start: int  # bytes of the file as stored
    stop: int
    codec: str
    width: int  # bytes of a number, by which the chunk was split into planes
    xxh3: str  # base64 xxh3-128 of the stored bytes; empty for a chunk stored as it is


class FileRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One data file: its size, and the digests of the chunks it is cut into."""

    name: str
    size: int  # as stored
    ends: tuple[int, ...]  # chunk i is the bytes [ends[i-1], ends[i]); chunk 0 is the header
    sha256: str  # base64 of the chunks' SHA-256 digests, one after the other
    xxh3: str  # base64 of the chunks' xxh3-128 digests
    digest: str  # hex SHA-256 over the chunks' SHA-256 digests
    frames: tuple[Frame, ...] = ()  # one per chunk if the file is compressed; all else speaks of the decompressed bytes
    identity: str = ""  # which copy on the medium it was, in the store's words
    verified: int = 0  # when its bytes were last known to be right: written from memory, unix time
    subchunks: tuple[str, ...] = ()  # per chunk base64 of the xxh3-128 digests of its parts, empty for one without

    @property
    def raw_size(self) -> int:
        """Bytes of the file decompressed."""
        return self.ends[-1] if self.ends else self.size


class FileCopy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a listing needs to know of a file."""

    size: int  # as stored
    raw_size: int
    identity: str  # which copy on the medium it was


class RankRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint's manifest says of one of the ranks that wrote it."""

    name: str  # of the rank's own manifest
    size: int
    sha256: str
    files: tuple[str, ...] = ()  # the data files it wrote
    copies: tuple[FileCopy, ...] = ()  # what a listing needs to know of those


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is, whatever is in it; a manifest begins with it."""

    format: str = "model_checkpoint"
    format_version: int = FORMAT_VERSION
    min_reader: int = 1
    features: tuple[str, ...] = ()  # what a reader must know to read this rightly
    id: str
    attempt: str
    name: str  # the folder's name
    step: int | None
    created: str  # UTC, ISO 8601
    layout: str  # CheckpointFormat value
    compression: str  # CompressionLevel value
    world_size: int = 1
    metrics: Node = None
    metadata: Node = None
    parents: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # parts an emergency save had no time for; then "incomplete" is a feature
    parity: str = ""  # the scheme its parity files were asked for with; they come after the manifest
    mirror: str = ""  # the second root it is copied to

    @property
    def parity_files(self) -> tuple[str, ...]:
        """What its parity files are called, whether they are there yet or not; none for a scheme nobody knows."""
        return tuple(f"{kind}-{self.attempt}.parity" for kind in PARITY_SUMS.get(self.parity, ()))


class Head(Label, frozen=True, kw_only=True):
    """What a listing needs of a manifest; the beginning of a long one suffices to read it."""

    copies: tuple[FileCopy, ...] = ()  # of the data files, then of the extras


class Summary(Label, frozen=True, kw_only=True):
    """A manifest without its tree and entries; decoding skips those."""

    files: tuple[FileRecord, ...] = ()
    extras: tuple[FileRecord, ...] = ()  # files beside the data: the index of a consolidated model, manifests of ranks
    ranks: tuple[RankRecord, ...] = ()  # if many ranks wrote it; then "ranks" is a feature

    @property
    def copies(self) -> tuple[FileCopy, ...]:
        """What its head says of its files."""
        records = (*self.files, *self.extras)
        own = [FileCopy(record.size, record.raw_size, record.identity) for record in records]
        return (*own, *(copy for rank in self.ranks for copy in rank.copies))

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every file that belongs to the checkpoint, but for the manifest itself."""
        own = [record.name for record in (*self.files, *self.extras)]
        ranks = [name for rank in self.ranks for name in (rank.name, *rank.files)]
        return (*dict.fromkeys([*own, *ranks]), *self.parity_files)


class Manifest(Summary, frozen=True, kw_only=True):
    """All of one checkpoint but the array bytes."""

    tree: Node = None
    entries: tuple[Entry, ...] = ()
    layouts: tuple[Layout, ...] = ()  # how arrays lie on many ranks
    placed: tuple[int, ...] = ()  # the layout of each entry, if there are layouts
    pieces: ClassVar[Mapping[int, tuple[tuple[tuple[int, ...], int], ...]]] = {}  # of what is stored in pieces: nothing

    @property
    def stored(self) -> tuple[Entry, ...]:
        """The entries that lie in a data file as they are."""
        return self.entries

    def stored_of(self, numbers: Iterable[int]) -> list[Entry]:
        """The entries in which the bytes of some of its own lie."""
        return [self.entries[number] for number in numbers]


class JoinedManifest(Manifest, frozen=True, kw_only=True):
    """The manifest of many ranks with theirs joined to it; never written.

    The entries of the pieces follow its own, and ``pieces`` says which of them make up one of its own: where the piece
    begins in the array, and the number of its entry.
    """

    pieces: dict[int, tuple[tuple[tuple[int, ...], int], ...]] = {}  # type: ignore[misc]  # each has its own

    @property
    def copies(self) -> tuple[FileCopy, ...]:
        """What its head says of its files, which are all here by now."""
        records = (*self.files, *self.extras)
        return tuple(FileCopy(record.size, record.raw_size, record.identity) for record in records)

    @property
    def stored(self) -> tuple[Entry, ...]:
        """The entries that lie in a data file as they are."""
        return tuple(entry for number, entry in enumerate(self.entries) if number not in self.pieces)

    def stored_of(self, numbers: Iterable[int]) -> list[Entry]:
        """The entries in which the bytes of some of its own lie."""
        own = [[number] if number not in self.pieces else [at for _, at in self.pieces[number]] for number in numbers]
        return [self.entries[at] for some in own for at in some]


for _kind in (Head, Summary, Manifest):
    msgspec.json.Decoder(_kind)  # looks at its fields now: where two threads are the first to meet a class, it crashes
