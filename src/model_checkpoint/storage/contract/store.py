"""Store: the contract of a place that keeps checkpoints.

A store knows names, files and bytes; nothing of tensors or manifests beyond "the manifest is the last file to appear".
Invariants: a name that ``names`` lists is complete; a stage that was never published is invisible; every access to
the medium goes through the store's shim, so that a test can fail, kill or reorder any single call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from model_checkpoint.errors import CheckpointException
from model_checkpoint.options import Graces

ManifestRead = tuple[str, bytes | CheckpointException]  # a name, and what was found under it
Tell = Callable[[str], None]  # hears the key of what was removed


def nobody(key: str) -> None:
    """Nobody listens."""


@runtime_checkable
class Reader(Protocol):
    """One open data file; safe to use from many threads."""

    @property
    def size(self) -> int:
        """Bytes in the file."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``; raise ``Truncated`` when the file ends before."""
        ...

    def map(self) -> memoryview | None:
        """The whole file as a private map, or None where mapping is unsafe (network, object store)."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


@runtime_checkable
class CachedReader(Protocol):
    """A reader that may go around a cache which the readers of this machine have in common."""

    @property
    def around_cache(self) -> bool:
        """Whether it does."""
        ...

    def go_through_cache(self) -> None:
        """Leave what is read from now on in that cache."""
        ...


@runtime_checkable
class Writer(Protocol):
    """One data file being written, slab by slab, in any order and from many threads."""

    @property
    def alignment(self) -> int:
        """Offsets, lengths and buffer addresses given to ``write`` must be multiples of this."""
        ...

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of ``data`` at ``offset``."""
        ...

    def seal(self, size: int | None = None) -> None:
        """Cut to ``size``, or to the announced size, flush to the medium, close. Never tried twice.

        A file may end up smaller than announced, never larger.
        """
        ...


class FileStat(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can tell of a file without reading it.

    Two files of equal ``identity`` are one copy on the medium; a file whose identity or size changed was tampered with.
    """

    size: int
    identity: str
    links: int  # how many names this copy has, trash and stages included


@dataclass(frozen=True, slots=True, kw_only=True)
class Trashed:
    """One deleted checkpoint that can still be brought back."""

    name: str  # what it was called
    token: str  # its key in the trash
    deleted: float  # unix time, by the clock of whoever deleted it
    nbytes: int


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Something a recovery left, and how long it will do so."""

    key: str  # the id of an attempt, or the key of a deletion
    seconds: float | None  # until it may be removed; None as long as its owner lives or cannot be known


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a recovery removed, and what it left because it may still be alive or wanted."""

    attempts: Sequence[str] = ()
    trashed: Sequence[str] = ()
    alive: Sequence[str] = ()
    nbytes: int = 0
    waiting: Sequence[Waiting] = ()  # all that was left: first the attempts, then the deletions


@runtime_checkable
class Attempt(Protocol):
    """One attempt to save: files nobody sees until ``publish``."""

    def create(self, file: str, size: int) -> Writer:
        """Open a new file and reserve ``size`` bytes for it; raise ``DiskFull`` before the first byte."""
        ...

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Let ``file`` be the same copy as ``source_file`` of the checkpoint ``source``.

        False, and nothing staged, if the medium cannot, or if the file there does not have that ``identity``.
        """
        ...

    def stamps(self) -> dict[str, FileStat]:
        """Stamps of the files staged so far; publishing changes neither size nor identity."""
        ...

    def publish(self, manifest: bytes, *, replace: bool = False, obsolete: Sequence[str] = ()) -> None:
        """Make the checkpoint visible and durable; the manifest appears last.

        Without ``replace`` an existing name is ``StepExists``. With it the new files join the existing folder, the
        manifest is swapped at once, and ``obsolete`` files leave the checkpoint afterwards. If the name of a new file
        lacks the attempt id, the old version may have a file of that name: then the new one takes its place as a whole
        (see :class:`Swapping`). A failure after the switch is ``DurabilityUnknown``; before it, the old checkpoint is
        untouched.
        """
        ...

    def abort(self) -> None:
        """Remove everything staged; never raises for what is already gone."""
        ...


@runtime_checkable
class Mending(Protocol):
    """Files on their way into a published checkpoint: such as it lacks, or in place of damaged ones.

    A file has one content under one name for ever, so whoever brings the same file a second time changes nothing.
    """

    def create(self, file: str, size: int) -> Writer:
        """Open a file that will be ``file`` of the checkpoint, and reserve ``size`` bytes for it."""
        ...

    def link(self, file: str, *, source: str, source_file: str, identity: str) -> bool:
        """Let ``file`` be the same copy as ``source_file`` of the checkpoint ``source``; see :class:`Attempt`."""
        ...

    def finish(self, *, over: bytes, manifest: bytes | None = None) -> bool:
        """Put every file in its place, durably, and then ``manifest``, if there is one, in the place of ``over``.

        What was there before goes to the trash. False, and no reader will miss anything, if the manifest in place is
        no longer ``over``: the checkpoint was replaced or deleted meanwhile.
        """
        ...

    def abort(self) -> None:
        """Remove what is not in its place yet; never raises for what is already gone."""
        ...


@runtime_checkable
class Store(Protocol):
    """A place that keeps checkpoints; an implementation must pass ``testing.StoreSuite``."""

    @property
    def url(self) -> str:
        """Where it is, for messages."""
        ...

    def exists(self) -> bool:
        """Whether the root is there at all."""
        ...

    def names(self) -> list[str]:
        """Names of published checkpoints, in no order."""
        ...

    def entries(self) -> Sequence[str]:
        """What may be a published checkpoint, in no order, for the price of one listing; reading each decides."""
        ...

    def has(self, name: str) -> bool:
        """Whether ``name`` is a published checkpoint; looks at that name alone."""
        ...

    def read_manifest(self, name: str) -> bytes:
        """The manifest of ``name``; raise ``CheckpointNotFound`` when there is none."""
        ...

    def files(self, name: str) -> dict[str, int]:
        """Every file of ``name`` with its size."""
        ...

    def stamps(self, name: str) -> dict[str, FileStat]:
        """Every file of ``name`` with its stamp."""
        ...

    def open(self, name: str, file: str) -> Reader:
        """Open one data file; raise ``Truncated`` when it is gone, ``UnsafeName`` when it is no regular file."""
        ...

    def stage(self, name: str, attempt: str) -> Attempt:
        """Begin an attempt; raise ``StepExists`` only in ``publish``."""
        ...

    def mend(self, name: str, attempt: str) -> Mending:
        """Begin to put files into the published checkpoint ``name``, under an id of its own like an attempt."""
        ...

    def free_bytes(self) -> int | None:
        """Room left, where the medium can tell."""
        ...

    def discard(self, name: str) -> Trashed:
        """Move a published checkpoint to the trash, durably."""
        ...

    def trash(self) -> list[Trashed]:
        """What can be brought back, in the order in which it was deleted, whatever clocks say."""
        ...

    def read_trashed(self, token: str) -> bytes:
        """The manifest of what lies in the trash under ``token``."""
        ...

    def bring_back(self, token: str) -> str:
        """Undo a ``discard``; return the name; raise ``StepExists`` when the name is taken again."""
        ...

    def sweep(self, graces: Graces, *, dry_run: bool = False, tell: Tell = nobody) -> Swept:
        """Remove leavings of dead attempts and trash past ``graces.of_trash`` its token; never touch what may be alive.

        With ``dry_run`` nothing is removed, and what would be is told. ``tell`` hears the key of each attempt and
        deletion when it was removed.
        """
        ...


@runtime_checkable
class Adopting(Protocol):
    """An attempt into which others may write files by themselves."""

    def room(self) -> str:
        """A folder of this machine to write into, within the stage; what is not adopted goes when it is published."""
        ...

    def adopt(self, source: str, file: str) -> Reader:
        """Take what lies at ``source`` in the room as ``file`` and flush it; the reader shows what will be published.

        Raises ``UnsafeName`` for anything but a regular file.
        """
        ...


@runtime_checkable
class FolderStore(Protocol):
    """A store whose checkpoints are folders of this machine."""

    def place(self, name: str) -> str:
        """The folder of a checkpoint, for programs that open files by path."""
        ...


@runtime_checkable
class Swapping(Protocol):
    """A store that cannot replace a checkpoint by one with files of the same names wherever it lies."""

    def can_swap(self) -> bool:
        """Whether it can do so here."""
        ...


@runtime_checkable
class Buffering(Protocol):
    """A store whose files wait in memory on their way to the medium."""

    @property
    def buffer_bytes(self) -> int:
        """Memory that each file takes while it is being written."""
        ...

    def within(self, nbytes: int) -> Store:
        """The same store, whose files take at most ``nbytes`` each, or the least that works."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A store that reads many manifests sooner together than one after the other."""

    def read_manifests(self, names: Iterable[str], *, limit: int | None = None) -> Iterator[ManifestRead]:
        """See the function :func:`read_manifests`."""
        ...


def read_manifests(store: Store, names: Iterable[str], *, limit: int | None = None) -> Iterator[ManifestRead]:
    """Each name with its manifest, or with its first ``limit`` bytes, in the order of ``names``.

    What goes wrong with one stands in its place, so that the others are still read: ``CheckpointNotFound`` for one
    deleted since the names were listed.

    Example:
        >>> from model_checkpoint.storage import open_store
        >>> store = open_store("memory://doc-read-manifests")
        >>> store.stage("step-1", "attempt-1").publish(b"the manifest")
        >>> list(read_manifests(store, store.names(), limit=3))
        [('step-1', b'the')]
    """
    if isinstance(store, Gathering):
        yield from store.read_manifests(names, limit=limit)
        return
    for name in names:
        try:
            yield name, store.read_manifest(name)[:limit]
        except CheckpointException as error:
            yield name, error
